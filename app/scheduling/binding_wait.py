import asyncio

from app.ledger.claims import ClaimRecord
from app.ledger.ledger import Ledger
from app.model.pod import Pod
from app.scheduling.answers import TryAgain
from app.scheduling.binding_conditions import Readiness, has_conditions, judge
from app.scheduling.claim_writing import ClaimWriting
from app.scheduling.options import Options
from app.scheduling.ports import Clock, Events

_POLL_SECONDS = 5.0
PENDING_REASON = "BindingConditionsPending"


class BindingWait:
    """Holds a bind back until the drivers report the pod's devices ready; gives them back when they fail or take too long."""

    def __init__(
        self,
        ledger: Ledger,
        writing: ClaimWriting,
        events: Events,
        clock: Clock,
        options: Options,
        stopping: asyncio.Event,
    ) -> None:
        self._ledger = ledger
        self._writing = writing
        self._events = events
        self._clock = clock
        self._options = options
        self._stopping = stopping

    async def __call__(self, record: ClaimRecord, pod: Pod, node: str) -> None:
        """Return when every device of the claim is ready.

        Raises:
            TryAgain: a device failed or took too long (the allocation is released unless others use it), or the claim changed.
        """
        since, told = self._clock.now(), False
        uid = record.claim.metadata.uid
        while not self._stopping.is_set():
            known = self._ledger.claims.by_uid(uid)
            if known is None or known.claim.status.allocation is None or not known.claim.reserved_by(pod.uid):
                raise TryAgain(
                    f"claim {'/'.join(record.claim.metadata.key)} was deallocated while pod {pod.key} waited for it"
                )
            if not has_conditions(known.claim):
                return
            verdict = judge(
                known.claim,
                now=self._clock.now(),
                waiting_since=since,
                timeout=self._options.binding_timeout_seconds,
            )
            if verdict.readiness is Readiness.READY:
                return
            if verdict.readiness is not Readiness.PENDING:
                await self._writing.release(known, (pod.uid,))
                raise TryAgain(f"binding conditions {verdict.readiness}: {verdict.detail}")
            if not told:
                told = True
                self._events.about_pod(
                    pod,
                    warning=False,
                    reason=PENDING_REASON,
                    message=f"{verdict.detail} before it can run on node {node}",
                )
            await self._ledger.claims.changed(uid, _POLL_SECONDS)
        raise TryAgain(f"the extender is stopping; pod {pod.key} still waits for its devices")
