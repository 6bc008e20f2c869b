from collections.abc import Hashable
from typing import Any, Final

from dra_extender.allocator.state.result import SearchPaused
from dra_extender.cel.runtime.budget import Budget
from dra_extender.cel.runtime.cost import Deadline
from dra_extender.scheduling.ports.cluster import Clock

_NEVER: Final = float("inf")


class CallBudget(Budget):
    """What one call may spend on expressions and searches, in slices of time.

    When a slice is over it raises Paused where a search can go on, after at least one step or evaluation in each slice.  The
    time of the call ends in the same way, so a clock never ends a search.
    Compiling an expression pauses before it begins, in `afford`.
    `answers` are those that nothing else remembers between two slices, `closed` forbids to begin or continue a search.
    `overdrawn`: the namespace of the call has taken more than its share of time.  `paid`: its slices are not free any more.
    `read_again` are the UIDs of claims that were read from the API server for this call, because their specs are not kept.
    """

    __slots__ = (
        "_begun",
        "_cut",
        "_now",
        "_slice_end",
        "answers",
        "closed",
        "end",
        "overdrawn",
        "paid",
        "read_again",
        "slice_start",
    )

    def __init__(self, clock: Clock, seconds: float) -> None:
        """A call that may take so many seconds; its first slice lasts until `open_slice` says otherwise."""
        self._now = now = clock.monotonic
        super().__init__(clock=now)
        self.slice_start = now()
        self.end = self.slice_start + seconds
        self._slice_end = _NEVER
        self._begun = self._cut = False
        self.closed = self.overdrawn = self.paid = False
        self.answers: dict[Hashable, Any] = {}
        self.read_again: set[str] = set()

    def open_slice(self, seconds: float) -> None:
        """Begin a slice of so many seconds."""
        self.slice_start = start = self._now()
        self._slice_end = min(start + seconds, self.end)
        self._begun = False

    def close(self) -> None:
        """Nothing may be begun any more, and nothing pauses: what is not known by now is a limit that was reached."""
        self.closed = True
        self.left = 0
        self._slice_end = _NEVER

    @property
    def used(self) -> float:
        """Seconds since the slice began."""
        return self._now() - self.slice_start

    def lap(self) -> float:
        """Seconds since the slice began, or since they were asked for in this way."""
        start, self.slice_start = self.slice_start, self._now()
        return self.slice_start - start

    @property
    def seconds_left(self) -> float:
        """Seconds until the call has taken all of its time; negative after that."""
        return self.end - self._now()

    @property
    def over(self) -> bool:
        """Whether the call has taken all of its time."""
        return self._now() > self.end

    def __call__(self) -> bool:
        """Whether no further evaluation may begin.

        Raises:
            SearchPaused: the slice is over.
        """
        self._pause()
        return super().__call__()

    def begin(self) -> Deadline:
        """See Budget; raises Paused when the slice is over.

        The evaluation itself is cut short by the end of the slice and made again in the next one; the one that comes after such
        a cut is not, so that each gets to its end.
        """
        self._pause()
        interrupts = super().begin()
        if self._cut:
            self._cut = False
            return interrupts

        def ends() -> bool:
            if self._now() > self._slice_end:
                self._cut = True
                raise SearchPaused
            return interrupts()

        return ends

    def pause_due(self) -> bool:
        """Whether the slice is over, for what pauses without an exception; as there, not before something was done in it."""
        if self._begun:
            return self._now() > self._slice_end
        self._begun = True
        return False

    def _pause(self) -> None:
        if self.pause_due():
            raise SearchPaused
