"""Reads of claims from the API server during a call: specs that the ledger does not keep, and claims that it lacks."""

import asyncio
from collections.abc import Mapping
from typing import Final, Literal, NamedTuple

from dra_extender.ledger.claim_record import ClaimRecord
from dra_extender.ledger.ledger import Ledger
from dra_extender.model.api_json import ModelError
from dra_extender.model.pod import Pod
from dra_extender.runtime.token_bucket import TokenBuckets
from dra_extender.scheduling.claims.lookup import claim_names
from dra_extender.scheduling.ports.cluster import Claims, ClusterError, NotFoundError
from dra_extender.scheduling.ports.errors import SHARE_USED_UP, RetryableError
from dra_extender.scheduling.ports.options import Options
from dra_extender.scheduling.time_slices import Awaited, CallBudget, TimeSlices
from dra_extender.telemetry.metrics import Metrics

READS: Final = 16
"""Claims that are read from the API server at the same time; further reads wait for their turn."""
_MOST_SECONDS: Final = 2.0
_LEAST_SECONDS: Final = 0.5


class UnreadSpecs(NamedTuple):
    """Claims whose specs the ledger does not keep: they have to be read from the API server before a decision."""

    records: tuple[ClaimRecord, ...]

    def __str__(self) -> str:
        return ", ".join(record.claim.metadata.full_name for record in self.records)


class SpecReader:
    """Reads the specs that the ledger does not keep because the claims of their namespace take too much.

    Status and metadata are those of the watch in any case.  The spec is immutable: whenever it was read, it is the claim's if UID
    and digest are the same.
    """

    def __init__(self, ledger: Ledger, claims: Claims, metrics: Metrics, time_slices: TimeSlices) -> None:
        self._ledger = ledger
        self.time_slices = time_slices
        self._claims = claims
        self._metrics = metrics
        self._turns = asyncio.Semaphore(READS)

    async def wait_for(
        self, pod: Pod, awaited: Literal[Awaited.TIME_SLICE] | UnreadSpecs, budget: CallBudget
    ) -> Mapping[str, bytes]:
        """Wait for what an unfinished decision of a call about this pod lacks; a slice of time begins after that."""
        if awaited is Awaited.TIME_SLICE:
            if not await self.time_slices.next(pod, budget):
                raise RetryableError(f"pod {pod.key}: {SHARE_USED_UP}")
            return {}
        self.time_slices.interrupt(pod, budget)
        live = await self.read(awaited, budget)
        self.time_slices.reopen(pod, budget)
        return live

    async def read(self, unread: UnreadSpecs, budget: CallBudget) -> Mapping[str, bytes]:
        """Read these claims; then the decision can be made again.  Returns the live objects by UID."""
        uids = {record.claim.metadata.uid for record in unread.records}
        if uids & budget.read_again:
            raise RetryableError(f"claim {unread}: the claims of one pod are too large to be read again together")
        budget.read_again |= uids
        seconds = max(_LEAST_SECONDS, min(_MOST_SECONDS, budget.seconds_left))
        try:
            async with asyncio.timeout(seconds):
                ends = await asyncio.gather(*map(self._read, unread.records), return_exceptions=True)
        except TimeoutError as late:
            self._metrics.claims_read_again.labels("failed").inc()
            raise RetryableError(f"claim {unread}: the API server did not answer in {seconds:.1f} s") from late
        live: dict[str, bytes] = {}
        for record, end in zip(unread.records, ends, strict=True):
            if isinstance(end, BaseException):
                raise end
            live[record.claim.metadata.uid] = end
        return live

    async def _read(self, record: ClaimRecord) -> bytes:
        namespace, name = record.claim.metadata.key
        outcome = "failed"
        try:
            async with self._turns:
                raw = await self._claims.read(namespace, name)
            refusal = self._ledger.claims.complete(record, raw)
            outcome = "changed" if refusal else "ok"
        except NotFoundError as gone:
            outcome = "gone"
            raise RetryableError(f"claim {namespace}/{name} does not exist any more") from gone
        except (ClusterError, ModelError) as problem:
            raise RetryableError(f"claim {namespace}/{name}: {problem}") from problem
        finally:
            self._metrics.claims_read_again.labels(outcome).inc()
        if refusal:
            raise RetryableError(f"claim {namespace}/{name} {refusal}")
        return raw


QUESTIONS_RATE: Final = 10.0
"""Questions per second that the pods of a namespace may cause; beyond that, only the watch decides what exists."""
QUESTIONS_BURST: Final = 100.0
_NAMESPACES: Final = 1024
_LOOK_AGAIN_SECONDS: Final = 0.01


class UndeliveredClaims:
    """Asks the API server about a claim that the ledger lacks, and waits for the watch if there is one."""

    def __init__(self, ledger: Ledger, claims: Claims, time_slices: TimeSlices, options: Options) -> None:
        self._ledger = ledger
        self._claims = claims
        self._clock = time_slices.clock
        self._time_slices = time_slices
        self._seconds = options.new_claim_wait_seconds
        self._questions = TokenBuckets(QUESTIONS_RATE, QUESTIONS_BURST, _NAMESPACES)

    async def wait_for_delivery(self, pod: Pod, budget: CallBudget) -> bool:
        """Return whether the ledger has got claims that the pod names and that it lacked; False if one does not exist.

        kube-scheduler waits meanwhile, so the wait is charged as a search is.  For a namespace that has taken more than its share
        of time there is none: only the watch decides what exists.
        """
        if budget.overdrawn or not self._seconds:
            return False
        missing = self._missing(pod)
        if missing is None:
            return False
        began = self._clock.monotonic()
        try:
            async with asyncio.timeout(self._seconds):
                while missing is not None and await self._exists(pod.namespace, missing):
                    while self._lacks(pod.namespace, missing):  # noqa: ASYNC110 - the watch writes into the ledger
                        await asyncio.sleep(_LOOK_AGAIN_SECONDS)
                    missing = self._missing(pod)
                return missing is None
        except TimeoutError as late:
            raise RetryableError(
                f"claim {pod.namespace}/{missing} is not known yet: the watch has not brought it within {self._seconds:g} s"
            ) from late
        finally:
            self._time_slices.charge(pod, self._clock.monotonic() - began)

    def _missing(self, pod: Pod) -> str | None:
        names = claim_names(self._ledger.pods.newest(pod), self._ledger)
        return next((name for name in names if self._lacks(pod.namespace, name)), None)

    def _lacks(self, namespace: str, name: str) -> bool:
        return self._ledger.claims.by_key(namespace, name) is None

    async def _exists(self, namespace: str, name: str) -> bool:
        if not self._questions.take(namespace, self._clock.monotonic()):
            return False
        try:
            await self._claims.read(namespace, name)
        except NotFoundError:
            return False
        except ClusterError as problem:
            raise RetryableError(f"claim {namespace}/{name} is not known yet: {problem}") from problem
        return True
