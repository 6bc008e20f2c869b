"""What another writer allocated beside us (two schedulers in one cluster): the API server relates no two claims.

Its watch delivers the writes of claims in one order, which every replica sees alike.  So of two overlapping allocations of this
program the one delivered later yields.  A foreign scheduler knows no such rule: until the Binding ours always yields to its.
"""

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from app.allocator.compatibility import GroupState, admits, folded
from app.allocator.occupancy import held_consumption
from app.allocator.state import PoolId, PoolUsage
from app.ledger.claim_record import ClaimRecord
from app.ledger.claims import ClaimIndex
from app.ledger.slices import SliceIndex
from app.ledger.usage import UsageTable
from app.model.allocation import DeviceHolding
from app.model.device import CounterConsumption
from app.model.resource_slice import ResourceSlice
from app.model.snapshot import is_snapshotted

DEVICE: Final = "device"
CAPACITY: Final = "capacity"
COUNTERS: Final = "counters"
GROUPS: Final = "groups"


class Overlap(NamedTuple):
    """What is given away twice: the kind, and the device or counter set as driver/pool/name."""

    kind: str
    what: str


def overlap(record: ClaimRecord, claims: ClaimIndex, slices: SliceIndex) -> Overlap | None:
    """What this stored allocation cannot have beside what others hold that it must yield to; None if all is well.

    Those are foreign allocations, those of this program that the watch has delivered before this one, and those of deleted claims
    that pods still use.  Amounts and groups
    without a snapshot are those of the slices as published now.
    """
    holdings = [each for each in record.holdings if not each.admin]
    # Almost always there is no trouble even with everything that is known, which is indexed; only else it matters whose it is.
    if _first(holdings, claims.usage, slices) is None:
        return None
    pools = {each.pool_id for each in holdings}
    rivals = UsageTable()
    rivals.add(record.holdings)
    for other in claims.counted():
        if other is not record and any(each.pool_id in pools for each in other.holdings) and _precedes(other, record):
            rivals.add(other.holdings)
    return _first(holdings, rivals, slices)


def overlapped(
    record: ClaimRecord, claims: ClaimIndex, slices: SliceIndex
) -> tuple[Overlap, tuple[ClaimRecord, ...]] | None:
    """What this allocation and others give away twice, whoever was first, and the other claims with devices in the same pools."""
    holdings = [each for each in record.holdings if not each.admin]
    found = _first(holdings, claims.usage, slices)
    if found is None:
        return None
    usage = UsageTable()
    usage.add(record.holdings)
    others = []
    for other in claims.counted():
        if other is record or not any(each.pool_id == mine.pool_id for each in other.holdings for mine in holdings):
            continue
        pair = UsageTable()
        pair.add((*record.holdings, *other.holdings))
        usage.add(other.holdings)
        if found.kind in (COUNTERS, CAPACITY) or _first(holdings, pair, slices) is not None:
            others.append(other)
    stored = _first(holdings, usage, slices)
    return None if stored is None else (stored, tuple(others))


def _precedes(other: ClaimRecord, record: ClaimRecord) -> bool:
    if other.orphaned:
        return True
    if not is_snapshotted(other.claim):
        return other.claim.status.allocation is not None
    return 0 < other.allocated_version < record.allocated_version


def _first(holdings: Sequence[DeviceHolding], usage: UsageTable, slices: SliceIndex) -> Overlap | None:
    """The first thing that these holdings, which are part of the usage, have too much of."""
    for holding in holdings:
        rivals = [each for each in usage.pool(holding.pool_id).get(holding.device, ()) if not each.admin]
        if holding in rivals:
            rivals.remove(holding)
        name = f"{holding.driver}/{holding.pool}/{holding.device}"
        if any(holding.share_id is None or each.share_id is None for each in rivals):
            return Overlap(DEVICE, name)
        if rivals and holding.consumed_capacity and _exceeded(holding, rivals, slices):
            return Overlap(CAPACITY, name)
    drawing = [each for each in holdings if each.consumption is None or each.consumption]
    for pool_id in dict.fromkeys(each.pool_id for each in drawing):
        found = _in_pool(pool_id, [each for each in drawing if each.pool_id == pool_id], usage.pool(pool_id), slices)
        if found is not None:
            return found
    return None


def _exceeded(holding: DeviceHolding, rivals: Sequence[DeviceHolding], slices: SliceIndex) -> bool:
    """Whether all shares together take more of a capacity than the device has, as published now."""
    totals = dict(holding.consumed_capacity)
    for rival in rivals:
        for name, amount in rival.consumed_capacity:
            if name in totals:
                totals[name] += amount
    return any(
        totals.get(name, 0) > capacity.value
        for each in _current(slices, holding.pool_id)
        for device in each.devices
        if device.name == holding.device
        for name, capacity in device.capacity
    )


def _in_pool(
    pool_id: PoolId, holdings: Sequence[DeviceHolding], usage: PoolUsage, slices: SliceIndex
) -> Overlap | None:
    """Counters that are overdrawn, and groups in conflict, on the counter sets that these holdings draw on."""
    published = _current(slices, pool_id)
    mine = {each.device: (each,) for each in holdings}
    ours = {entry.counter_set for _, entry in held_consumption(published, mine)}
    if not ours:
        return None
    drawn = [each for _, each in held_consumption(published, usage) if each.counter_set in ours]
    for counter_set in sorted(ours):
        entries = [each for each in drawn if each.counter_set == counter_set]
        what = "/".join((*pool_id, counter_set))
        if _overdrawn(entries, counter_set, published):
            return Overlap(COUNTERS, what)
        if _in_conflict(entries):
            return Overlap(GROUPS, what)
    return None


def _overdrawn(entries: Iterable[CounterConsumption], counter_set: str, published: Sequence[ResourceSlice]) -> bool:
    totals = {
        name: amount
        for each in published
        for found in each.counter_sets
        if found.name == counter_set
        for name, amount in found.counters
    }
    sums: dict[str, int] = {}
    for entry in entries:
        for name, amount in entry.counters:
            sums[name] = sums.get(name, 0) + amount
    return any(name in totals and amount > totals[name] for name, amount in sums.items())


def _in_conflict(entries: Iterable[CounterConsumption]) -> bool:
    """Whether some member would not be admitted after the others.  Groups, if any, go first: the others' order does not matter."""
    states: dict[str, GroupState] = {}
    for entry in sorted(entries, key=lambda each: not each.compatibility_groups):
        if not admits(states, entry):
            return True
        states[entry.counter_set] = folded(states, entry)
    return False


def _current(slices: SliceIndex, pool_id: PoolId) -> Sequence[ResourceSlice]:
    """The slices of the pool's newest generation."""
    published = slices.of_pool(pool_id)
    newest = max((each.generation for each in published), default=0)
    return [each for each in published if each.generation == newest]
