"""Conflicts between allocations of different claims, as two schedulers in one cluster can store them.

The API server relates no two claims.  Its watch delivers the writes of claims in one order, the same for every replica.  So of two
conflicting allocations of this program the one delivered later yields.  Another scheduler knows no such rule: until the Binding our
allocation yields to its.  The rule of the search decides what is a conflict (`dra_extender.allocator.rules.verdict`).
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple

from dra_extender.allocator.pools.pools import NodePools, Pool
from dra_extender.allocator.rules.neighbours import IsTrue, first_incompatible
from dra_extender.allocator.rules.verdict import CAPACITY, COUNTERS, NODE, published_pool, verdict
from dra_extender.allocator.state.usage import Usage
from dra_extender.ledger.claim_record import ClaimRecord
from dra_extender.ledger.claims import ClaimIndex
from dra_extender.ledger.slices import SliceIndex
from dra_extender.ledger.usage import Reduced, UsageTable
from dra_extender.model.allocation import DeviceHolding
from dra_extender.model.device import PoolId
from dra_extender.model.snapshot import is_snapshotted

FOREIGN: Final = "foreign"
OWN: Final = "own"
NO_WRITER: Final = "none"
NEIGHBOURS: Final = "neighbours"

PoolOf = Callable[[PoolId], Pool]


class AllocationConflict(NamedTuple):
    """A double allocation: its kind, the device or counter set as driver/pool/name, and the writer of the other allocation.

    `writer` is FOREIGN (another scheduler), OWN (this program, here or in another replica), or NO_WRITER: the slices as
    published now have less than this allocation takes.
    """

    kind: str
    what: str
    writer: str = FOREIGN

    @property
    def text(self) -> str:
        """Describe the conflict, for example `another writer allocated device gpu.example.com/node-1/gpu-0 first`."""
        if self.kind == NODE:
            return f"device {self.what} was bound to another node first"
        if self.writer == FOREIGN:
            return f"another writer allocated {self.kind} {self.what} first"
        if self.kind == NEIGHBOURS:
            return f"device {self.what} is not compatible with devices beside it that were allocated first"
        if self.writer == OWN:
            return f"{self.kind} {self.what} was allocated to another claim of this scheduler first"
        return f"{self.kind} {self.what}: less is published than was allocated"


def pool_reader(slices: SliceIndex, node: NodePools | None = None) -> PoolOf:
    """Return a function that reads pools as the search sees them from this node; others, and pools with a problem, as published."""
    pools = {} if node is None else {pool.pool_id: pool for pool in node.pools if pool.problem is None}

    def pool_of(pool_id: PoolId) -> Pool:
        pool = pools.get(pool_id)
        if pool is None:
            pool = pools[pool_id] = published_pool(pool_id, slices.of_pool(pool_id))
        return pool

    return pool_of


def find_violation(
    holdings: Iterable[DeviceHolding], usage: Usage, pool_of: PoolOf, is_compatible: IsTrue | None = None
) -> AllocationConflict | None:
    """Return the first rule that these holdings violate together with the usage, which does not include them.

    `is_compatible` checks `compatibleOnlyWith` among the devices of one pool; None checks nothing.
    """
    by_pool: dict[PoolId, list[DeviceHolding]] = {}
    for holding in holdings:
        if not holding.admin:
            by_pool.setdefault(holding.pool_id, []).append(holding)
    for pool_id, taken in by_pool.items():
        pool, used = pool_of(pool_id), usage.pool(pool_id)
        violation = verdict(pool, used, taken)
        if violation is not None:
            return AllocationConflict(violation.kind, "/".join((*pool_id, violation.name)))
        if is_compatible is not None and (
            pool.has_compatibility_rules
            or usage.has_compatibility_rules(pool_id)
            or any(holding.compatible_only_with is not None for holding in taken)
        ):
            name = first_incompatible(pool, used, taken, is_compatible)
            if name is not None:
                return AllocationConflict(NEIGHBOURS, "/".join((*pool_id, name)))
    return None


def find_conflict(
    record: ClaimRecord,
    claims: ClaimIndex,
    slices: SliceIndex,
    node: NodePools | None = None,
    is_compatible: IsTrue | None = None,
) -> AllocationConflict | None:
    """Return the conflict of this stored allocation with allocations to which it must yield; None if there is none.

    It yields to foreign allocations, to allocations of this program that were delivered before this one, and to deleted
    claims that pods still use.  Amounts and groups without a snapshot are those of the slices as `node` sees them now.
    """
    holdings, pool_of = record.holdings, pool_reader(slices, node)
    # Almost always there is no conflict with all that is known, which is indexed; only else the writers matter.
    if find_violation(holdings, Reduced(claims.usage, record.counted), pool_of, is_compatible) is None:
        return None
    competing, foreign = UsageTable(), UsageTable()
    for other in _claims_of_same_pools(record, claims):
        is_foreign = not is_snapshotted(other.claim) and other.claim.status.allocation is not None
        is_earlier = is_snapshotted(other.claim) and 0 < other.allocated_version < record.allocated_version
        if is_foreign or other.orphaned or is_earlier:
            competing.add(other.holdings)
        if is_foreign:
            foreign.add(other.holdings)
    conflict = find_violation(holdings, competing, pool_of, is_compatible)
    if conflict is None:
        return None
    for writer, usage in ((NO_WRITER, UsageTable()), (FOREIGN, foreign)):
        cause = find_violation(holdings, usage, pool_of, is_compatible)
        if cause is not None:
            return cause._replace(writer=writer)
    return conflict._replace(writer=OWN)


def find_conflicting_claims(
    record: ClaimRecord, claims: ClaimIndex, slices: SliceIndex
) -> tuple[AllocationConflict, tuple[ClaimRecord, ...]] | None:
    """Return the conflict of this allocation with others, earlier or later ones, and the other claims in it."""
    holdings, pool_of = record.holdings, pool_reader(slices)
    conflict = find_violation(holdings, Reduced(claims.usage, record.counted), pool_of)
    if conflict is None:
        return None
    usage = UsageTable()
    others = []
    for other in _claims_of_same_pools(record, claims):
        alone = UsageTable()
        alone.add(other.holdings)
        usage.add(other.holdings)
        if conflict.kind in (COUNTERS, CAPACITY) or find_violation(holdings, alone, pool_of) is not None:
            others.append(other)
    stored = find_violation(holdings, usage, pool_of)
    return None if stored is None else (stored, tuple(others))


def _claims_of_same_pools(record: ClaimRecord, claims: ClaimIndex) -> Iterator[ClaimRecord]:
    pools = {holding.pool_id for holding in record.holdings}
    for other in claims.counted():
        if other is not record and any(holding.pool_id in pools for holding in other.holdings):
            yield other
