"""What one call of the scheduler may spend on expressions altogether: compiling, evaluating and explaining them."""

from collections.abc import Callable
from typing import Final

from dra_extender.cel.runtime.cost import COST_LIMIT, Deadline, EvaluationFrame
from dra_extender.cel.support.errors import CelBudgetError

CALL_COST: Final = 40 * COST_LIMIT
"""Cost units for all evaluations of a call: about a million evaluations of an ordinary selector, or forty that go to the limit."""
EXPLANATION_COST: Final = 200_000
"""Cost units for explaining one refusal, all devices and selectors together; at most 10 ms at 50 ns a unit."""
EVALUATION_SECONDS: Final = 0.1
"""Seconds that a single evaluation may take; the counted limits end it sooner on any ordinary machine."""
_WORK_PER_COST: Final = 2


class Budget:
    """The one meter of a call: cost units and time for all expressions together; not shared between threads.

    An evaluation, and the compilation of an expression, is begun as long as something is left, and is limited for itself as
    always, so a call spends at most `cost` units and the limit of one of these.
    A budget is itself a deadline: called, it tells that time or units are used up.
    """

    __slots__ = ("_clock", "_ends", "_seconds_each", "deadline", "left", "strict")

    def __init__(
        self,
        cost: int = CALL_COST,
        deadline: Deadline | None = None,
        *,
        clock: Callable[[], float] | None = None,
        seconds_each: float = EVALUATION_SECONDS,
        strict: bool = False,
    ) -> None:
        """Begin a call.

        Args:
            cost: Cost units for all evaluations together.
            deadline: Says whether the call's time is up; evaluations that are given none of their own ask it.
            clock: Seconds, never going back; without it a single evaluation is limited by what is counted alone.
            seconds_each: Seconds that an evaluation may take. One that takes longer uses the whole budget up, for the next
                devices would take as long.
            strict: End an evaluation, too, when it has spent what was left before it.
        """
        self.strict = strict
        self.left = cost
        self.deadline = deadline
        self._clock = clock
        self._seconds_each = seconds_each
        self._ends: float | None = None

    def __call__(self) -> bool:
        """Whether no further evaluation may begin."""
        return self.left <= 0 or (self.deadline is not None and self.deadline())

    def begin(self) -> Deadline:
        """Begin an evaluation; gives the deadline to ask during it, which starts its clock when it is first asked.

        Raises:
            CelBudgetError: The budget is spent; another call may succeed.
        """
        if self.left <= 0:
            raise CelBudgetError("the evaluation was not begun: the call has spent its budget for expressions")
        self._ends = None
        return self._interrupts

    def afford(self, what: str) -> None:
        """Refuse to begin something that is limited for itself when nothing is left; `what` names it.

        Raises:
            CelBudgetError: The units or the time of the call are used up; another call may succeed.
        """
        if self():
            raise CelBudgetError(f"{what} was not begun: the call has spent its budget for expressions")

    def spend(self, units: int) -> None:
        """Take off what is about to be done."""
        self.left -= units

    def spend_on_compiling(self, work: int) -> None:
        """Take off what compiling a regular expression again takes, in units of work, before an evaluation does so.

        Raises:
            CelBudgetError: The units or the time of the call are used up; another call may succeed.
        """
        self.afford("the compilation of a regular expression")
        self.spend(work // _WORK_PER_COST)

    def _interrupts(self) -> bool:
        if self._clock is not None:
            now = self._clock()
            if self._ends is None:
                self._ends = now + self._seconds_each
            if now > self._ends:
                self.left = 0
                return True
        return self.deadline is not None and self.deadline()

    def charge(self, frame: EvaluationFrame) -> None:
        """Take off what an evaluation spent: its cost, or our own count of its work where that is more."""
        self.left -= spent_in(frame)

    def watch(self, frame: EvaluationFrame) -> None:
        """Pay for what an evaluation that is about to begin compiles, and have it end where this budget does if it is strict."""
        frame.budget = self
        if self.strict:
            asked = frame.deadline
            frame.deadline = lambda: spent_in(frame) > self.left or (asked is not None and asked())


def spent_in(frame: EvaluationFrame) -> int:
    """What an evaluation has spent so far."""
    return max(frame.cost, frame.work // _WORK_PER_COST)
