import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import structlog

from app.ledger.ledger import Ledger
from app.ledger.signal import Signal, wait_for_any
from app.ledger.versions import NodeVersions
from app.model.pod import Pod
from app.scheduling.options import Options
from app.scheduling.ports import Clock, ClusterError, SchedulerWaker
from app.scheduling.refusals import Refusal, Refusals
from app.supervision import BackgroundTask, Supervisor
from app.telemetry.metrics import Metrics

MayFit = Callable[[Pod, Sequence[str], float], bool]
"""Whether a refused pod might be placed on one of these nodes now, as far as can be found out in so many seconds."""

_LOOK_SECONDS: Final = 0.2
_LONGEST_PAUSE: Final = 1.0
_LAPSE_SECONDS: Final = 1.0

_LOG = structlog.get_logger(__name__)


class WakeUp:
    """Makes kube-scheduler try refused pods again when something changed that it does not watch, or that we saw later than it did.

    kube-scheduler retries rejected pods by itself on claim, class, node and pod events, but it has no handler for slices and knows
    nothing of holds.  So a change is looked at a moment after it happened, when retries that it causes by itself are over, and told
    only if some refused pod would fit now.  One telling wakes all of them; a stream of changes is told about once a second.
    """

    def __init__(
        self,
        ledger: Ledger,
        refusals: Refusals,
        may_fit: MayFit,
        waker: SchedulerWaker,
        metrics: Metrics,
        clock: Clock,
        options: Options,
        supervisor: Supervisor,
    ) -> None:
        self._ledger = ledger
        self._refusals = refusals
        self._may_fit = may_fit
        self._waker = waker
        self._metrics = metrics
        self._clock = clock
        self._options = options
        self._supervisor = supervisor
        self._asked: str | None = None
        self._reconsidered: dict[str, str] = {}
        self._hurry = Signal()
        self._seen: tuple[NodeVersions, NodeVersions] | None = None

    async def run(self) -> None:
        """Watch for helpful changes until cancelled.

        Pods that somebody else refused before (an earlier process, or the leader before this one) are woken once at the beginning.
        """
        if any(pod.needs_devices and not _settled(pod) for pod in self._ledger.pods.all()):
            self._asked = "start"
        least = self._options.wake_interval_seconds
        pause = least
        while True:
            if not self._due():
                pause = least
                signals = (self._ledger.helped, self._ledger.holds.changed, self._hurry)
                await wait_for_any(signals, _LAPSE_SECONDS)
                continue
            await asyncio.sleep(self._options.wake_delay_seconds)
            if self._due():
                await self._look()
                await asyncio.sleep(pause)
                pause = min(2 * pause, max(least, _LONGEST_PAUSE))

    def reconsider(self, pod_uid: str, reason: str) -> None:
        """Something has changed for this pod alone, if it was refused; `reason` says what."""
        if pod_uid in self._refusals:
            self._reconsidered[pod_uid] = reason
            self._hurry.fire()

    def _due(self) -> bool:
        """Whether something has changed for some refused pod since it was refused."""
        self._ledger.holds.expire(self._clock.monotonic())
        self._refusals.forget_settled()
        return self._asked is not None or bool(self._reconsidered) or self._refusals.helped_since() is not None

    async def _look(self) -> None:
        """Find out whether what has changed helps somebody, and tell kube-scheduler if so."""
        mark, moved = self._refusals.mark(), self._moved_nodes()
        concerned, self._reconsidered = self._reconsidered, {}
        reason = self._asked or await self._helps_somebody(moved, concerned)
        self._refusals.considered(mark)
        self._asked = None if reason is None or await self._told(reason) else reason

    async def _helps_somebody(self, moved: frozenset[str] | None, concerned: Mapping[str, str]) -> str | None:
        """The first kind of change that may help a refused pod; one of those left when the time for looking is over, too."""
        now, left = self._refusals.mark(), _LOOK_SECONDS
        for refusal in self._refusals.all():
            own = concerned.get(refusal.pod.uid)
            reason = own or refusal.help_since(now)
            if reason is None or refusal.pod.uid not in self._refusals:
                continue
            began = self._clock.monotonic()
            whole = own is not None or moved is None or refusal.concerns_all_nodes(now)
            if left <= 0 or self._fits(refusal, None if whole else moved, left):
                return reason
            left -= self._clock.monotonic() - began
            await asyncio.sleep(0)
        return None

    def _fits(self, refusal: Refusal, moved: frozenset[str] | None, seconds: float) -> bool:
        # A pod that cannot be looked at is looked at again when something else changes for it.
        found: list[bool] = []
        with self._supervisor.sparing(BackgroundTask.WAKE_UP, pod=refusal.pod.key):
            nodes = refusal.nodes.among(self._ledger.nodes if moved is None else moved)
            found.append(bool(nodes) and self._may_fit(refusal.pod, nodes, seconds))
        return any(found)

    def _moved_nodes(self) -> frozenset[str] | None:
        """Nodes whose devices, allocations or holds have changed since this was asked last; None means any may have."""
        seen = self._seen
        self._seen = state, held = self._ledger.state.copy(), self._ledger.held.copy()
        if seen is None:
            return None
        by_state, by_held = state.moved_since(seen[0]), held.moved_since(seen[1])
        return None if by_state is None or by_held is None else by_state | by_held

    async def _told(self, reason: str) -> bool:
        """Tell kube-scheduler; whether that was possible.  Otherwise it is tried again."""
        try:
            await self._waker.wake()
        except ClusterError as problem:
            _LOG.warning("kube-scheduler could not be woken", problem=str(problem), waiting=len(self._refusals))
            return False
        self._metrics.woke(reason)
        return True


def _settled(pod: Pod) -> bool:
    return bool(pod.node_name) or pod.finished or pod.deleting
