"""What compiling one expression may take: counted in the units of a call's budget, before each stage runs.

The limits say the same of a text on every machine, so an expression that is beyond one is refused for good, as one that does
not parse.
"""

from typing import Final

from dra_extender.cel.runtime.budget import Budget
from dra_extender.cel.support.errors import CelCompileError

COMPILE_LIMIT: Final = 400_000
"""Most units for compiling one expression; by measurement a unit takes at most 50 ns there, so this is at most 20 ms."""
CLAIM_COMPILE_LIMIT: Final = 3_000_000
"""Most units for compiling all different expressions of one claim: at most 150 ms, and programs that a cache can hold."""
BYTE_UNITS: Final = 2
TOKEN_UNITS: Final = 30
"""For reading a token and for parsing it."""
CHECK_UNITS: Final = 20
"""For checking a node of the tree."""
STEP_UNITS: Final = 25
"""For a step of comparing two types, or for trying an overload."""
NODE_UNITS: Final = 40
"""For making a node something that can be run, and for measuring its size."""
READ_UNITS: Final = 10
"""For looking which attribute a node reads that is no literal; for a literal it is one."""
CALL_UNITS: Final = 90
"""For a call beside that."""
FOLD_UNITS: Final = 300
"""For a call that is evaluated while compiling, as `int("1")` is, beside the characters of its text."""
REWRITE_UNITS: Final = 50
"""For a character of an expression that is looked through for attributes in suffix form."""
TOO_LARGE: Final = f"the expression is too large: compiling it takes more than {COMPILE_LIMIT} units"


class CompileMeter:
    """Counts what compiling one expression takes, and charges it to the budget of the call if there is one."""

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
        """Charge what is about to be done at a place of the expression.

        Raises:
            CelCompileError: The expression takes more than the limit.
        """
        self.spent += units
        if self._budget is not None:
            self._budget.spend(units)
        if self.spent > COMPILE_LIMIT:
            raise CelCompileError(TOO_LARGE, self._source, offset)
