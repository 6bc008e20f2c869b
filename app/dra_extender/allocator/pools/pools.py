from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from typing import NamedTuple

from dra_extender.allocator.pools.completeness import KnownSlices, complete, latest_generation
from dra_extender.allocator.pools.device_order import DeviceOrder, ready_first
from dra_extender.allocator.pools.node_match import is_relevant, reachable_devices
from dra_extender.allocator.pools.validity import (
    CounterTotals,
    InvalidPoolError,
    check_consumption,
    check_device_names,
    counter_totals,
)
from dra_extender.allocator.state.features import Features
from dra_extender.allocator.state.release_rules import OWN, Rules
from dra_extender.model.api_json import ModelError
from dra_extender.model.device import NODE, Device, PoolId
from dra_extender.model.node import Node
from dra_extender.model.rejection import Code
from dra_extender.model.resource_slice import ResourceSlice


@dataclass(frozen=True, slots=True, eq=False)
class Pool:
    """One pool as seen from one node.

    `published` are its device slices of the current generation: those usable from the node by name, then the others in the
    order given. A pool with a `problem` (POOL_INCOMPLETE, POOL_INVALID, GROUPS_OFF, said in `detail`) offers no devices; `hidden`
    is how many its slices for this node have.
    `has_compatibility_rules`: a device of the pool has `compatibleOnlyWith`.  `has_node_rules`: such a rule concerns the devices of
    the whole node.
    """

    pool_id: PoolId
    published: tuple[ResourceSlice, ...] = ()
    totals: CounterTotals = field(default_factory=dict)
    problem: Code | None = None
    detail: str = ""
    has_compatibility_rules: bool = False
    has_node_rules: bool = False
    hidden: int = 0

    @property
    def label(self) -> str:
        """driver/pool, for messages."""
        return f"{self.pool_id[0]}/{self.pool_id[1]}"


@dataclass(frozen=True, slots=True, eq=False)
class SliceView:
    """A slice that offers devices to a node; device i of it has location `base` + i.

    `reachable` has one byte for each device (see `node_match`), or is None when all can be used.
    """

    pool: Pool
    published: ResourceSlice
    base: int
    reachable: bytes | None


class IgnoredSlices(NamedTuple):
    """Slices of a pool that are treated as if they did not exist: why, and how many devices they have."""

    detail: str
    hidden: int


@dataclass(frozen=True, slots=True, eq=False)
class NodePools:
    """The pools of one node in order of preference, and their devices flat in location order.

    A location is an index into `devices` and `views`; the search prefers low locations.  Only complete, valid pools have devices.
    `ignored` tells of slices that do not count, in pools that are sound without them.  `ready_first` is an order of the locations,
    with the devices of each pool that have no binding conditions first; None where that is the order of the locations.
    """

    node: str
    pools: tuple[Pool, ...]
    devices: tuple[Device, ...]
    views: tuple[SliceView, ...]
    features: Features
    ignored: tuple[IgnoredSlices, ...] = ()
    ready_first: DeviceOrder | None = None

    @property
    def unusable(self) -> tuple[Pool, ...]:
        """Pools that are incomplete or invalid."""
        return tuple(pool for pool in self.pools if pool.problem is not None)

    @property
    def hidden(self) -> int:
        """How many devices are not offered because something is wrong with their pool or their slice does not count."""
        return sum(pool.hidden for pool in self.unusable) + sum(each.hidden for each in self.ignored)


def gather(
    node: Node,
    local: Sequence[ResourceSlice],
    shared: Sequence[ResourceSlice],
    pool_slices: Callable[[PoolId], Sequence[ResourceSlice]],
    features: Features,
    rules: Rules = OWN,
) -> NodePools:
    """The pools that a node can use: current generations, complete or marked, valid or marked, in order of preference.

    `local` are the slices pinned to this node, `shared` those without a node name, both in a fixed order; `pool_slices`
    gives all slices of a pool on any node and of any generation.  With compatibility groups off, `rules` may have slices that hold
    a device with groups treated as if they did not exist, as released schedulers do.

    Raises:
        ModelError: a node selector is malformed.
    """
    counts = _always if features.compatibility_groups or rules.grouped_devices_skipped else _without_groups
    partitionable = features.partitionable_devices
    by_pool: dict[PoolId, list[ResourceSlice]] = {}
    ignored: dict[PoolId, list[ResourceSlice]] = {}
    for published in chain(local, shared):
        if not counts(published):
            if _may_concern(published, node, partitionable=partitionable):
                ignored.setdefault(published.pool_id, []).append(published)
        elif is_relevant(published, node, partitionable=partitionable):
            by_pool.setdefault(published.pool_id, []).append(published)
    built: list[tuple[bool, Pool, tuple[ResourceSlice, ...]]] = []
    for pool_id, relevant in by_pool.items():
        known = complete(latest_generation(relevant), partial(pool_slices, pool_id), counts)
        if known is not None:
            built.append(_build(pool_id, known, partitionable=partitionable, rules=rules))
    built.sort(key=lambda entry: (entry[0], entry[1].pool_id))
    for _, pool, _ in built:
        if pool.problem is not None:
            ignored.pop(pool.pool_id, None)
    told = (_ignored(pool_id, slices, by_pool.get(pool_id, ())) for pool_id, slices in sorted(ignored.items()))
    return _flat(node, built, features, tuple(each for each in told if each is not None))


