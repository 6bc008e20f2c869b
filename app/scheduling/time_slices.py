"""Who may go on searching.

kube-scheduler asks about one pod after the other, so time that goes into one pod's search is missing for all pods.  A call has
one slice of time.  More is for it alone to take while no pod of another namespace waits for the same scheduler or was here a
moment ago; otherwise it comes out of what its namespace has left, and out of what is left for long searches of all namespaces
together.  A moment ago counts because pods of its own pile up in kube-scheduler's queue behind a long search, and whoever comes
then waits for the whole pile.
"""

import asyncio
from collections.abc import Callable
from typing import Final, NamedTuple

from app.model.pod import Pod
from app.scheduling.deadline import CallBudget
from app.scheduling.options import Options
from app.scheduling.ports import Clock
from app.telemetry.metrics import Metrics
from app.token_bucket import TokenBucket, TokenBuckets

SHARE_USED_UP: Final = "its search takes long, and the namespace has used up its share of the time for such searches"

_NEVER: Final = float("-inf")
_NAMESPACES: Final = 10_000
_SMALLER: Final = 10
_RECENT_SECONDS: Final = 10.0
"""As long as kube-scheduler backs a pod off at most."""

WaitsElsewhere = Callable[[Pod], bool]
"""Whether pods of other namespaces wait for the scheduler of this pod."""


class _Call(NamedTuple):
    namespace: str
    at: float


class TimeSlices:
    """Gives out slices of time, and lets everything else go on between two of them."""

    def __init__(self, clock: Clock, options: Options, metrics: Metrics, waits_elsewhere: WaitsElsewhere) -> None:
        self.clock = clock
        self._options = options
        self._metrics = metrics
        self._waits_elsewhere = waits_elsewhere
        self._last = self._last_of_another = _Call("", _NEVER)
        burst, now = options.search_burst_seconds, clock.monotonic()
        self._namespaces = TokenBuckets(options.search_namespace_share, burst, _NAMESPACES, debt=burst)
        self._everybody = TokenBucket(options.search_share, burst, now, debt=burst)

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
        if self._namespaces.level(pod.namespace, budget.slice_start) < 0 and self._contended(pod):
            seconds /= _SMALLER
        budget.open_slice(seconds)

    async def next(self, pod: Pod, budget: CallBudget) -> bool:
        """Whether the call may have a further slice, which begins after everything else had its turn; the last one is paid for."""
        self.pay(pod, budget)
        if budget.over or not self._affords(pod):
            self._metrics.search_stopped()
            return False
        await asyncio.sleep(0)
        budget.open_slice(self._options.search_slice_seconds)
        return True

    def pay(self, pod: Pod, budget: CallBudget) -> None:
        """Take off the time of a slice that was not enough, or of the last one of several."""
        used, now = budget.used, self.clock.monotonic()
        self._namespaces.spend(pod.namespace, used, now)
        contended = self._contended(pod)
        if contended:
            self._everybody.spend(used, now)
        self._metrics.long_search(used, contended=contended)

    def _affords(self, pod: Pod) -> bool:
        """Whether another slice may be had now."""
        if not self._contended(pod):
            return True
        now = self.clock.monotonic()
        return self._namespaces.level(pod.namespace, now) > 0 and self._everybody.level(now) > 0

    def _contended(self, pod: Pod) -> bool:
        """Whether pods of other namespaces wait, or were here a moment ago."""
        other = self._last if self._last.namespace != pod.namespace else self._last_of_another
        return self.clock.monotonic() - other.at < _RECENT_SECONDS or self._waits_elsewhere(pod)
