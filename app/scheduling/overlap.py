from collections.abc import Sequence

from app.ledger.claims import ClaimIndex, ClaimRecord
from app.ledger.slices import SliceIndex
from app.model.allocation import DeviceHolding


def overlapping(record: ClaimRecord, claims: ClaimIndex, slices: SliceIndex) -> DeviceHolding | None:
    """A device of this stored allocation that cannot be this claim's beside what others hold of it; None if there is none.

    That is a device that another claim has whole, or of which the shares take more than there is.

    The watch delivers claim writes in one order.  Called when our own write has just been delivered, an overlap that is known was
    stored earlier, so ours has to yield.
    """
    for holding in record.holdings:
        if holding.admin:
            continue
        rivals = list(claims.usage.pool(holding.pool_id).get(holding.device, ()))
        if holding in rivals:
            rivals.remove(holding)
        if any(_exclude_each_other(holding, rival) for rival in rivals):
            return holding
        if rivals and holding.consumed_capacity and _exceeded(holding, rivals, slices):
            return holding
    return None


def _exclude_each_other(left: DeviceHolding, right: DeviceHolding) -> bool:
    """Two shares go together, and admin access takes nothing; anything else is one device given away twice."""
    return not (left.admin or right.admin) and (left.share_id is None or right.share_id is None)


def _exceeded(holding: DeviceHolding, rivals: Sequence[DeviceHolding], slices: SliceIndex) -> bool:
    """Whether all shares together take more of a capacity than the device has, as published now."""
    totals = dict(holding.consumed_capacity)
    for rival in rivals:
        if not rival.admin:
            for name, amount in rival.consumed_capacity:
                if name in totals:
                    totals[name] += amount
    published = slices.of_pool(holding.pool_id)
    newest = max((each.generation for each in published), default=0)
    return any(
        totals.get(name, 0) > capacity.value
        for each in published
        if each.generation == newest
        for device in each.devices
        if device.name == holding.device
        for name, capacity in device.capacity
    )
