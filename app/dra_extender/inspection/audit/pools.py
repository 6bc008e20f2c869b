"""What is allocated together and must not be: the allocator's rules over what each pool has in use."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from dra_extender.allocator.rules.compatible_only_with import NeighbourScope, Rule, frozen_rules, is_neighbour, scope_of
from dra_extender.allocator.rules.verdict import (
    CAPACITY,
    COUNTERS,
    DEVICE,
    GROUPS,
    NODE,
    contradiction_steps,
    published_pool,
)
from dra_extender.allocator.state.usage import PoolUsage
from dra_extender.cel.device import prepare_device
from dra_extender.cel.errors import CelCompileError, CelRuntimeError
from dra_extender.cel.program import ProgramCache
from dra_extender.inspection.audit.findings import (
    CAPACITY_EXCEEDED,
    COUNTER_OVERDRAWN,
    DEVICE_TWICE,
    GROUPS_CONFLICT,
    NEIGHBOURS,
    SHARE_TWICE,
    TWO_NODES,
    InvariantViolation,
)
from dra_extender.model.allocation import DeviceHolding
from dra_extender.model.api_json import listed
from dra_extender.model.device import Device, DeviceId, PoolId
from dra_extender.model.resource_slice import ResourceSlice

_MOST_CLAIMS: Final = 8
_RULES: Final = {
    DEVICE: DEVICE_TWICE,
    CAPACITY: CAPACITY_EXCEEDED,
    COUNTERS: COUNTER_OVERDRAWN,
    GROUPS: GROUPS_CONFLICT,
    NODE: TWO_NODES,
}


def pool_violations(
    pool_id: PoolId, slices: Iterable[ResourceSlice], usage: PoolUsage
) -> Iterator[InvariantViolation | None]:
    """Yield devices, shares, capacities and counter sets of a pool that are allocated to more claims than the search allows.

    Amounts and groups count as they were frozen with each allocation, else as the slices have them.  A violation without a detail
    is about the claims that have the device.  None after each device.
    """
    for breach in contradiction_steps(published_pool(pool_id, slices), usage):
        if breach is None:
            yield None
            continue
        about = "/".join((*pool_id, breach.name))
        yield InvariantViolation(rule=_RULES[breach.kind], about=about, detail=breach.detail)
    for device, holdings in tuple(usage.items()):
        shares = [holding.share_id for holding in holdings if not holding.admin]
        if len(shares) > 1 and all(shares) and len(set(shares)) < len(shares):
            about = "/".join((*pool_id, device))
            yield InvariantViolation(rule=SHARE_TWICE, about=about, detail="")
        yield None


def neighbour_violations(
    holdings: Sequence[DeviceHolding], slices: Sequence[ResourceSlice], pools: Iterable[PoolId] | None = None
) -> Iterator[InvariantViolation | None]:
    """Per counter set, pool and node: every holder is compatible with every other.  `pools`: of devices in these pools only.

    None after each pair of devices.
    """
    published = by_id(_current(slices))
    wanted = None if pools is None else frozenset(pools)

    def sets_of(holding: DeviceHolding) -> Iterable[str]:
        live = published.get((holding.driver, holding.pool, holding.device))
        return (entry.counter_set for entry in holding.drawn(None if live is None else live.device))

    for found in incompatible_neighbours(holdings, published, sets_of):
        if found is not None and (wanted is None or found.device_id[:2] in wanted):
            yield InvariantViolation(rule=NEIGHBOURS, about="/".join(found.device_id), detail=found.detail)
        else:
            yield None


def claims_text(claims: Iterable[str]) -> str:
    """Return the first claims by name, and how many more there are."""
    return listed(sorted(claims), _MOST_CLAIMS)


def _current(slices: Sequence[ResourceSlice]) -> list[ResourceSlice]:
    newest: dict[PoolId, int] = {}
    for published in slices:
        newest[published.pool_id] = max(newest.get(published.pool_id, 0), published.generation)
    return [published for published in slices if published.generation == newest[published.pool_id]]


class PublishedNow(NamedTuple):
    """A device, and the slice that publishes it now."""

    device: Device
    where: ResourceSlice


class IncompatibleNeighbour(NamedTuple):
    """A device whose `compatibleOnlyWith` is not true for a neighbour, and a sentence that says why."""

    device_id: DeviceId
    detail: str


def incompatible_neighbours(
    holdings: Iterable[DeviceHolding],
    published: Mapping[DeviceId, PublishedNow],
    sets_of: Callable[[DeviceHolding], Iterable[str]],
) -> Iterator[IncompatibleNeighbour | None]:
    """Yield each pair of neighbours in which the expression of one is not true for the other; None after each pair of devices.

    An expression counts as it was frozen with the allocation, and without a snapshot as the device has it now.  Attributes are
    those published now.  `sets_of` names the counter sets and physical devices that a holding draws on.
    """
    held: dict[DeviceId, list[DeviceHolding]] = {}
    for holding in holdings:
        held.setdefault((holding.driver, holding.pool, holding.device), []).append(holding)
    nodes = _nodes_of_pools(published)
    devices = {
        device_id: _held_device(device_id, found, published, nodes, sets_of) for device_id, found in held.items()
    }
    programs = ProgramCache()
    for device_id, rule in (
        (device_id, rule) for device_id, held_device in devices.items() for rule in held_device.rules
    ):
        scope = devices[device_id].scope
        for other, its in devices.items():
            if other != device_id and is_neighbour(rule.on, scope, its.scope):
                problem = _incompatibility(rule.expression, published.get(other), programs)
                if problem:
                    detail = f"compatible only with {rule.expression}, {problem} {other[2]}"
                    yield IncompatibleNeighbour(device_id, detail)
            yield None


class _HeldDevice(NamedTuple):
    rules: tuple[Rule, ...]
    scope: NeighbourScope


def _held_device(
    device_id: DeviceId,
    holdings: Sequence[DeviceHolding],
    published: Mapping[DeviceId, PublishedNow],
    nodes: Mapping[PoolId, str | None],
    sets_of: Callable[[DeviceHolding], Iterable[str]],
) -> _HeldDevice:
    """Return the rules of an allocated device, and where it is.  A device that is not published any more is where its pool is."""
    live, pool_id = published.get(device_id), (device_id[0], device_id[1])
    counter_sets = frozenset(name for holding in holdings for name in sets_of(holding))
    if live is None:
        return _HeldDevice(frozen_rules(holdings, None), NeighbourScope(pool_id, nodes.get(pool_id), counter_sets))
    return _HeldDevice(frozen_rules(holdings, live.device), scope_of(live.where, live.device, counter_sets))


def _nodes_of_pools(published: Mapping[DeviceId, PublishedNow]) -> Mapping[PoolId, str | None]:
    nodes: dict[PoolId, set[str | None]] = {}
    for (driver, pool, _), found in published.items():
        nodes.setdefault((driver, pool), set()).add(found.where.node_name)
    return {pool_id: next(iter(found)) for pool_id, found in nodes.items() if len(found) == 1}


def by_id(slices: Sequence[ResourceSlice]) -> dict[DeviceId, PublishedNow]:
    return {
        (published.driver, published.pool, device.name): PublishedNow(device, published)
        for published in slices
        for device in published.devices
    }


def _incompatibility(expression: str, other: PublishedNow | None, programs: ProgramCache) -> str:
    """Return why it is not true for the other device, as the clause before the device's name; empty if it is true."""
    if other is None:
        return "but no slice publishes"
    device = other.device
    capacity = {name: each.text for name, each in device.capacity}
    facts = prepare_device(other.where.driver, dict(device.attributes), capacity, device.allow_multiple_allocations)
    try:
        return "" if programs.compile(expression).matches(facts) else "which is false for"
    except (CelCompileError, CelRuntimeError) as problem:
        return f"which cannot be evaluated ({problem}) for"
