"""What a hold keeps for several placements, of which only one is used."""

from collections.abc import Iterable, Sequence

import msgspec

from dra_extender.model.allocation import ClaimPlacement, DeviceHolding
from dra_extender.model.device import DeviceId


def kept_by(placements: Iterable[ClaimPlacement]) -> Sequence[DeviceHolding]:
    """The least that is enough for any one of these placements of a claim.

    Of a device in shares that is the greatest share that a placement has of it, per capacity, as one holding: a device that
    several nodes reach is not kept once for each.  Devices taken whole are taken once or more often alike.
    """
    found = [placement.holdings for placement in placements]
    if len(found) == 1:
        return found[0]
    if not any(holding.share_id is not None for holdings in found for holding in holdings):
        return [holding for holdings in found for holding in holdings]
    kept: list[DeviceHolding] = []
    shares: dict[DeviceId, dict[int, list[DeviceHolding]]] = {}
    for index, holdings in enumerate(found):
        for holding in holdings:
            if holding.share_id is None or holding.admin:
                kept.append(holding)
            else:
                device_id = (holding.driver, holding.pool, holding.device)
                shares.setdefault(device_id, {}).setdefault(index, []).append(holding)
    for of_device in shares.values():
        kept += _greatest(list(of_device.values()))
    return kept


def _greatest(alternatives: Sequence[Sequence[DeviceHolding]]) -> Sequence[DeviceHolding]:
    """Shares of one device: as they are if only one placement has some, else one that is as great as any of them."""
    if len(alternatives) == 1:
        return alternatives[0]
    most: dict[str, int] = {}
    for shares in alternatives:
        for name, amount in _sums(shares).items():
            most[name] = max(amount, most.get(name, amount))
    # Two placements may have been decided before and after the slice changed, so each snapshot stays.
    distinct = {each.consumption: each for shares in alternatives for each in shares}
    first, *others = distinct.values()
    one = msgspec.structs.replace(first, consumed_capacity=tuple(most.items()))
    return [one, *(msgspec.structs.replace(each, consumed_capacity=()) for each in others)]


def _sums(shares: Iterable[DeviceHolding]) -> dict[str, int]:
    found: dict[str, int] = {}
    for share in shares:
        for name, amount in share.consumed_capacity:
            found[name] = found.get(name, 0) + amount
    return found
