"""Which claims no bind may decide about now: their allocation is being written, its fate is unknown, or reclaim has them locked."""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from dra_extender.ledger.ledger import Ledger
from dra_extender.ledger.state.claim_record import ClaimRecord
from dra_extender.ledger.state.notifier import Notifier
from dra_extender.runtime.supervision import BackgroundTask, Supervisor
from dra_extender.scheduling.claims.lookup import FoundClaim
from dra_extender.scheduling.claims.writer import ClaimWriter


class PendingClaims:
    """Ends pending allocations when their write is over, and locks claims against decisions; `changed` fires after either."""

    def __init__(self, ledger: Ledger, writer: ClaimWriter, supervisor: Supervisor) -> None:
        self.changed = Notifier()
        self._ledger = ledger
        self._writer = writer
        self._supervisor = supervisor
        self._locked: set[str] = set()
        self._in_doubt: dict[str, asyncio.Task[None]] = {}

    @contextmanager
    def lock_claim(self, claim_uid: str) -> Iterator[None]:
        """Inside, no bind decides about this claim; one that needs it waits for the end of the block."""
        self._locked.add(claim_uid)
        try:
            yield
        finally:
            self._locked.discard(claim_uid)
            self.changed.fire()

    def is_busy(self, record: ClaimRecord) -> bool:
        """Whether another bind writes the claim, or the claim is locked."""
        return record.pending is not None or record.claim.metadata.uid in self._locked

    def end(self, record: ClaimRecord) -> None:
        """The write of this claim is over, stored or given up."""
        self._ledger.end_pending(record.claim.metadata.uid)
        self.changed.fire()

    def end_unwritten(self, claims: Sequence[FoundClaim]) -> None:
        """Give up what is still pending of these claims, except allocations that may be stored (`resolve`)."""
        for each in claims:
            if each.record.pending is not None and each.record.claim.metadata.uid not in self._in_doubt:
                self.end(each.record)

    def resolve(self, record: ClaimRecord) -> None:
        """Read in the background what the API server stored; until then the allocation stays pending, and no other pod gets it."""
        uid = record.claim.metadata.uid
        task = self._in_doubt[uid] = self._supervisor.begin(BackgroundTask.BIND, self._writer.read_stored(record))

        def resolved(_: asyncio.Task[None]) -> None:
            del self._in_doubt[uid]
            self.end(record)

        task.add_done_callback(resolved)

    async def drain(self) -> None:
        """Stop reading what the API server stored; the next process finds it by its watch."""
        for task in tuple(self._in_doubt.values()):
            task.cancel()
        await asyncio.gather(*self._in_doubt.values(), return_exceptions=True)
