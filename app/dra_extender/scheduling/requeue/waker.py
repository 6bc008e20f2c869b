import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Final, Protocol

import structlog

from dra_extender.allocator.state.result import SearchPaused
from dra_extender.ledger.ledger import Ledger
from dra_extender.ledger.state.claim_record import SpecNotKeptError
from dra_extender.ledger.state.node_versions import NodeVersions
from dra_extender.ledger.state.notifier import Notifier, wait_for_any
from dra_extender.model.pod import Pod
from dra_extender.runtime.supervision import BackgroundTask, Supervisor
from dra_extender.scheduling.ports.cluster import Clock, ClusterError, SchedulerWaker
from dra_extender.scheduling.ports.errors import RetryableError
from dra_extender.scheduling.ports.options import Options
from dra_extender.scheduling.requeue.unschedulable import UnschedulablePod, UnschedulablePods, is_pending
from dra_extender.scheduling.search_time.deadline import CallBudget
from dra_extender.telemetry.metrics import Metrics, SearchLane


class PlacementTrial(Protocol):
    """Finds out whether a refused pod would be placed now."""

    def may_fit(self, pod: Pod, nodes: Sequence[str], budget: CallBudget) -> bool:
        """Whether it might be on one of these nodes.

        Raises:
            Paused: the slice of the budget is over.
            SpecNotKeptError: claims have to be read before.
        """
        ...

    async def read(self, missing: SpecNotKeptError, budget: CallBudget) -> None:
        """Read these claims; raises TryAgain if that is impossible."""
        ...


_SLICE_SECONDS: Final = 0.02
_LOOK_SECONDS: Final = 0.05
# A look takes one twentieth of the time, however much there is to look at.
_PAUSE_PER_LOOK: Final = 19
_LONGEST_PAUSE: Final = 1.0
_LAPSE_SECONDS: Final = 1.0
_READS_PER_LOOK: Final = 8

_LOG = structlog.get_logger(__name__)


