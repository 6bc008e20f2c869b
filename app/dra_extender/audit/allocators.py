"""Two allocators at work: another scheduler and this program allocate devices of one pool in turns."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from dra_extender.audit.findings import AuditFinding, Check, finding
from dra_extender.ledger.state.claim_record import ClaimRecord
from dra_extender.model.device import PoolId
from dra_extender.model.metadata import seconds_of
from dra_extender.model.snapshot import allocated_at, is_snapshotted


class _Writer:
    """The allocations of one writer in one pool: how many, and between which times they were made for certain."""

    __slots__ = ("claims", "first_ended", "last_began")

    def __init__(self) -> None:
        self.claims: list[str] = []
        self.first_ended: float | None = None
        self.last_began: float | None = None

    def add(self, name: str, times: "_Times") -> None:
        """Count an allocation."""
        self.claims.append(name)
        if times.latest is not None and (self.first_ended is None or times.latest < self.first_ended):
            self.first_ended = times.latest
        if times.earliest is not None and (self.last_began is None or times.earliest > self.last_began):
            self.last_began = times.earliest

    def went_on_after(self, other: "_Writer") -> bool:
        """Whether it made an allocation after one of the other."""
        began, ended = self.last_began, other.first_ended
        return began is not None and ended is not None and began > ended


class _Times(NamedTuple):
    """Bounds of the time of an allocation, None where there is none."""

    earliest: float | None
    latest: float | None


def two_allocators(records: Iterable[ClaimRecord]) -> Iterator[AuditFinding | None]:
    """A finding for each pool in which this program and another scheduler each allocated after the other had begun.

    Allocations that one of them left when the other took over are no finding: they are all older.  What this program allocates has
    its snapshot.  An allocation without a time is younger than its claim, and its end is not known.  None after each step.
    """
    pools: dict[PoolId, tuple[_Writer, _Writer]] = {}
    for record in records:
        if record.claim.status.allocation is not None:
            side, times = int(is_snapshotted(record.claim)), _times(record)
            name = "/".join(record.claim.metadata.key)
            for pool_id in {each.pool_id for each in record.holdings if not each.admin}:
                pools.setdefault(pool_id, (_Writer(), _Writer()))[side].add(name, times)
        yield None
    for pool_id, (foreign, own) in pools.items():
        if foreign.went_on_after(own) and own.went_on_after(foreign):
            detail = (
                f"dra-extender allocated {len(own.claims)} claims and another scheduler {len(foreign.claims)}, in turns; "
                f"the first by name are {min(own.claims)} and {min(foreign.claims)}"
            )
            yield finding(Check.TWO_ALLOCATORS, f"pool {'/'.join(pool_id)}", detail)
        yield None


def _times(record: ClaimRecord) -> _Times:
    allocated = seconds_of(allocated_at(record.claim))
    if allocated is not None:
        return _Times(allocated, allocated)
    return _Times(seconds_of(record.claim.metadata.creation_timestamp), None)
