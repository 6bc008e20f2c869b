"""Fairness between namespaces: which call gets a further slice of time.

kube-scheduler asks about one pod after the other, so time that goes into one pod's search is missing for all pods.  A call has
one slice of time.  Whether it gets more depends on the pods that wait for the same scheduler:

* none: as much as a call may take;
* other pods of its own namespace: a share of the time, because pods pile up in kube-scheduler's queue behind a long search, and
  the next one waits for the whole pile;
* pods of other namespaces, now or a moment ago: what its namespace has left, and what is left for long searches of all namespaces
  together.
"""

import asyncio
from typing import Final, NamedTuple

from dra_extender.ledger.pods import PodIndex
from dra_extender.model.pod import Pod
from dra_extender.runtime.token_bucket import TokenBucket, TokenBuckets
from dra_extender.scheduling.call_budget import CallBudget
from dra_extender.scheduling.ports.cluster import Clock
from dra_extender.scheduling.ports.options import Options
from dra_extender.telemetry.decision_metrics import SearchLane
from dra_extender.telemetry.metrics import Metrics

_LONG_AGO: Final = float("-inf")
_NAMESPACES: Final = 10_000
_SMALLER: Final = 10
_FREE_SECONDS: Final = 0.001
_RECENT_SECONDS: Final = 10.0
"""As long as kube-scheduler backs a pod off at most."""


class _Call(NamedTuple):
    namespace: str
    at: float


class TimeSlices:
    """Grants slices of time, and lets the event loop run between two of them."""

    def __init__(self, clock: Clock, options: Options, metrics: Metrics, waiting: PodIndex) -> None:
        self.clock = clock
        self._options = options
        self._metrics = metrics
        self._waiting = waiting
        self._last = self._last_of_another = _Call("", _LONG_AGO)
        burst, now = options.search_burst_seconds, clock.monotonic()
        self._namespaces = TokenBuckets(options.search_namespace_share, burst, _NAMESPACES, debt=burst)
        self._common = TokenBucket(options.search_share, burst, now, debt=burst)
        self._alone = TokenBucket(options.search_alone_share, burst, now, debt=burst)
        self._spent = dict.fromkeys(SearchLane, 0.0)
        metrics.before_render(self._publish)

    def begin(self, pod: Pod, seconds: float) -> CallBudget:
        """Begin the first slice of a call about this pod that may take so many seconds; return its budget."""
        budget = CallBudget(self.clock, seconds)
        if self._last.namespace != pod.namespace:
            self._last_of_another = self._last
        self._last = _Call(pod.namespace, budget.slice_start)
        self.reopen(pod, budget)
        return budget

    def reopen(self, pod: Pod, budget: CallBudget) -> None:
        """Begin a slice that is always granted: the first one, and the first after a wait; a smaller one if overdrawn."""
        seconds = self._options.search_slice_seconds
        budget.paid = False
        budget.overdrawn = self._overdrawn(pod, budget.slice_start)
        if budget.overdrawn:
            seconds /= _SMALLER
        budget.open_slice(seconds)

    async def next(self, pod: Pod, budget: CallBudget) -> bool:
        """Charge the last slice; return whether the call gets a further one; the event loop runs everything else before."""
        self._spend(pod, budget.lap())
        budget.paid = True
        if budget.seconds_left < 0 or self._level(pod, self.clock.monotonic()) <= 0:
            self._metrics.search_stopped(pod.namespace)
            return False
        await asyncio.sleep(0)
        budget.open_slice(self._options.search_slice_seconds)
        return True

    def interrupt(self, pod: Pod, budget: CallBudget) -> None:
        """Charge what the call has taken of its slice before it waits."""
        self._spend(pod, budget.lap())

    def end(self, pod: Pod, budget: CallBudget) -> None:
        """End the slice: the last one of several is charged, an only one is free."""
        seconds = budget.lap()
        if budget.paid:
            self._spend(pod, seconds)
        else:
            self._spent[SearchLane.SLICE] += seconds

    def charge(self, pod: Pod, seconds: float) -> None:
        """Charge time that was spent outside slices; up to a millisecond is free."""
        if seconds > _FREE_SECONDS:
            self._spend(pod, seconds)

    def _spend(self, pod: Pod, seconds: float) -> None:
        now = self.clock.monotonic()
        self._namespaces.spend(pod.namespace, seconds, now)
        contended = self._contended(pod)
        (self._common if contended else self._alone).spend(seconds, now)
        self._spent[SearchLane.NAMESPACE] += seconds
        self._spent[SearchLane.ALL if contended else SearchLane.ALONE] += seconds

    def _publish(self) -> None:
        for lane, seconds in self._spent.items():
            self._metrics.search_seconds.labels(lane).inc(seconds)
        self._spent = dict.fromkeys(SearchLane, 0.0)

    def _level(self, pod: Pod, now: float) -> float:
        """Return the seconds that are left for further slices of this pod's calls; negative when overdrawn."""
        if self._contended(pod):
            return min(self._namespaces.level(pod.namespace, now), self._common.level(now))
        if self._waiting.others_waiting_in_namespace(pod):
            return self._alone.level(now)
        return self._options.search_burst_seconds

    def _overdrawn(self, pod: Pod, now: float) -> bool:
        """Return whether pods of this namespace have taken more than their share; what others take does not count."""
        if self._contended(pod):
            return self._namespaces.level(pod.namespace, now) < 0
        return self._alone.level(now) < 0 and self._waiting.others_waiting_in_namespace(pod)

    def _contended(self, pod: Pod) -> bool:
        """Return whether pods of other namespaces wait, or have called a moment ago."""
        other_call = self._last if self._last.namespace != pod.namespace else self._last_of_another
        if self.clock.monotonic() - other_call.at < _RECENT_SECONDS:
            return True
        return self._waiting.waiting_in_other_namespaces(pod)
