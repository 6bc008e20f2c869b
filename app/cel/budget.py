"""What one call of the scheduler may spend on expressions altogether."""

from app.cel.cost import COST_LIMIT, Deadline
from app.cel.errors import CelBudgetError


class Budget:
    """Cost units and time for all evaluations of one filter call; not shared between threads.

    An evaluation is begun as long as something is left, and is limited for itself as always, so a call spends at most
    `cost` units and one evaluation's limit.
    """

    __slots__ = ("deadline", "left")

    def __init__(self, cost: int = 20 * COST_LIMIT, deadline: Deadline | None = None) -> None:
        """Begin a call.

        Args:
            cost: Cost units for all evaluations together.
            deadline: Says whether the call's time is up; evaluations that are given none of their own ask it.
        """
        self.left = cost
        self.deadline = deadline

    def require(self) -> None:
        """Check that another evaluation may begin.

        Raises:
            CelBudgetError: The budget is spent; another call may succeed.
        """
        if self.left <= 0:
            raise CelBudgetError("the evaluation was not begun: the call has spent its budget for expressions")

    def charge(self, cost: int) -> None:
        """Take off what an evaluation spent."""
        self.left -= cost
