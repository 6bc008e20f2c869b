"""Reservations of one claim for many pods at once.

Each of hundreds of binds that share a claim has to add its pod to the same list, and every write but one would meet a conflict.
So they go together: while one update is under way, those that come are gathered for the next.
"""

import asyncio

from dra_extender.ledger.state.claim_record import ClaimRecord
from dra_extender.model.rejection import Code, Rejection
from dra_extender.model.resource_claim import MAX_RESERVATIONS, ConsumerReference
from dra_extender.runtime.supervision import BackgroundTask, Supervisor
from dra_extender.scheduling.claims.writer import ClaimWriting
from dra_extender.scheduling.ports.errors import RetryableError

Waiting = tuple[ConsumerReference, int, asyncio.Future[None]]


class Reservations:
    """Adds consumers to allocated claims, one update at a time for each claim."""

    def __init__(self, writing: ClaimWriting, supervisor: Supervisor) -> None:
        self._writing = writing
        self._supervisor = supervisor
        self._waiting: dict[str, list[Waiting]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def reserve(self, record: ClaimRecord, consumer: ConsumerReference, most: int = MAX_RESERVATIONS) -> None:
        """Return when the claim is reserved for the consumer, and with it for no more than `most`.

        Raises:
            RetryableError: it is reserved by as many as can be, deleted, or not allocated any more; or the API server refused a
                write.
        """
        uid, done = record.claim.metadata.uid, asyncio.get_running_loop().create_future()
        gathered = self._waiting.get(uid)
        if gathered is not None:
            gathered.append((consumer, most, done))
        else:
            self._waiting[uid] = [(consumer, most, done)]
            task = self._supervisor.begin(BackgroundTask.RESERVATIONS, self._write(uid, record))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        await done

    async def _write(self, uid: str, record: ClaimRecord) -> None:
        """Write until nobody waits any more."""
        while batch := self._waiting[uid]:
            self._waiting[uid] = []
            try:
                await self._write_batch(record, batch)
            except Exception as problem:  # noqa: BLE001 - whoever waits for it hears of it
                _fail([done for _, _, done in batch], problem)
        del self._waiting[uid]

    async def _write_batch(self, record: ClaimRecord, batch: list[Waiting]) -> None:
        without = await self._writing.reserve(record, [(consumer, most) for consumer, most, _ in batch])
        for consumer, most, done in batch:
            if consumer.uid in without:
                code = Code.CLAIM_CROWDED if most < MAX_RESERVATIONS else Code.CLAIM_FULLY_RESERVED
                _fail([done], RetryableError(Rejection(code=code, detail="/".join(record.claim.metadata.key)).text))
        for _, _, done in batch:
            if not done.done():
                done.set_result(None)


def _fail(waiting: list[asyncio.Future[None]], problem: Exception) -> None:
    for done in waiting:
        if not done.done():
            done.set_exception(problem)
