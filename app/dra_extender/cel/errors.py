"""The errors of expressions, by what the caller can do about them.

CelError
├── CelCompileError        the expression is wrong for every device: its author must change it
└── CelRuntimeError        the expression fails on this device: upstream aborts the pod, it is never "no match"
    └── CelCostError       the evaluation exceeds a limit; `||` and `&&` do not absorb it
        ├── CelDeadlineError   the caller's deadline passed; evaluating again later may succeed
        └── CelBudgetError     the caller's budget for many evaluations was spent before this one began
"""

_SHOWN_WIDTH = 200
_LONGEST_MESSAGE = 500


class CelError(Exception):
    """Base of everything the engine raises on purpose."""


class CelCompileError(CelError):
    """The expression is not valid; the message names line and column and points at the place."""

    def __init__(self, message: str, source: str = "", offset: int = 0) -> None:
        if len(message) > _LONGEST_MESSAGE:
            message = f"{message[: _LONGEST_MESSAGE - 3]}..."
        self.reason = message
        self.source = source
        self.offset = offset
        self.line, self.column = source.count("\n", 0, offset) + 1, offset - source.rfind("\n", 0, offset)
        first = max(0, self.column - 1 - _SHOWN_WIDTH // 2)
        excerpt = source[offset + 1 - self.column :].partition("\n")[0][first : first + _SHOWN_WIDTH]
        super().__init__(f"{self.line}:{self.column}: {message}\n | {excerpt}\n | {'.' * (self.column - 1 - first)}^")


class CelRuntimeError(CelError):
    """The evaluation failed for this device."""


class CelCostError(CelRuntimeError):
    """The evaluation exceeded a limit of cost, work or size."""


class CelDeadlineError(CelCostError):
    """The caller's deadline passed during the evaluation."""


class CelBudgetError(CelCostError):
    """The budget of the call was spent before this evaluation or compilation began."""


def quoted(expression: str) -> str:
    """Return the expression in quotes, for messages; a long one is cut."""
    return repr(expression if len(expression) <= _SHOWN_WIDTH else f"{expression[: _SHOWN_WIDTH - 3]}...")
