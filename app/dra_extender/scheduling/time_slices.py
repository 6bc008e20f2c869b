"""Fairness between namespaces: what one call may spend on expressions and searches, and which call gets a further slice of time.

kube-scheduler asks about one pod after the other, so time that goes into one pod's search is missing for all pods.  A call has
one slice of time.  Whether it gets more depends on the pods that wait for the same scheduler:

* none: as much as a call may take;
* other pods of its own namespace: a share of the time, because pods pile up in kube-scheduler's queue behind a long search, and
  the next one waits for the whole pile;
* pods of other namespaces, now or a moment ago: what its namespace has left, and what is left for long searches of all namespaces
  together.
"""

import asyncio
from collections.abc import Callable, Hashable
from enum import Enum, auto
from typing import Any, Final, Literal, NamedTuple, TypeVar

from dra_extender.allocator.state.reasons import SearchPaused
from dra_extender.cel.budget import Budget
from dra_extender.cel.cost import Deadline
from dra_extender.ledger.pods import PodIndex
from dra_extender.model.pod import Pod
from dra_extender.runtime.token_bucket import TokenBucket, TokenBuckets
from dra_extender.scheduling.ports.cluster import Clock
from dra_extender.scheduling.ports.options import Options
from dra_extender.telemetry.decision_metrics import SearchLane
from dra_extender.telemetry.metrics import Metrics

_LONG_AGO: Final = float("-inf")
_NO_END: Final = float("inf")
_NAMESPACES: Final = 10_000
_SMALLER: Final = 10
_FREE_SECONDS: Final = 0.001
_RECENT_SECONDS: Final = 10.0
"""As long as kube-scheduler backs a pod off at most."""


T = TypeVar("T")


class Awaited(Enum):
    """The condition that an evaluation waits for; a new evaluation may have another result after that.

    TIME_SLICE: the search goes on in the next slice of time.  CLAIM_DELIVERY: the ledger lacks a claim that the pod names.
    MULTI_NODE_HOLDS: holds keep devices on several nodes until the pod is bound to one of them.  STALE_HOLDS: the pod would fit if
    stale holds were revoked.
    """

    TIME_SLICE = auto()
    CLAIM_DELIVERY = auto()
    MULTI_NODE_HOLDS = auto()
    STALE_HOLDS = auto()


class CallBudget(Budget):
    """The budget of one call for expressions and searches, in slices of time.

    When a slice is over, it raises SearchPaused where a search can go on, after at least one step or evaluation in each slice;
    `within_slice` catches it, whatever is between.
    The time of the call ends in the same way, so a clock never ends a search.  Compiling an expression pauses before it begins,
    in `afford`.

    `answers` are kept for the next slices of the call.  `closed`: no search may begin or go on.  `overdrawn`: the namespace has
    taken more than its share of time.  `paid`: the slices are not free any more.  `read_again` are the UIDs of claims that were
    read from the API server for this call, because the ledger does not keep their specs.
    """

    __slots__ = (
        "_has_stepped",
        "_now",
        "_slice_end",
        "_was_interrupted",
        "answers",
        "closed",
        "end",
        "overdrawn",
        "paid",
        "read_again",
        "slice_start",
    )

    def __init__(self, clock: Clock, seconds: float) -> None:
        """Begin a call that may take this many seconds; its first slice has no end until `open_slice`."""
        self._now = now = clock.monotonic
        super().__init__(clock=now)
        self.slice_start = now()
        self.end = self.slice_start + seconds
        self._slice_end = _NO_END
        self._has_stepped = self._was_interrupted = False
        self.closed = self.overdrawn = self.paid = False
        self.answers: dict[Hashable, Any] = {}
        self.read_again: set[str] = set()

    def open_slice(self, seconds: float) -> None:
        self.slice_start = start = self._now()
        self._slice_end = min(start + seconds, self.end)
        self._has_stepped = False

    def close(self) -> None:
        """End the call's searches: none may begin, none pauses, and what is not known by now counts as a reached limit."""
        self.closed = True
        self.remaining = 0
        self._slice_end = _NO_END

    def lap(self) -> float:
        """Return the seconds since the slice began, or since the last lap."""
        start, self.slice_start = self.slice_start, self._now()
        return self.slice_start - start

    @property
    def seconds_left(self) -> float:
        """Seconds until the call has taken all of its time; negative after that."""
        return self.end - self._now()

    def __call__(self) -> bool:
        """Return whether no further evaluation may begin; raise SearchPaused if the slice is over."""
        self._pause()
        return super().__call__()

    def begin(self) -> Deadline:
        """Begin an evaluation; raise SearchPaused if the slice is over.

        The end of the slice interrupts the evaluation, which is repeated in the next slice.  The evaluation after such an
        interruption is not interrupted, so that each gets to its end.
        """
        self._pause()
        interrupts = super().begin()
        if self._was_interrupted:
            self._was_interrupted = False
            return interrupts

        def ends() -> bool:
            if self._now() > self._slice_end:
                self._was_interrupted = True
                raise SearchPaused
            return interrupts()

        return ends

    @property
    def slice_over(self) -> bool:
        return self._now() > self._slice_end

    def pause_due(self) -> bool:
        """Return whether the slice is over, for what pauses without an exception; False for the first question in a slice."""
        if self._has_stepped:
            return self.slice_over
        self._has_stepped = True
        return False

    def _pause(self) -> None:
        if self.pause_due():
            raise SearchPaused


def within_slice(step: Callable[[], T]) -> T | Literal[Awaited.TIME_SLICE]:
    """Return the result of the step, or TIME_SLICE if the slice is over: the same step goes on in the next one."""
    try:
        return step()
    except SearchPaused:
        return Awaited.TIME_SLICE


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
        return (
            self._alone.level(now)
            if self._waiting.others_waiting_in_namespace(pod)
            else self._options.search_burst_seconds
        )

    def _overdrawn(self, pod: Pod, now: float) -> bool:
        """Return whether pods of this namespace have taken more than their share; what others take does not count."""
        namespace, alone = self._namespaces.level(pod.namespace, now) < 0, self._alone.level(now) < 0
        if not (namespace or alone):
            return False
        return namespace if self._contended(pod) else alone and self._waiting.others_waiting_in_namespace(pod)

    def _contended(self, pod: Pod) -> bool:
        """Return whether pods of other namespaces wait, or have called a moment ago."""
        other_call = self._last if self._last.namespace != pod.namespace else self._last_of_another
        return self.clock.monotonic() - other_call.at < _RECENT_SECONDS or self._waiting.waiting_in_other_namespaces(
            pod
        )
