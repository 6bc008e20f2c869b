"""Wakes kube-scheduler when a change makes a rejected pod schedulable."""

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

import structlog

from dra_extender.allocator.state.reasons import Rejection
from dra_extender.ledger.ledger import Ledger
from dra_extender.ledger.notifier import Notifier, wait_for_any
from dra_extender.model.pod import Pod
from dra_extender.runtime.supervision import BackgroundTask, Supervisor
from dra_extender.scheduling.call_budget import Awaited, CallBudget
from dra_extender.scheduling.claims.live_reads import SpecReader, UnreadSpecs
from dra_extender.scheduling.holds.service import HoldService
from dra_extender.scheduling.ports.cluster import Cluster, ClusterError
from dra_extender.scheduling.ports.errors import RetryableError
from dra_extender.scheduling.ports.options import Options
from dra_extender.scheduling.requeue.unschedulable import UnschedulablePod, UnschedulablePods
from dra_extender.telemetry.decision_metrics import SearchLane
from dra_extender.telemetry.metrics import Metrics

MayFit = Callable[[Pod, Sequence[str], CallBudget, Rejection | None], bool | Awaited | UnreadSpecs]
"""See `Filter.may_fit`: whether a rejected pod might fit on one of these nodes now."""
_SLICE_SECONDS: Final = 0.02
_TURN_SECONDS: Final = 0.05
# Tries take one twentieth of the time, however many pods there are.
_PAUSE_PER_TURN: Final = 19
_LONGEST_PAUSE: Final = 1.0
_LAPSE_SECONDS: Final = 1.0
_READS_PER_TURN: Final = 8

_LOG = structlog.get_logger(__name__)


