"""Conflicts between allocations of different claims, as two schedulers in one cluster can store them.

The API server relates no two claims.  Its watch delivers the writes of claims in one order, the same for every replica.  So of two
conflicting allocations of this program the one delivered later yields.  Another scheduler knows no such rule: until the Binding our
allocation yields to its.  The rule of the search decides what is a conflict (`dra_extender.allocator.rules.verdict`).
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

from dra_extender.allocator.pools.pools import NodePools, Pool
from dra_extender.allocator.rules.neighbours import IsTrue, first_incompatible
from dra_extender.allocator.rules.verdict import (
    CAPACITY,
    COUNTERS,
    NODE,
    Violation,
    published_pool,
    verdict,
)
from dra_extender.allocator.state.usage import Usage
from dra_extender.ledger.index.claims import ClaimIndex
from dra_extender.ledger.index.slices import SliceIndex
from dra_extender.ledger.state.claim_record import ClaimRecord
from dra_extender.ledger.state.usage import Reduced, UsageTable
from dra_extender.model.allocation import DeviceHolding
from dra_extender.model.device import PoolId
from dra_extender.model.snapshot import is_snapshotted

FOREIGN: Final = "foreign"
OWN: Final = "own"
NO_WRITER: Final = "none"
NEIGHBOURS: Final = "neighbours"

PoolOf = Callable[[PoolId], Pool]


class AllocationConflict(NamedTuple):
    """What is allocated twice: its kind, the device or counter set as driver/pool/name, and the writer of the other allocation.

    `writer` is FOREIGN (another scheduler), OWN (this program, here or in another replica), or NO_WRITER: the slices as
    published now have less than this allocation takes.
    """

    kind: str
    what: str
    writer: str = FOREIGN

    @property
    def text(self) -> str:
        """E.g. `another writer allocated device gpu.example.com/node-1/gpu-0 first`."""
        if self.kind == NODE:
            return f"device {self.what} was bound to another node first"
        if self.writer == FOREIGN:
            return f"another writer allocated {self.kind} {self.what} first"
        if self.kind == NEIGHBOURS:
            return f"device {self.what} is not compatible with devices beside it that were allocated first"
        if self.writer == OWN:
            return f"{self.kind} {self.what} was allocated to another claim of this scheduler first"
        return f"{self.kind} {self.what}: less is published than was allocated"


def pools_of(slices: SliceIndex, node: NodePools | None = None) -> PoolOf:
    """Pools as the search sees them from this node; others, and those with a problem, as published now."""
    seen = {} if node is None else {pool.pool_id: pool for pool in node.pools if pool.problem is None}
    known: dict[PoolId, Pool] = {}

    def pool_of(pool_id: PoolId) -> Pool:
        found = seen.get(pool_id) or known.get(pool_id)
        if found is None:
            found = known[pool_id] = published_pool(pool_id, slices.of_pool(pool_id))
        return found

    return pool_of


def first_violation(
    holdings: Iterable[DeviceHolding], usage: Usage, pool_of: PoolOf, is_compatible: IsTrue | None = None
) -> AllocationConflict | None:
    """The first rule that these holdings violate beside the usage, which does not include them.

    `is_compatible` checks `compatibleOnlyWith` among the devices of one pool, if there is one.
    """
    by_pool: dict[PoolId, list[DeviceHolding]] = {}
    for each in holdings:
        if not each.admin:
            by_pool.setdefault(each.pool_id, []).append(each)
    for pool_id, found in by_pool.items():
        pool = pool_of(pool_id)
        violation = verdict(pool, usage.pool(pool_id), found) or _first_incompatible(pool, usage, found, is_compatible)
        if violation is not None:
            return _conflict(pool_id, violation)
    return None


def _first_incompatible(
    pool: Pool, usage: Usage, found: Sequence[DeviceHolding], is_compatible: IsTrue | None
) -> Violation | None:
    if is_compatible is None or not (
        pool.has_compatibility_rules
        or usage.has_compatibility_rules(pool.pool_id)
        or any(each.compatible_only_with is not None for each in found)
    ):
        return None
    name = first_incompatible(pool, usage.pool(pool.pool_id), found, is_compatible)
    return None if name is None else Violation(NEIGHBOURS, name)


def find_conflict(
    record: ClaimRecord,
    claims: ClaimIndex,
    slices: SliceIndex,
    node: NodePools | None = None,
    is_compatible: IsTrue | None = None,
) -> AllocationConflict | None:
    """The conflict of this stored allocation with allocations to which it must yield; None if there is none.

    Those are foreign allocations, those of this program that the watch has delivered before this one, and those of deleted claims
    that pods still use.  Amounts and groups without a snapshot are those of the slices as published now, as `node` sees them.
    """
    holdings, pool_of = record.holdings, pools_of(slices, node)
    # Almost always there is no conflict with all that is known, which is indexed; only else the writers matter.
    if first_violation(holdings, Reduced(claims.usage, record.counted), pool_of, is_compatible) is None:
        return None
    pools = {each.pool_id for each in holdings}
    competing, foreign = UsageTable(), UsageTable()
    for other in claims.counted():
        if other is record or not any(each.pool_id in pools for each in other.holdings):
            continue
        if _precedes(other, record):
            competing.add(other.holdings)
        if _is_foreign(other):
            foreign.add(other.holdings)
    found = first_violation(holdings, competing, pool_of, is_compatible)
    if found is None:
        return None
    for writer, usage in ((NO_WRITER, UsageTable()), (FOREIGN, foreign)):
        cause = first_violation(holdings, usage, pool_of, is_compatible)
        if cause is not None:
            return cause._replace(writer=writer)
    return found._replace(writer=OWN)


def find_conflicting_claims(
    record: ClaimRecord, claims: ClaimIndex, slices: SliceIndex
) -> tuple[AllocationConflict, tuple[ClaimRecord, ...]] | None:
    """The conflict of this allocation with others, earlier or later ones, and the other claims in it."""
    holdings, pool_of = record.holdings, pools_of(slices)
    found = first_violation(holdings, Reduced(claims.usage, record.counted), pool_of)
    if found is None:
        return None
    usage = UsageTable()
    others = []
    for other in claims.counted():
        if other is record or not any(each.pool_id == own.pool_id for each in other.holdings for own in holdings):
            continue
        other_alone = UsageTable()
        other_alone.add(other.holdings)
        usage.add(other.holdings)
        if found.kind in (COUNTERS, CAPACITY) or first_violation(holdings, other_alone, pool_of) is not None:
            others.append(other)
    stored = first_violation(holdings, usage, pool_of)
    return None if stored is None else (stored, tuple(others))


def _conflict(pool_id: PoolId, violation: Violation) -> AllocationConflict:
    return AllocationConflict(violation.kind, "/".join((*pool_id, violation.name)))


def _is_foreign(record: ClaimRecord) -> bool:
    return not is_snapshotted(record.claim) and record.claim.status.allocation is not None


def _precedes(other: ClaimRecord, record: ClaimRecord) -> bool:
    if other.orphaned or _is_foreign(other):
        return True
    return is_snapshotted(other.claim) and 0 < other.allocated_version < record.allocated_version
