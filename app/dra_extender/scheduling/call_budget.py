"""The budget of one call for expressions and searches, and the conditions that a call waits for."""

from collections.abc import Callable, Hashable
from enum import Enum, auto
from typing import Any, Final, Literal, TypeVar

from dra_extender.allocator.state.reasons import SearchPaused
from dra_extender.cel.budget import Budget
from dra_extender.cel.cost import Deadline
from dra_extender.scheduling.ports.cluster import Clock

_NO_END: Final = float("inf")

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