class Waker:
    """Makes kube-scheduler try refused pods again when something changed that it does not watch, or that we saw later than it did.

    kube-scheduler retries rejected pods by itself on claim, class, node and pod events, but it has no handler for slices and knows
    nothing of holds.  So a change is looked at a moment after it happened, when retries that it causes by itself are over, and told
    only if some refused pod would fit now.  One telling wakes all of them; a stream of changes is told about once a second.
    """

    def __init__(
        self,
        ledger: Ledger,
        refusals: UnschedulablePods,
        trial: PlacementTrial,
        waker: SchedulerWaker,
        metrics: Metrics,
        clock: Clock,
        options: Options,
        supervisor: Supervisor,
    ) -> None:
        self._ledger = ledger
        self._refusals = refusals
        self._trial = trial
        self._waker = waker
        self._metrics = metrics
        self._clock = clock
        self._options = options
        self._supervisor = supervisor
        self._asked: str | None = None
        self._reconsidered: dict[str, str] = {}
        self._hurry = Notifier()
        self._seen: tuple[NodeVersions, NodeVersions] | None = None
        # Pods that changes may help which could not be looked at yet, and those of them whose search was begun.
        self._left: set[str] = set()
        self._begun: set[str] = set()
        self._last_namespace = ""
        # When each pod was looked at last, as a count of looks.
        self._looked: dict[str, int] = {}
        self._looks = 0

    async def run(self) -> None:
        """Watch for helpful changes until cancelled.

        Pods that somebody else refused before (an earlier process, or the leader before this one) are woken once at the beginning.
        """
        if any(pod.needs_devices and is_pending(pod) for pod in self._ledger.pods.all()):
            self._asked = "start"
        least = self._options.wake_interval_seconds
        pause = least
        while True:
            if not self._due():
                pause = least
                signals = (self._ledger.hinted, self._ledger.holds.changed, self._hurry)
                await wait_for_any(signals, _LAPSE_SECONDS)
                continue
            await asyncio.sleep(self._options.wake_delay_seconds)
            if self._due():
                took = await self._look()
                await asyncio.sleep(max(pause, _PAUSE_PER_LOOK * took))
                pause = min(2 * pause, max(least, _LONGEST_PAUSE))

    def reconsider(self, pod_uid: str, reason: str) -> None:
        """Something has changed for this pod alone, if it was refused; `reason` says what."""
        if pod_uid in self._refusals:
            self._reconsidered[pod_uid] = reason
            self._hurry.fire()

    def _due(self) -> bool:
        """Whether something has changed for some refused pod since it was refused."""
        self._ledger.holds.expire(self._clock.monotonic())
        self._refusals.forget_resolved()
        return self._asked is not None or bool(self._reconsidered) or self._refusals.any_queueing_hint() is not None

    async def _look(self) -> float:
        """Find out whether what has changed helps somebody, and tell kube-scheduler if so; the seconds that this took."""
        mark, moved = self._refusals.changes(), self._moved_nodes()
        concerned, self._reconsidered = self._reconsidered, {}
        took, reason = 0.0, self._asked
        if reason is None:
            took, reason = await self._helps_somebody(moved, concerned)
        if reason is not None:
            # All of them are woken.
            self._left.clear()
        self._refusals.advance(mark, self._left)
        self._asked = None if reason is None or await self._told(reason) else reason
        return took

    async def _helps_somebody(
        self, moved: frozenset[str] | None, concerned: Mapping[str, str]
    ) -> tuple[float, str | None]:
        """The seconds spent, and the first kind of change that helps a refused pod.

        Pods that are left when the time is over come in a later look, as do those whose search is not finished: neither is a
        reason to wake anybody.
        """
        now, took, reads = self._refusals.changes(), 0.0, 0
        left, self._left = self._left, set()
        for refusal in self._in_turn(self._refusals.all()):
            uid = refusal.pod.uid
            own = concerned.get(uid)
            reason = own or refusal.queueing_hint(now)
            if reason is None or uid not in self._refusals:
                continue
            if took >= _LOOK_SECONDS:
                self._leave(uid, own)
                continue
            self._last_namespace = refusal.pod.namespace
            self._looks += 1
            self._looked[uid] = self._looks
            whole = own is not None or moved is None or uid in left or refusal.concerns_all_nodes(now)
            budget = CallBudget(self._clock, _LOOK_SECONDS)
            budget.open_slice(_SLICE_SECONDS)
            fits = self._fits(refusal, None if whole else moved, budget)
            used = budget.lap()
            took += used
            self._metrics.searched(SearchLane.WAKE_UP, used)
            if isinstance(fits, SpecNotKeptError):
                self._leave(uid, own)
                reads += 1
                if reads <= _READS_PER_LOOK:
                    with suppress(RetryableError):
                        await self._trial.read(fits, budget)
            elif fits:
                return took, reason
            elif fits is None:
                self._begun.add(uid)
                self._leave(uid, own)
            else:
                self._begun.discard(uid)
            await asyncio.sleep(0)
        self._begun &= self._left
        return took, None

    def _leave(self, uid: str, own: str | None) -> None:
        """This pod has to be looked at later."""
        self._left.add(uid)
        if own is not None:
            self._reconsidered.setdefault(uid, own)

    def _in_turn(self, refused: Sequence[UnschedulablePod]) -> Sequence[UnschedulablePod]:
        """One of each namespace after the other, beginning after the namespace that was looked at last; those begun come last.

        In a namespace, the pod that was looked at longest ago is first: changes that do not end leave no pod out.
        """
        places: Counter[str] = Counter()
        keys: dict[str, tuple[bool, int, bool, str]] = {}
        looked = self._looked = {each.pod.uid: self._looked.get(each.pod.uid, 0) for each in refused}
        for each in sorted(refused, key=lambda each: looked[each.pod.uid]):
            namespace = each.pod.namespace
            begun = each.pod.uid in self._begun
            keys[each.pod.uid] = (begun, places[namespace], namespace <= self._last_namespace, namespace)
            places[namespace] += 1
        return sorted(refused, key=lambda each: keys[each.pod.uid])

    def _fits(
        self, refusal: UnschedulablePod, moved: frozenset[str] | None, budget: CallBudget
    ) -> bool | SpecNotKeptError | None:
        """Whether the pod may fit now; None if the search is not finished, an error if claims have to be read before."""
        # A pod that cannot be looked at is looked at again when something else changes for it.
        found: list[bool | SpecNotKeptError | None] = [False]
        with self._supervisor.sparing(BackgroundTask.WAKE_UP, pod=refusal.pod.key):
            nodes = refusal.nodes.among(self._ledger.nodes if moved is None else moved)
            try:
                found.append(bool(nodes) and self._trial.may_fit(refusal.pod, nodes, budget))
            except SearchPaused:
                found.append(None)
            except SpecNotKeptError as missing:
                found.append(missing)
        return found[-1]

    def _moved_nodes(self) -> frozenset[str] | None:
        """Nodes whose devices, allocations or holds have changed since this was asked last; None means any may have."""
        seen = self._seen
        self._seen = state, held = self._ledger.state.copy(), self._ledger.held.copy()
        if seen is None:
            return None
        by_state, by_held = state.changed_since(seen[0]), held.changed_since(seen[1])
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
