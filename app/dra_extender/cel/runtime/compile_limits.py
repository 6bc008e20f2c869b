"""The limits of compiling one expression, in the units of a call's budget; each stage is charged before it runs.

The count depends on the text alone, so an expression above the limit is refused for good, like one that does not parse.
"""

from typing import Final

from dra_extender.cel.runtime.budget import Budget
from dra_extender.cel.support.errors import CelCompileError

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
    def left(self) -> int:
        """The units up to the limit."""
        return COMPILE_LIMIT - self.spent

    def spend(self, units: int, offset: int = 0) -> None:
        """Charge units before they are used; `offset` is the position that the error names.

        Raises:
            CelCompileError: The expression takes more than the limit.
        """
        self.spent += units
        if self._budget is not None:
            self._budget.spend(units)
        if self.spent > COMPILE_LIMIT:
            raise CelCompileError(TOO_LARGE, self._source, offset)
