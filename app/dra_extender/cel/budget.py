"""What expressions may spend: the budget of one call for all its expressions, and the limit of compiling one.

The count of compiling depends only on the text, so an expression above the limit is refused for good, like one that does not
parse.
"""

from collections.abc import Callable
from typing import Final

from dra_extender.cel.cost import COST_LIMIT, Deadline, EvaluationFrame
from dra_extender.cel.errors import CelBudgetError, CelCompileError

CALL_COST: Final = 40 * COST_LIMIT
"""Cost units for all evaluations of a call: about a million of an ordinary selector, or forty that reach their limit."""
EXPLANATION_COST: Final = 200_000
"""Cost units for explaining one rejection, all devices and selectors together; at most 10 ms at 50 ns a unit."""
EVALUATION_SECONDS: Final = 0.1
"""Seconds that one evaluation may take; on an ordinary machine the counted limits end it sooner."""
_WORK_PER_COST: Final = 2


class Budget:
    """Cost units and time of one call for all its expressions; not shared between threads.

    An evaluation or a compilation begins if units are left, and has limits of its own. So a call spends at most `cost` units and
    the limit of one of these.
    A budget is a `Deadline`: calling it says whether it is spent. The search takes a budget wherever it takes a
    deadline, and calls it often, so it is callable instead of having a method for this.
    """

    __slots__ = ("_clock", "_ends", "remaining", "strict")

    def __init__(
        self, cost: int = CALL_COST, *, clock: Callable[[], float] | None = None, strict: bool = False
    ) -> None:
        """Begin a call.

        Args:
            cost: Cost units for all evaluations together.
            clock: Monotonic seconds; without it, only the counted limits end an evaluation.
            strict: Also end an evaluation as soon as it has spent what was left when it began.
        """
        self.strict = strict
        self.remaining = cost
        self._clock = clock
        self._ends: float | None = None

    def __call__(self) -> bool:
        """Return whether no further evaluation may begin."""
        return self.remaining <= 0

    def begin(self) -> Deadline:
        """Begin an evaluation, unless the budget is spent; return its deadline, which starts to count when it is first called."""
        if self.remaining <= 0:
            raise CelBudgetError("the evaluation was not begun: the call has spent its budget for expressions")
        self._ends = None
        return self._evaluation_is_late

    def afford(self, what: str) -> None:
        """Require units before something begins that has limits of its own; `what` names it in the CelBudgetError.

        It calls the budget, which may require more: the budget of a call pauses at the end of its slice.
        """
        if self():
            raise CelBudgetError(f"{what} was not begun: the call has spent its budget for expressions")

    def spend(self, units: int) -> None:
        """Charge units before they are used."""
        self.remaining -= units

    def spend_on_compiling(self, work: int) -> None:
        """Charge units of work before an evaluation compiles a regular expression that the cache has evicted."""
        self.afford("the compilation of a regular expression")
        self.spend(work // _WORK_PER_COST)

    def _evaluation_is_late(self) -> bool:
        """Return whether the evaluation took too long; the whole budget is spent then, as the next devices would take as long."""
        if self._clock is None:
            return False
        now = self._clock()
        if self._ends is None:
            self._ends = now + EVALUATION_SECONDS
        if now > self._ends:
            self.remaining = 0
            return True
        return False

    def charge(self, frame: EvaluationFrame) -> None:
        """Charge what an evaluation spent: its cost, or its work where that is more."""
        self.remaining -= spent_in(frame)

    def watch(self, frame: EvaluationFrame) -> None:
        """Charge this budget for what an evaluation compiles; if the budget is strict, it ends the evaluation when it is spent."""
        frame.budget = self
        if self.strict:
            deadline = frame.deadline
            frame.deadline = lambda: spent_in(frame) > self.remaining or (deadline is not None and deadline())


def spent_in(frame: EvaluationFrame) -> int:
    """Return the cost units that an evaluation has spent so far."""
    return max(frame.cost, frame.work // _WORK_PER_COST)


COMPILE_LIMIT: Final = 400_000
"""Most units for compiling one expression: at most 20 ms, because a unit takes at most 50 ns by measurement."""
CLAIM_COMPILE_LIMIT: Final = 3_000_000
"""Most units for compiling all different expressions of one claim: at most 150 ms, and programs that fit into the cache."""
BYTE_UNITS: Final = 2
TOKEN_UNITS: Final = 30
"""For reading and parsing a token."""
CHECK_UNITS: Final = 20
"""For checking a node of the tree."""
STEP_UNITS: Final = 25
"""For a step of comparing two types, or for trying an overload."""
NODE_UNITS: Final = 40
"""For compiling a node to a closure, and for measuring its size."""
READ_UNITS: Final = 10
"""For finding which attribute a node reads; a literal takes one unit."""
CALL_UNITS: Final = 90
"""For a call, in addition to the units of its node."""
FOLD_UNITS: Final = 300
"""For a call such as `int("1")` that is evaluated at compile time, in addition to one unit for each character of its text."""
REWRITE_UNITS: Final = 50
"""For each character of an expression in which attributes in suffix form are rewritten."""
TOO_LARGE: Final = f"the expression is too large: compiling it takes more than {COMPILE_LIMIT} units"


class CompileMeter:
    """Counts the units of compiling one expression, and charges them to the budget of the call if there is one."""

    __slots__ = ("_budget", "_source", "spent")

    def __init__(self, source: str, budget: Budget | None = None) -> None:
        """Begin; `source` is the expression, for the error."""
        self.spent = 0
        self._source = source
        self._budget = budget

    @property
    def remaining(self) -> int:
        """The units up to the limit."""
        return COMPILE_LIMIT - self.spent

    def spend(self, units: int, offset: int = 0) -> None:
        """Charge units before they are used; more units than the limit are a CelCompileError at the offset."""
        self.spent += units
        if self._budget is not None:
            self._budget.spend(units)
        if self.spent > COMPILE_LIMIT:
            raise CelCompileError(TOO_LARGE, self._source, offset)