@dataclass(eq=False)
class Waker:
    """Makes kube-scheduler retry rejected pods after a change that it does not watch, or that this process saw later than it did.

    kube-scheduler retries rejected pods by itself on claim, class, node and pod events, but it has no handler for slices and knows
    nothing of holds.  The waker tries rejected pods a moment after a change, when kube-scheduler's own retries are over, and wakes
    kube-scheduler only if some rejected pod would fit, or if its gang does not lack the members any more that its rejection named.
    One wake-up requeues all rejected pods; bursts are coalesced to about one per second.
    """

    ledger: Ledger
    unschedulable: UnschedulablePods
    holds: HoldService
    may_fit: MayFit
    spec_reader: SpecReader
    cluster: Cluster
    metrics: Metrics
    options: Options
    supervisor: Supervisor

    def __post_init__(self) -> None:
        self._pending_reason: str | None = None
        self._reconsidered: dict[str, str] = {}
        self._reconsider_now = Notifier()
        # The places in the journals of states and of holds up to which changed nodes were looked at.
        self._places = (-1, -1)
        # Pods with a queueing hint that were not tried to the end yet, and those of them whose search was begun.
        self._deferred: set[str] = set()
        self._begun_searches: set[str] = set()
        self._last_namespace = ""
        # The number of the last try of each pod.
        self._last_tried: dict[str, int] = {}
        self._tries = 0

    async def keep_waking(self) -> None:
        """Watch for queueing hints until cancelled.

        At the start it wakes kube-scheduler once for pods that an earlier process or leader rejected.
        """
        if any(pod.needs_devices and pod.waits_for_node for pod in self.ledger.pods.all()):
            self._pending_reason = "start"
        least = self.options.wake_interval_seconds
        pause = least
        while True:
            if not self._has_hint():
                pause = least
                signals = (self.ledger.hinted, self.ledger.holds.changed, self._reconsider_now)
                await wait_for_any(signals, _LAPSE_SECONDS)
                continue
            await asyncio.sleep(self.options.wake_delay_seconds)
            if self._has_hint():
                seconds = await self.wake_if_one_fits()
                await asyncio.sleep(max(pause, _PAUSE_PER_TURN * seconds))
                pause = min(2 * pause, max(least, _LONGEST_PAUSE))

    def reconsider(self, pod_uid: str, reason: str) -> None:
        """Try this pod soon if it was rejected: something changed only for it; `reason` names the change."""
        if pod_uid in self.unschedulable.uids:
            self._reconsidered[pod_uid] = reason
            self._reconsider_now.fire()

    def _has_hint(self) -> bool:
        """Return whether something has changed for some rejected pod since its rejection."""
        self.holds.expire()
        self.unschedulable.forget_resolved()
        return (
            self._pending_reason is not None
            or bool(self._reconsidered)
            or self.unschedulable.any_queueing_hint() is not None
        )

    async def wake_if_one_fits(self) -> float:
        """Wake kube-scheduler if the changes make some rejected pod schedulable; returns the seconds that the tries took."""
        mark, turn, reason = self.unschedulable.changes(), _Turn(), self._pending_reason
        by_state, state_place = self.ledger.state_versions.since(self._places[0])
        by_held, held_place = self.ledger.hold_versions.since(self._places[1])
        self._places = state_place, held_place
        changed = None if by_state is None or by_held is None else sorted({*by_state, *by_held})
        reconsidered, self._reconsidered = self._reconsidered, {}
        if reason is None:
            reason = await self._first_hint(changed, reconsidered, turn)
        if reason is not None:
            # All of them are woken.
            self._deferred.clear()
        self.unschedulable.advance(mark, self._deferred)
        if reason is not None:
            try:
                await self.cluster.waker.wake()
                self.metrics.scheduler_wakes.labels(reason).inc()
                reason = None
            except ClusterError as problem:
                waiting = len(self.unschedulable)
                _LOG.warning("kube-scheduler could not be woken", problem=str(problem), waiting=waiting)
        self._pending_reason = reason
        return turn.seconds

    async def _first_hint(
        self, changed: Sequence[str] | None, reconsidered: Mapping[str, str], turn: "_Turn"
    ) -> str | None:
        """Return the first kind of change that makes a rejected pod schedulable; `changed`: the nodes that changed (None: any).

        Pods that are not tried when the time is over, and those whose search is not finished, are tried in a later turn; neither
        is a reason to wake kube-scheduler.
        """
        now = self.unschedulable.changes()
        before, self._deferred = self._deferred, set()
        for rejected in self._ordered(self.unschedulable.all()):
            uid = rejected.pod.uid
            own_reason = reconsidered.get(uid)
            reason = own_reason or rejected.queueing_hint(now)
            if reason is None or uid not in self.unschedulable.uids:
                continue
            if turn.seconds >= _TURN_SECONDS:
                self._defer(uid, own_reason)
                continue
            any_node = own_reason is not None or changed is None or uid in before or rejected.concerns_all_nodes(now)
            if await self._try(rejected, None if any_node else changed, own_reason, turn):
                return reason
            await asyncio.sleep(0)
        self._begun_searches &= self._deferred
        return None

    async def _try(
        self, rejected: UnschedulablePod, changed: Sequence[str] | None, own_reason: str | None, turn: "_Turn"
    ) -> bool:
        """Return whether the pod fits now on one of the `changed` nodes (None: on any); it is deferred if that is not known yet."""
        uid = rejected.pod.uid
        self._last_namespace = rejected.pod.namespace
        self._tries += 1
        self._last_tried[uid] = self._tries
        budget = CallBudget(self.cluster.clock, _TURN_SECONDS)
        budget.open_slice(_SLICE_SECONDS)
        # A pod whose try fails with an error is tried again at the next change for it.
        fits: bool | Awaited | UnreadSpecs = False
        with self.supervisor.sparing(BackgroundTask.WAKE_UP, pod=rejected.pod.key):
            nodes = rejected.nodes.among(self.ledger.nodes if changed is None else changed)
            if nodes:
                fits = self.may_fit(rejected.pod, nodes, budget, rejected.lacking)
        used = budget.lap()
        turn.seconds += used
        self.metrics.search_seconds.labels(SearchLane.WAKE_UP).inc(used)
        if isinstance(fits, UnreadSpecs):
            self._defer(uid, own_reason)
            turn.reads += 1
            if turn.reads <= _READS_PER_TURN:
                with suppress(RetryableError):
                    await self.spec_reader.read(fits, budget)
            return False
        if isinstance(fits, Awaited):
            self._begun_searches.add(uid)
            self._defer(uid, own_reason)
        elif not fits:
            self._begun_searches.discard(uid)
        return fits is True

    def _defer(self, uid: str, own_reason: str | None) -> None:
        self._deferred.add(uid)
        if own_reason is not None:
            self._reconsidered.setdefault(uid, own_reason)

    def _ordered(self, rejected: Sequence[UnschedulablePod]) -> Sequence[UnschedulablePod]:
        """Return the pods in the order in which they are tried: one of each namespace in turn, after the namespace tried last.

        Pods whose search was begun come last.  In a namespace, the pod tried longest ago is first, so that a stream of changes
        leaves no pod out.
        """
        places: Counter[str] = Counter()
        keys: dict[str, tuple[bool, int, bool, str]] = {}
        tried = self._last_tried = {pod.pod.uid: self._last_tried.get(pod.pod.uid, 0) for pod in rejected}
        for waiting in sorted(rejected, key=lambda waiting: tried[waiting.pod.uid]):
            namespace = waiting.pod.namespace
            is_begun = waiting.pod.uid in self._begun_searches
            keys[waiting.pod.uid] = (is_begun, places[namespace], namespace <= self._last_namespace, namespace)
            places[namespace] += 1
        return sorted(rejected, key=lambda waiting: keys[waiting.pod.uid])


@dataclass(slots=True)
class _Turn:
    """The cost of one turn of tries: seconds of search, and reads of claims."""

    seconds: float = 0.0
    reads: int = 0
