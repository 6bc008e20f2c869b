"""What is allocated together and must not be: the allocator's rule (`allocator.rules.verdict`) over what each pool has in use."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

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
from dra_extender.audit.compatibility import by_id, incompatible_neighbours
from dra_extender.audit.findings import (
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
from dra_extender.model.device import PoolId
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
    """Devices, shares, capacities and counter sets of a pool that are allocated to more claims than the search allows.

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
        shares = [each.share_id for each in holdings if not each.admin]
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
    """The first claims by name, and how many more there are."""
    return listed(sorted(claims), _MOST_CLAIMS)


def _current(slices: Sequence[ResourceSlice]) -> list[ResourceSlice]:
    """The slices of the newest generation of each pool."""
    newest: dict[PoolId, int] = {}
    for each in slices:
        newest[each.pool_id] = max(newest.get(each.pool_id, 0), each.generation)
    return [each for each in slices if each.generation == newest[each.pool_id]]
