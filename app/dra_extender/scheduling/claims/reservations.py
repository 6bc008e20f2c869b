"""Reservations of allocated claims: many pods in one update."""

import asyncio

from dra_extender.allocator.state.reasons import Code, Rejection
from dra_extender.ledger.claim_record import ClaimRecord
from dra_extender.model.resource_claim import MAX_RESERVATIONS, ConsumerReference
from dra_extender.runtime.supervision import BackgroundTask, Supervisor
from dra_extender.scheduling.claims.writer import ClaimWriter
from dra_extender.scheduling.ports.errors import RetryableError

_Request = tuple[ConsumerReference, int, asyncio.Future[None]]


class ClaimReserver:
    """Adds consumers to allocated claims, one update at a time for each claim."""

    def __init__(self, writer: ClaimWriter, supervisor: Supervisor) -> None:
        self._writer = writer
        self._supervisor = supervisor
        self._waiting: dict[str, list[_Request]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def reserve(self, record: ClaimRecord, consumer: ConsumerReference, most: int = MAX_RESERVATIONS) -> None:
        """Return when the claim is reserved for the consumer, and with it for no more than `most`."""
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
        while batch := self._waiting[uid]:
            self._waiting[uid] = []
            refused: Exception | None = None
            without: frozenset[str] = frozenset()
            try:
                without = await self._writer.reserve(record, [(consumer, most) for consumer, most, _ in batch])
            except Exception as problem:  # noqa: BLE001 - raised to each bind of the batch
                refused = problem
            for consumer, most, done in batch:
                if done.done():
                    continue
                if refused is not None:
                    done.set_exception(refused)
                elif consumer.uid in without:
                    code = Code.CLAIM_CROWDED if most < MAX_RESERVATIONS else Code.CLAIM_FULLY_RESERVED
                    rejection = Rejection(code=code, detail="/".join(record.claim.metadata.key))
                    done.set_exception(RetryableError(rejection.text))
                else:
                    done.set_result(None)
        del self._waiting[uid]


class ClaimReleasedError(RetryableError):
    """The pod's devices, or some of them, were released: it is not going to that node any more."""
