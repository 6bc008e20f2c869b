"""The claims about which no bind may decide now."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from dra_extender.ledger.claim_record import ClaimRecord
from dra_extender.ledger.ledger import Ledger
from dra_extender.ledger.notifier import Notifier
from dra_extender.runtime.supervision import BackgroundTask, Supervisor
from dra_extender.scheduling.claims.writer import ClaimWriter


class BusyClaims:
    """The claims whose allocation is being written or may have been stored, and those that are locked.

    `changed` fires when a write is over and when a lock ends.
    """

    def __init__(self, ledger: Ledger, writer: ClaimWriter, supervisor: Supervisor) -> None:
        self.changed = Notifier()
        self._ledger = ledger
        self._writer = writer
        self._supervisor = supervisor
        self._locked: set[str] = set()
        self._in_doubt: set[asyncio.Task[None]] = set()

    @contextmanager
    def lock_claim(self, claim_uid: str) -> Iterator[None]:
        """Keep binds from deciding about this claim; one that needs it waits for the end of the block."""
        self._locked.add(claim_uid)
        try:
            yield
        finally:
            self._locked.discard(claim_uid)
            self.changed.fire()

    def is_busy(self, record: ClaimRecord) -> bool:
        """Return whether another bind writes the claim, or the claim is locked."""
        return record.pending is not None or record.claim.metadata.uid in self._locked

    def end(self, record: ClaimRecord) -> None:
        """Note that the write of this claim is over, stored or given up."""
        self._ledger.end_pending(record.claim.metadata.uid)
        self.changed.fire()

    def resolve(self, record: ClaimRecord) -> None:
        """Read in the background what the API server stored; until then the allocation stays pending, and no other pod gets it."""
        task = self._supervisor.begin(BackgroundTask.BIND, self._writer.read_stored(record))
        self._in_doubt.add(task)

        def resolved(_: asyncio.Task[None]) -> None:
            self._in_doubt.discard(task)
            self.end(record)

        task.add_done_callback(resolved)

    async def drain(self) -> None:
        """Stop reading what the API server stored; the next process finds it by its watch."""
        for task in tuple(self._in_doubt):
            task.cancel()
        await asyncio.gather(*self._in_doubt, return_exceptions=True)
