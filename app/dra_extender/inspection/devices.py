"""The devices of a cluster: what is published where, what is taken of it, and by whom."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from dra_extender.allocator.availability import DeviceAvailability
from dra_extender.allocator.explain.device_messages import taint_text
from dra_extender.allocator.pools.pools import Pool
from dra_extender.allocator.rules.compatibility_groups import GroupState, state_with
from dra_extender.allocator.rules.held_devices import bound_nodes, frozen_view, held_consumption
from dra_extender.allocator.rules.violations import published_pool
from dra_extender.inspection.audit.published import is_for, slice_finding
from dra_extender.inspection.cluster_view import ClusterView
from dra_extender.inspection.free_devices import free_devices
from dra_extender.inspection.holders import HeldDevice, Holder, Holders
from dra_extender.inspection.near_names import name_hint
from dra_extender.inspection.objects import DEVICES, Origin, UnknownObjectError, require
from dra_extender.model.allocation import DeviceHolding
from dra_extender.model.api_json import Value
from dra_extender.model.device import CounterConsumption, Device, DeviceId, PoolId
from dra_extender.model.metadata import Moment, split_key
from dra_extender.model.node import Node
from dra_extender.model.resource_slice import ResourceSlice
from dra_extender.scheduling.claims.readiness import conditional_devices

AT_ALLOCATION: Final = "at allocation"
NOW: Final = "now"


class AmountDifference(Value, frozen=True):
    """What a device draws on a counter, in nano-units: as frozen with the allocation, and as published now; None: nothing."""

    counter: str
    frozen: int | None = None
    published: int | None = None


class SnapshotDifference(Value, frozen=True):
    """A counter set for which the allocations of `claims` (`namespace/name`) and the slice say different things.

    `counters` are only those whose amounts differ.  Where the groups differ, `frozen_groups` are those at allocation and
    `published_groups` those of the slice now; equal groups are left out.  `drawn_on` is `at allocation` or `now` if the device
    draws on the counter set only then.
    """

    counter_set: str
    claims: tuple[str, ...]
    counters: tuple[AmountDifference, ...] = ()
    groups_differ: bool = False
    frozen_groups: tuple[str, ...] = ()
    published_groups: tuple[str, ...] = ()
    drawn_on: str = ""


def snapshot_differences(device: Device, allocated: Sequence[HeldDevice]) -> tuple[SnapshotDifference, ...]:
    """Return the differences of a published device, by counter set; allocations with the same differences are one."""
    claims: defaultdict[SnapshotDifference, list[str]] = defaultdict(list)
    for holder, holding in allocated:
        if not holding.admin and holding.is_frozen:
            for difference in _differences(holding.drawn(device), device.consumes_counters):
                claims[difference].append(holder.claim)
    merged = (msgspec.structs.replace(difference, claims=tuple(sorted(names))) for difference, names in claims.items())
    return tuple(sorted(merged, key=lambda difference: (difference.counter_set, difference.claims)))


def _differences(
    frozen: Sequence[CounterConsumption], published: Sequence[CounterConsumption]
) -> Iterator[SnapshotDifference]:
    before, after = ({entry.counter_set: entry for entry in entries} for entries in (frozen, published))
    for name in sorted({*before, *after}):
        then, now = before.get(name), after.get(name)
        amounts = [dict(() if entry is None else entry.counters) for entry in (then, now)]
        groups = [() if entry is None else tuple(sorted(entry.compatibility_groups)) for entry in (then, now)]
        counters = tuple(
            AmountDifference(counter=counter, frozen=amounts[0].get(counter), published=amounts[1].get(counter))
            for counter in sorted({*amounts[0], *amounts[1]})
            if amounts[0].get(counter) != amounts[1].get(counter)
        )
        drawn_on = NOW if then is None else AT_ALLOCATION if now is None else ""
        differ = groups[0] != groups[1]
        if counters or differ or drawn_on:
            yield SnapshotDifference(
                counter_set=name,
                claims=(),
                counters=counters,
                groups_differ=differ,
                frozen_groups=groups[0] if differ else (),
                published_groups=groups[1] if differ else (),
                drawn_on=drawn_on,
            )


FORMAT: Final = "dra-extender.io/devices/v1"
NO_NODE: Final = ""
"""The node of devices that several nodes can reach."""


class CounterUse(Value, frozen=True):
    """A counter of a counter set, in nano-units: what the slices declare, and what allocated devices draw from it."""

    name: str
    total: int
    drawn: int


class CounterSetUse(Value, frozen=True):
    """A counter set: its counters, the devices that draw on it, and the groups that a further device must share.

    `groups` is None while it has no members, or members without groups; empty when members contradict each other.
    """

    name: str
    counters: tuple[CounterUse, ...]
    members: tuple[str, ...]
    groups: tuple[str, ...] | None = None


class CapacityUse(Value, frozen=True):
    """A capacity of a device that several claims may share, in nano-units."""

    name: str
    total: int
    taken: int


class ShareUse(Value, frozen=True):
    """What a claim (`namespace/name`) takes of the capacity of a shared device, in nano-units."""

    claim: str
    share_id: str
    capacity: tuple[tuple[str, int], ...] = ()


class ConditionState(Value, frozen=True):
    """Binding conditions that a device still waits for, or the one that reports its failure, for one claim (`namespace/name`).

    `state` is pending, failed or timed out; `limit` is when the wait ends.
    """

    claim: str
    conditions: tuple[str, ...]
    state: str
    limit: Moment
    message: str = ""


class DeviceUse(Value, frozen=True):
    """A published device: `groups` by counter set, taints as `key=value:effect`, what is awaited before a pod is bound.

    `draws` has the amounts that it draws, or would draw, by counter set, in nano-units: as frozen with its allocation, else as
    published.  `availability` says whether a device that no claim has can be allocated, and
    `unusable_because` why it is unusable; both are empty for one that a claim has.  `bound_to` names the nodes to which its
    shares bind it, one unless something is wrong.  `drift` names the counter sets on which an allocation froze other groups or
    amounts than the slice has now, `differences` has both.
    """

    name: str
    counter_sets: tuple[str, ...] = ()
    draws: tuple[tuple[str, tuple[tuple[str, int], ...]], ...] = ()
    groups: tuple[tuple[str, tuple[str, ...]], ...] = ()
    taints: tuple[str, ...] = ()
    binding_conditions: tuple[str, ...] = ()
    shared: bool = False
    capacity: tuple[CapacityUse, ...] = ()
    holders: tuple[Holder, ...] = ()
    shares: tuple[ShareUse, ...] = ()
    bound_to: tuple[str, ...] = ()
    conditions: tuple[ConditionState, ...] = ()
    drift: tuple[str, ...] = ()
    differences: tuple[SnapshotDifference, ...] = ()
    availability: str = ""
    unusable_because: str = ""

    @property
    def availability_text(self) -> str:
        """E.g. `usable`, `unusable: tainted`; empty for a device that a claim has."""
        return ": ".join(filter(None, (self.availability, self.unusable_because)))

    @property
    def is_free(self) -> bool:
        """Return whether no claim has it; `availability` says whether it can be allocated."""
        return not any(not holder.admin for holder in self.holders)


class PoolUse(Value, frozen=True):
    """A pool: its newest generation, with the holders of devices that it does not publish any more (`gone`).

    `problem` says why the allocator offers none of its devices; it is empty if the pool is complete and its slices agree.
    """

    driver: str
    pool: str
    node: str
    generation: int
    complete: bool
    problem: str = ""
    counter_sets: tuple[CounterSetUse, ...] = ()
    devices: tuple[DeviceUse, ...] = ()
    gone: tuple[DeviceUse, ...] = ()


class DevicesReport(Value, frozen=True):
    """All pools that were asked for, by node, driver and name; those that several nodes reach come first, under NO_NODE."""

    format: str
    origin: Origin
    pools: tuple[PoolUse, ...]


def devices_report(
    view: ClusterView,
    node: str | None = None,
    driver: str | None = None,
    *,
    free: bool = False,
    namespace: str | None = None,
) -> DevicesReport:
    """Return what is where: all pools, those whose devices the node can reach, or those of a driver.

    `free`: only devices that no claim has.  `namespace`: only pools and devices that claims of this namespace have.

    Raises:
        UnknownObjectError: the node does not exist.
        UnreadKindsError: objects that the answer depends on could not be read.
    """
    require(view.origin, DEVICES)
    holders, known = view.holders, None if node is None else known_node(view, node)
    pool_ids = [pool_id for pool_id in _pool_ids(view, known) if driver is None or pool_id[0] == driver]
    verdicts = free_devices(view, pool_ids)
    pools = [_pool(view, pool_id, holders, verdicts, free=free) for pool_id in pool_ids]
    if namespace is not None:
        pools = [_in_namespace(pool, namespace) for pool in pools]
        pools = [pool for pool in pools if pool.devices or pool.gone]
    ordered = sorted(pools, key=lambda pool: (pool.node, pool.driver, pool.pool))
    return DevicesReport(format=FORMAT, origin=view.origin, pools=tuple(ordered))


def known_node(view: ClusterView, name: str) -> Node:
    """Return the node of this name.

    Raises:
        UnknownObjectError: there is no such node.
    """
    node = view.ledger.nodes.get(name)
    if node is None:
        hint = name_hint(("", name), (("", existing) for existing in view.ledger.nodes))
        raise UnknownObjectError(f"node {name} does not exist in {view.origin.source}{hint}")
    return node


def _pool_ids(view: ClusterView, node: Node | None) -> Sequence[PoolId]:
    """Return all pools, or those with a slice or a device for the node."""
    slices = view.ledger.slices
    reachable: Iterable[ResourceSlice] = slices.by_name.values()
    if node is not None:
        near = (*slices.local(node.name), *slices.near(node))
        reachable = (published for published in near if is_for(published, node))
    return sorted({published.pool_id for published in reachable})


def _pool(
    view: ClusterView, pool_id: PoolId, holders: Holders, verdicts: Mapping[DeviceId, DeviceAvailability], *, free: bool
) -> PoolUse:
    published = view.ledger.slices.of_pool(pool_id)
    pool = published_pool(pool_id, published)
    usage = view.ledger.claims.usage.pool(pool_id)
    members = list(held_consumption(pool.published, usage))
    nodes = {part.node_name for part in pool.published}
    names = {device.name for part in pool.published for device in part.devices}
    problem = slice_finding(pool_id, published)
    devices = [
        _device(view, part, device, holders, usage.get(device.name, ()), verdicts.get((*pool_id, device.name)))
        for part in pool.published
        for device in part.devices
    ]
    gone = [
        DeviceUse(name=name, holders=tuple(user.holder for user in holders.of_device((*pool_id, name))))
        for name in sorted(set(usage) - names)
    ]
    return PoolUse(
        driver=pool_id[0],
        pool=pool_id[1],
        node=(nodes.pop() or NO_NODE) if len(nodes) == 1 else NO_NODE,
        generation=max((part.generation for part in pool.published), default=0),
        complete=problem is None,
        problem="" if problem is None else problem.detail,
        counter_sets=tuple(_counter_sets(pool, members)),
        devices=tuple(device for device in devices if device.is_free or not free),
        gone=() if free else tuple(gone),
    )


def _in_namespace(pool: PoolUse, namespace: str) -> PoolUse:
    """Return the pool with the devices that claims of the namespace have, and the counter sets that these draw on."""

    def of_namespace(devices: Iterable[DeviceUse]) -> tuple[DeviceUse, ...]:
        return tuple(
            device for device in devices if any(split_key(holder.claim)[0] == namespace for holder in device.holders)
        )

    devices = of_namespace(pool.devices)
    drawn_on = {name for device in devices for name in device.counter_sets}
    return msgspec.structs.replace(
        pool,
        devices=devices,
        gone=of_namespace(pool.gone),
        counter_sets=tuple(counter_set for counter_set in pool.counter_sets if counter_set.name in drawn_on),
    )


def _counter_sets(pool: Pool, members: Sequence[tuple[str, CounterConsumption]]) -> Iterator[CounterSetUse]:
    drawn: Counter[tuple[str, str]] = Counter()
    states: dict[str, GroupState] = {}
    drawing: dict[str, list[str]] = {}
    for device, entry in members:
        states[entry.counter_set] = state_with(states, entry)
        drawing.setdefault(entry.counter_set, []).append(device)
        for name, amount in entry.counters:
            drawn[entry.counter_set, name] += amount
    physical = (
        entry.counter_set
        for part in pool.published
        for device in part.devices
        for entry in device.consumes_counters
        if entry.synthetic
    )
    for set_name in sorted({*pool.totals, *states, *physical}):
        totals = pool.totals.get(set_name, {})
        state = states.get(set_name)
        yield CounterSetUse(
            name=set_name,
            counters=tuple(
                CounterUse(name=name, total=total, drawn=drawn[set_name, name])
                for name, total in sorted(totals.items())
            ),
            members=tuple(dict.fromkeys(drawing.get(set_name, ()))),
            groups=None if state is None else tuple(sorted(state)),
        )


def _device(
    view: ClusterView,
    published: ResourceSlice,
    device: Device,
    holders: Holders,
    holdings: Sequence[DeviceHolding],
    verdict: DeviceAvailability | None,
) -> DeviceUse:
    device_id = (*published.pool_id, device.name)
    held_by = holders.of_device(device_id)
    frozen = frozen_view(holdings, device)
    differences = snapshot_differences(device, held_by)
    return DeviceUse(
        name=device.name,
        counter_sets=tuple(entry.counter_set for entry in device.consumes_counters),
        draws=tuple((entry.counter_set, entry.counters) for entry in frozen.consumption),
        groups=tuple(
            (entry.counter_set, entry.compatibility_groups)
            for entry in device.consumes_counters
            if entry.compatibility_groups
        ),
        taints=tuple(map(taint_text, device.taints)),
        binding_conditions=device.binding_conditions or (),
        shared=device.allow_multiple_allocations,
        capacity=tuple(_capacity(device, holdings)) if device.allow_multiple_allocations else (),
        holders=tuple(held_device.holder for held_device in held_by),
        shares=tuple(
            ShareUse(claim=holder.claim, share_id=holding.share_id, capacity=holding.consumed_capacity)
            for holder, holding in held_by
            if holding.share_id is not None
        ),
        bound_to=tuple(sorted(bound_nodes(published, device, holdings))),
        conditions=tuple(_conditions(view, device_id, held_by)),
        drift=tuple(dict.fromkeys(difference.counter_set for difference in differences)),
        differences=differences,
        availability="" if verdict is None else verdict.availability.value,
        unusable_because="" if verdict is None else verdict.reason,
    )


def _conditions(view: ClusterView, device: DeviceId, held_by: Sequence[HeldDevice]) -> Iterator[ConditionState]:
    """Yield what is not true yet of the conditions that were frozen with each allocation of the device."""
    for held_device in held_by:
        record = view.ledger.claims.by_key(*split_key(held_device.holder.claim))
        if record is None or held_device.holding.admin or not conditional_devices(record.claim):
            continue
        verdict = view.readiness(record.claim)
        for problem in verdict.problems:
            if problem.device == device:
                yield ConditionState(
                    claim=held_device.holder.claim,
                    conditions=problem.conditions,
                    state=verdict.readiness.value,
                    limit=Moment(verdict.deadline),
                    message=problem.message,
                )


def _capacity(device: Device, holdings: Sequence[DeviceHolding]) -> Iterator[CapacityUse]:
    consumed: Counter[str] = Counter()
    for holding in holdings:
        consumed.update(dict(holding.consumed_capacity))
    for name, capacity in device.capacity:
        yield CapacityUse(name=name, total=capacity.value, taken=consumed[name])
