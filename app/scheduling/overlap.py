from app.ledger.claims import ClaimIndex, ClaimRecord
from app.model.allocation import DeviceHolding


def overlapping(record: ClaimRecord, claims: ClaimIndex) -> DeviceHolding | None:
    """A device of this stored allocation that another claim holds as well, exclusively on either side; None if there is none.

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
    return None


def _exclude_each_other(left: DeviceHolding, right: DeviceHolding) -> bool:
    """Two shares go together, and admin access takes nothing; anything else is one device given away twice."""
    return not (left.admin or right.admin) and (left.share_id is None or right.share_id is None)
