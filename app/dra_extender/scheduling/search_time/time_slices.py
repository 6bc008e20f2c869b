"""Who may go on searching.

kube-scheduler asks about one pod after the other, so time that goes into one pod's search is missing for all pods.  A call has
one slice of time.  Whether it has more depends on who waits for the same scheduler:

* nobody else: as much as a call may take;
* other pods of its own namespace: a share of the time, because pods pile up in kube-scheduler's queue behind a long search, and
  whoever comes next waits for the whole pile;
* pods of other namespaces, now or a moment ago: what its namespace has left, and what is left for long searches of all namespaces
  together.
"""

import asyncio
from typing import Final, NamedTuple, Protocol

from dra_extender.model.pod import Pod
from dra_extender.runtime.token_bucket import TokenBucket, TokenBuckets
from dra_extender.scheduling.ports.cluster import Clock
from dra_extender.scheduling.ports.options import Options
from dra_extender.scheduling.search_time.deadline import CallBudget
from dra_extender.telemetry.metrics import Metrics, SearchLane

SHARE_USED_UP: Final = "its search takes long, and the namespace has used up its share of the time for such searches"

_NEVER: Final = float("-inf")
_NAMESPACES: Final = 10_000
_SMALLER: Final = 10
_FREE_SECONDS: Final = 0.001
_RECENT_SECONDS: Final = 10.0
"""As long as kube-scheduler backs a pod off at most."""


class WaitingPods(Protocol):
    """Pods that wait for a scheduler to find nodes for them."""

    def waits_elsewhere(self, pod: Pod) -> bool:
        """Whether pods of other namespaces wait for the scheduler of this pod."""
        ...

    def waits_beside(self, pod: Pod) -> bool:
        """Whether other pods of its namespace wait for the scheduler of this pod."""
        ...


class _Call(NamedTuple):
    namespace: str
    at: float


class TimeSlices:
    """Gives out slices of time, and lets everything else go on between two of them."""

    def __init__(self, clock: Clock, options: Options, metrics: Metrics, waiting: WaitingPods) -> None:
        self.clock = clock
        self._options = options
        self._metrics = metrics
        self._waiting = waiting
        self._last = self._last_of_another = _Call("", _NEVER)
        burst, now = options.search_burst_seconds, clock.monotonic()
        self._namespaces = TokenBuckets(options.search_namespace_share, burst, _NAMESPACES, debt=burst)
        self._everybody = TokenBucket(options.search_share, burst, now, debt=burst)
        self._alone = TokenBucket(options.search_alone_share, burst, now, debt=burst)
        self._spent = dict.fromkeys(SearchLane, 0.0)
        metrics.before_render(self._publish)

    def begin(self, pod: Pod, seconds: float) -> CallBudget:
        """A budget for a call about this pod that may take so many seconds; its first slice begins."""
        budget = CallBudget(self.clock, seconds)
        if self._last.namespace != pod.namespace:
            self._last_of_another = self._last
        self._last = _Call(pod.namespace, budget.slice_start)
        self.reopen(pod, budget)
        return budget

    def reopen(self, pod: Pod, budget: CallBudget) -> None:
        """Begin a slice that needs no leave: the first one, and the first after a wait; smaller for whoever has overdrawn."""
        seconds = self._options.search_slice_seconds
        budget.paid = False
        budget.overdrawn = self._overdrawn(pod, budget.slice_start)
        if budget.overdrawn:
            seconds /= _SMALLER
        budget.open_slice(seconds)

    async def next(self, pod: Pod, budget: CallBudget) -> bool:
        """Whether the call may have a further slice, which begins after everything else had its turn; the last one is paid for."""
        self._spend(pod, budget.lap())
        budget.paid = True
        if budget.over or self._level(pod, self.clock.monotonic()) <= 0:
            self._metrics.search_stopped()
            return False
        await asyncio.sleep(0)
        budget.open_slice(self._options.search_slice_seconds)
        return True

    def interrupt(self, pod: Pod, budget: CallBudget) -> None:
        """The call has to wait before it can go on: what it has taken of its slice is paid for."""
        self._spend(pod, budget.lap())

    def end(self, pod: Pod, budget: CallBudget) -> None:
        """What the slice was for is done: the last one of several is paid for, a first one that was enough is free."""
        seconds = budget.lap()
        if budget.paid:
            self._spend(pod, seconds)
        else:
            self._spent[SearchLane.SLICE] += seconds

    def charge(self, pod: Pod, seconds: float) -> None:
        """Take off time that was spent beside all slices; next to nothing is free."""
        if seconds > _FREE_SECONDS:
            self._spend(pod, seconds)

    def _spend(self, pod: Pod, seconds: float) -> None:
        now = self.clock.monotonic()
        self._namespaces.spend(pod.namespace, seconds, now)
        contended = self._contended(pod)
        (self._everybody if contended else self._alone).spend(seconds, now)
        self._spent[SearchLane.NAMESPACE] += seconds
        self._spent[SearchLane.EVERYBODY if contended else SearchLane.ALONE] += seconds

    def _publish(self) -> None:
        for lane, seconds in self._spent.items():
            self._metrics.searched(lane, seconds)
        self._spent = dict.fromkeys(SearchLane, 0.0)

    def _level(self, pod: Pod, now: float) -> float:
        """Seconds that are left for further slices of this pod's calls; negative when overdrawn."""
        if self._contended(pod):
            return min(self._namespaces.level(pod.namespace, now), self._everybody.level(now))
        return self._alone.level(now) if self._waiting.waits_beside(pod) else self._options.search_burst_seconds

    def _overdrawn(self, pod: Pod, now: float) -> bool:
        """Whether pods of this namespace have taken more than they may; what others take from everybody is not held against it."""
        namespace, alone = self._namespaces.level(pod.namespace, now) < 0, self._alone.level(now) < 0
        if not (namespace or alone):
            return False
        return namespace if self._contended(pod) else alone and self._waiting.waits_beside(pod)

    def _contended(self, pod: Pod) -> bool:
        """Whether pods of other namespaces wait, or were here a moment ago."""
        other = self._last if self._last.namespace != pod.namespace else self._last_of_another
        return self.clock.monotonic() - other.at < _RECENT_SECONDS or self._waiting.waits_elsewhere(pod)
