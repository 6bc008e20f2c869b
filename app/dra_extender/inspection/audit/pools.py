"""What is allocated together and must not be: the allocator's rules over what each pool has in use."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from dra_extender.allocator.rules.compatible_only_with import NeighbourScope, frozen_rules, is_neighbour, scope_of
from dra_extender.allocator.rules.violations import (
    CAPACITY,
    COUNTERS,
    DEVICE,
    GROUPS,
    NODE,
    published_pool,
    usage_violations,
)
from dra_extender.allocator.state.usage import PoolUsage
from dra_extender.cel.device import prepare_device
from dra_extender.cel.errors import CelCompileError, CelRuntimeError
from dra_extender.cel.program import ProgramCache
from dra_extender.inspection.audit.findings import Invariant, InvariantViolation
from dra_extender.inspection.audit.published import newest_generations
from dra_extender.model.allocation import DeviceHolding
from dra_extender.model.api_json import listed
from dra_extender.model.device import Device, DeviceId, PoolId
from dra_extender.model.resource_slice import ResourceSlice

_MOST_CLAIMS: Final = 8
_RULES: Final = {
    DEVICE: Invariant.DEVICE_TWICE,
    CAPACITY: Invariant.CAPACITY_EXCEEDED,
    COUNTERS: Invariant.COUNTER_OVERDRAWN,
    GROUPS: Invariant.GROUPS_CONFLICT,
    NODE: Invariant.TWO_NODES,
}


def pool_violations(
    pool_id: PoolId, slices: Iterable[ResourceSlice], usage: PoolUsage
) -> Iterator[InvariantViolation | None]:
    """Yield devices, shares, capacities and counter sets of a pool that are allocated to more claims than the search allows.

    Amounts and groups count as they were frozen with each allocation, else as the slices have them.  A violation without a detail
    is about the claims that have the device.  None after each device.
    """
    for breach in usage_violations(published_pool(pool_id, slices), usage):
        if breach is None:
            yield None
            continue
        about = "/".join((*pool_id, breach.name))
        yield InvariantViolation(rule=_RULES[breach.kind], about=about, detail=breach.detail)
    for device, holdings in tuple(usage.items()):
        shares = [holding.share_id for holding in holdings if not holding.admin]
        if len(shares) > 1 and all(shares) and len(set(shares)) < len(shares):
            about = "/".join((*pool_id, device))
            yield InvariantViolation(rule=Invariant.SHARE_TWICE, about=about, detail="")
        yield None


def neighbour_violations(
    holdings: Sequence[DeviceHolding], slices: Sequence[ResourceSlice], pools: Iterable[PoolId] | None = None
) -> Iterator[InvariantViolation | None]:
    """Find devices in use beside one that they are not compatible with.  `pools`: of devices in these pools only.

    An expression counts as it was frozen with the allocation, and without a snapshot as the device has it now.  Attributes are
    those published now.  None after each pair of devices.
    """
    current = newest_generations(slices)
    published = {(*part.pool_id, device.name): (part, device) for part in current for device in part.devices}
    holdings_of: dict[DeviceId, list[DeviceHolding]] = {}
    for holding in holdings:
        holdings_of.setdefault(holding.device_id, []).append(holding)
    scopes = _scopes(holdings_of, current, published)
    programs, reported_pools = ProgramCache(), None if pools is None else frozenset(pools)
    for device_id, device_holdings in holdings_of.items():
        for rule in frozen_rules(device_holdings, published[device_id][1] if device_id in published else None):
            for neighbour, scope in scopes.items():
                problem = ""
                if neighbour != device_id and is_neighbour(rule.on, scopes[device_id], scope):
                    problem = _incompatibility(rule.expression, published.get(neighbour), programs)
                if problem and (reported_pools is None or device_id[:2] in reported_pools):
                    detail = f"compatible only with {rule.expression}, {problem} {neighbour[2]}"
                    yield InvariantViolation(rule=Invariant.NEIGHBOURS, about="/".join(device_id), detail=detail)
                yield None


def _scopes(
    holdings_of: Mapping[DeviceId, Sequence[DeviceHolding]],
    current: Sequence[ResourceSlice],
    published: Mapping[DeviceId, tuple[ResourceSlice, Device]],
) -> Mapping[DeviceId, NeighbourScope]:
    """Return where each allocated device is.  A device that is not published any more is where its pool is."""
    nodes: dict[PoolId, set[str | None]] = {}
    for part in current:
        if part.devices:
            nodes.setdefault(part.pool_id, set()).add(part.node_name)
    scopes: dict[DeviceId, NeighbourScope] = {}
    for device_id, device_holdings in holdings_of.items():
        where, live = published.get(device_id, (None, None))
        counter_sets = frozenset(entry.counter_set for holding in device_holdings for entry in holding.drawn(live))
        if where is None or live is None:
            of_pool = nodes.get(device_id[:2], set())
            node = next(iter(of_pool)) if len(of_pool) == 1 else None
            scopes[device_id] = NeighbourScope(device_id[:2], node, counter_sets)
        else:
            scopes[device_id] = scope_of(where, live, counter_sets)
    return scopes


def _incompatibility(expression: str, neighbour: tuple[ResourceSlice, Device] | None, programs: ProgramCache) -> str:
    """Return why it is not true for the other device, as the clause before the device's name; empty if it is true."""
    if neighbour is None:
        return "but no slice publishes"
    part, device = neighbour
    capacity = {name: value.text for name, value in device.capacity}
    facts = prepare_device(part.driver, dict(device.attributes), capacity, device.allow_multiple_allocations)
    try:
        return "" if programs.compile(expression).matches(facts) else "which is false for"
    except (CelCompileError, CelRuntimeError) as problem:
        return f"which cannot be evaluated ({problem}) for"


def claims_text(claims: Iterable[str]) -> str:
    """Return the first claims by name, and how many more there are."""
    return listed(sorted(claims), _MOST_CLAIMS)
