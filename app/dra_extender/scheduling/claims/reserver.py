"""Reservations of one claim for many pods in one update.

Each of hundreds of binds that share a claim adds its pod to the same list; written one by one, all but one would meet a conflict.
So reservations that come while one update is in flight are batched for the next.
"""

import asyncio

from dra_extender.allocator.state.rejection import Code, Rejection
from dra_extender.ledger.state.claim_record import ClaimRecord
from dra_extender.model.resource_claim import MAX_RESERVATIONS, ConsumerReference
from dra_extender.runtime.supervision import BackgroundTask, Supervisor
from dra_extender.scheduling.claims.writer import ClaimWriter
from dra_extender.scheduling.ports.errors import RetryableError

_Request = tuple[ConsumerReference, int, asyncio.Future[None]]


class ClaimReserver:
    """Adds consumers to allocated claims, one update at a time for each claim."""

    def __init__(self, writing: ClaimWriter, supervisor: Supervisor) -> None:
        self._writing = writing
        self._supervisor = supervisor
        self._waiting: dict[str, list[_Request]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def reserve(self, record: ClaimRecord, consumer: ConsumerReference, most: int = MAX_RESERVATIONS) -> None:
        """Return when the claim is reserved for the consumer, and with it for no more than `most`.

        Raises:
            RetryableError: it is reserved by as many as can be, deleted, or not allocated any more; or the API server refused a
                write.
        """
        uid, done = record.claim.metadata.uid, asyncio.get_running_loop().create_future()
        batch = self._waiting.get(uid)
        if batch is not None:
            batch.append((consumer, most, done))
        else:
            self._waiting[uid] = [(consumer, most, done)]
            task = self._supervisor.begin(BackgroundTask.RESERVATIONS, self._write(uid, record))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        await done

    async def _write(self, uid: str, record: ClaimRecord) -> None:
        """Write one batch after the other until none waits any more."""
        while batch := self._waiting[uid]:
            self._waiting[uid] = []
            try:
                await self._write_batch(record, batch)
            except Exception as problem:  # noqa: BLE001 - raised to each bind of the batch
                _fail([done for _, _, done in batch], problem)
        del self._waiting[uid]

    async def _write_batch(self, record: ClaimRecord, batch: list[_Request]) -> None:
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
