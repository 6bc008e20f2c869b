"""The reservations of pods in allocated claims: added when pods are bound, and released when they are not bound after all."""

import asyncio
from collections.abc import Iterable

import structlog

from dra_extender.allocator.state.reasons import Code, Rejection
from dra_extender.ledger.claim_record import ClaimRecord
from dra_extender.ledger.pods import PodIndex
from dra_extender.model.pod import Pod
from dra_extender.model.resource_claim import MAX_RESERVATIONS, ConsumerReference
from dra_extender.runtime.supervision import BackgroundTask, Supervisor
from dra_extender.scheduling.claims.lookup import FoundClaim
from dra_extender.scheduling.claims.writer import ClaimWriter
from dra_extender.scheduling.ports.errors import RetryableError

_LOG = structlog.get_logger(__name__)
_Request = tuple[ConsumerReference, int, asyncio.Future[None]]


class ClaimReserver:
    """Adds consumers to allocated claims, one update at a time for each claim."""

    def __init__(self, writer: ClaimWriter, supervisor: Supervisor) -> None:
        self._writer = writer
        self._supervisor = supervisor
        self._waiting: dict[str, list[_Request]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def reserve(self, record: ClaimRecord, consumer: ConsumerReference, limit: int) -> None:
        """Return when the claim is reserved for the consumer, and with it for no more than `limit`."""
        uid, future = record.claim.metadata.uid, asyncio.get_running_loop().create_future()
        batch = self._waiting.get(uid)
        if batch is not None:
            batch.append((consumer, limit, future))
        else:
            self._waiting[uid] = [(consumer, limit, future)]
            task = self._supervisor.begin(BackgroundTask.RESERVATIONS, self._write(uid, record))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        await future

    async def _write(self, uid: str, record: ClaimRecord) -> None:
        while batch := self._waiting[uid]:
            self._waiting[uid] = []
            refused: Exception | None = None
            unserved: frozenset[str] = frozenset()
            try:
                unserved = await self._writer.reserve(record, [(consumer, limit) for consumer, limit, _ in batch])
            except Exception as problem:  # noqa: BLE001 - raised to each bind of the batch
                refused = problem
            for consumer, limit, future in batch:
                if future.done():
                    continue
                if refused is not None:
                    future.set_exception(refused)
                elif consumer.uid in unserved:
                    code = Code.CLAIM_CROWDED if limit < MAX_RESERVATIONS else Code.CLAIM_FULLY_RESERVED
                    rejection = Rejection(code=code, detail=record.claim.metadata.full_name)
                    future.set_exception(RetryableError(rejection.text))
                else:
                    future.set_result(None)
        del self._waiting[uid]


class Unreserve:
    """Releases what a pod that is not bound has of a claim, as kube-scheduler's Unreserve does.

    That is its reservation, and the allocation if no other consumer uses it.  What is reserved for the pod's PodGroup stays while
    another member is bound or is being bound.
    """

    def __init__(self, pods: PodIndex, writer: ClaimWriter) -> None:
        self._pods = pods
        self._writer = writer
        self._releasing: set[tuple[str, str]] = set()

    async def release(self, claim: FoundClaim, pod: Pod, guards: frozenset[str] = frozenset()) -> None:
        """Release the pod's part of the claim; do nothing while another member of its gang releases the same claim.

        `guards`: guard claims (UIDs) whose reservations go, too; one that stays keeps the allocation.

        Raises:
            RetryableError: the server could not be written to.
        """
        consumer = claim.consumer
        if self.is_releasing(claim) or (consumer.uid != pod.uid and self._pods.another_runs(pod, consumer.name)):
            return
        self._releasing.add((claim.uid, consumer.uid))
        try:
            await self._writer.release(claim.record, guards | {consumer.uid})
        finally:
            self._releasing.discard((claim.uid, consumer.uid))

    async def release_each(self, claims: Iterable[FoundClaim], pod: Pod) -> None:
        """Release the pod's part of each claim, as far as the server can be written to; what is left is reclaimed later.

        The bind fails for another reason already, which the caller raises.
        """
        for claim in claims:
            try:
                await self.release(claim, pod)
            except RetryableError as problem:
                _LOG.warning("a claim could not be released", claim=claim.name, pod=pod.key, problem=str(problem))

    def is_releasing(self, claim: FoundClaim) -> bool:
        """Return whether the claim is just being released for this consumer."""
        return (claim.uid, claim.consumer.uid) in self._releasing
