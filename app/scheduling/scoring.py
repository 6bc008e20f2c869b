from typing import Final

from app.allocator.state import PoolId, Usage
from app.ledger.slices import SliceIndex
from app.model.allocation import DeviceHolding, Placement
from app.model.device import CounterConsumption

BEST: Final = 10


def draws_on_counters(placement: Placement) -> bool:
    """Whether this placement can score anything but 0."""
    return any(holding.consumption for claim in placement.claims for holding in claim.holdings)


def packing_score(placement: Placement, usage: Usage, slices: SliceIndex) -> int:
    """0 to 10: the share of the counter sets this placement draws on that somebody draws on already.

    A partition next to other partitions keeps the remaining devices whole.  A placement without counters scores 0 everywhere.
    """
    wanted: dict[PoolId, set[str]] = {}
    for claim in placement.claims:
        for holding in claim.holdings:
            for consumption in holding.consumption or ():
                wanted.setdefault(holding.pool_id, set()).add(consumption.counter_set)
    total = sum(len(sets) for sets in wanted.values())
    if not total:
        return 0
    opened = sum(len(sets & _drawn(pool_id, usage, slices)) for pool_id, sets in wanted.items())
    return BEST * opened // total


def _drawn(pool_id: PoolId, usage: Usage, slices: SliceIndex) -> set[str]:
    held = usage.pool(pool_id)
    if not held:
        return set()
    published: dict[str, tuple[CounterConsumption, ...]] = {}
    if any(each.consumption is None for holdings in held.values() for each in holdings):
        published = {
            device.name: device.consumes_counters for item in slices.of_pool(pool_id) for device in item.devices
        }
    return {
        consumption.counter_set
        for holdings in held.values()
        for holding in holdings
        for consumption in _consumption(holding, published)
    }


def _consumption(
    holding: DeviceHolding, published: dict[str, tuple[CounterConsumption, ...]]
) -> tuple[CounterConsumption, ...]:
    if holding.consumption is not None:
        return holding.consumption
    return published.get(holding.device, ())