def _build(
    pool_id: PoolId, known: KnownSlices, *, partitionable: bool, rules: Rules
) -> tuple[bool, Pool, tuple[ResourceSlice, ...]]:
    """(waits for binding conditions, pool, slices that offer devices)."""
    hidden = sum(len(each.devices) for each in known.relevant)
    if not known.complete:
        detail = f"pool {pool_id[0]}/{pool_id[1]} has {known.published} of {known.expected} slices"
        problem = Code.POOL_INCOMPLETE
        if known.ignored and known.published + len(known.ignored) == known.expected:
            detail, problem = f"{detail}; {_ignored_message(known.ignored)}", Code.GROUPS_OFF
        return False, Pool(pool_id=pool_id, problem=problem, detail=detail, hidden=hidden), ()
    targeting, elsewhere = known.relevant, known.elsewhere
    totals: CounterTotals = {}
    try:
        if partitionable:
            counting = [each for each in (*targeting, *elsewhere) if each.counter_sets]
            beside = rules.devices_beside_counters
            targeting = tuple(each for each in targeting if _offers(each, beside_counters=beside))
            elsewhere = tuple(each for each in elsewhere if _offers(each, beside_counters=beside))
            check_device_names(targeting)
            totals = counter_totals(counting)
            check_consumption(chain.from_iterable(each.devices for each in (*targeting, *elsewhere)), totals)
        else:
            check_device_names(targeting)
    except InvalidPoolError as problem:
        detail = f"pool {pool_id[0]}/{pool_id[1]}: {problem}"
        return False, Pool(pool_id=pool_id, problem=Code.POOL_INVALID, detail=detail, hidden=hidden), ()
    waits = any(device.binding_conditions is not None for each in targeting for device in each.devices)
    published = targeting + elsewhere
    has_rules = any(device.compatible_only_with is not None for each in published for device in each.devices)
    has_node_rules = has_rules and any(device.neighbours_on == NODE for each in published for device in each.devices)
    pool = Pool(
        pool_id=pool_id,
        published=published,
        totals=totals,
        has_compatibility_rules=has_rules,
        has_node_rules=has_node_rules,
    )
    return waits, pool, targeting


def _offers(published: ResourceSlice, *, beside_counters: bool) -> bool:
    """Whether the devices of a slice count: one with counter sets is a slice of these alone, unless `beside_counters`."""
    return not published.counter_sets or (beside_counters and bool(published.devices))


def _ignored(
    pool_id: PoolId, ignored: Sequence[ResourceSlice], relevant: Sequence[ResourceSlice]
) -> IgnoredSlices | None:
    """What is not there, unless it is out of date in any case."""
    newest = max(each.generation for each in (*ignored, *relevant))
    current = [each for each in ignored if each.generation == newest]
    if not current:
        return None
    text = _ignored_message([each.name for each in current])
    return IgnoredSlices(f"pool {pool_id[0]}/{pool_id[1]}: {text}", sum(len(each.devices) for each in current))


def _ignored_message(names: Sequence[str]) -> str:
    which = f"slice {names[0]}" if len(names) == 1 else f"slice {names[0]} and {len(names) - 1} more"
    return f"ignored for compatibility groups: {which}; CompatibilityGroups is off"


def _flat(
    node: Node,
    built: Sequence[tuple[bool, Pool, tuple[ResourceSlice, ...]]],
    features: Features,
    ignored: tuple[IgnoredSlices, ...],
) -> NodePools:
    pools: list[Pool] = []
    devices: list[Device] = []
    views: list[SliceView] = []
    for _, pool, targeting in built:
        pools.append(pool)
        for published in targeting:
            view = SliceView(
                pool=pool, published=published, base=len(devices), reachable=reachable_devices(published, node)
            )
            devices.extend(published.devices)
            views.extend([view] * len(published.devices))
    return NodePools(
        node=node.name,
        pools=tuple(pools),
        devices=tuple(devices),
        views=tuple(views),
        features=features,
        ignored=ignored,
        ready_first=_ready_first(built),
    )


def _ready_first(built: Sequence[tuple[bool, Pool, tuple[ResourceSlice, ...]]]) -> DeviceOrder | None:
    if not any(waits for waits, _, _ in built):
        return None
    return ready_first([[device for each in targeting for device in each.devices] for _, _, targeting in built])


def _may_concern(published: ResourceSlice, node: Node, *, partitionable: bool) -> bool:
    """Whether the node has to do with a slice that does not count; what is wrong with such a slice does not matter."""
    try:
        return is_relevant(published, node, partitionable=partitionable)
    except ModelError:
        return False


def _always(_published: ResourceSlice) -> bool:
    return True


def _without_groups(published: ResourceSlice) -> bool:
    return not any(entry.compatibility_groups for device in published.devices for entry in device.consumes_counters)
