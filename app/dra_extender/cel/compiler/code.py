"""The result of compiling a part of an expression: a closure over a frame, and the cost that running it always has."""

from collections.abc import Callable
from typing import Any, Final

import msgspec

from dra_extender.cel.cost import FAILURE_WORK, EvaluationFrame
from dra_extender.cel.errors import CelCostError, CelRuntimeError

EvaluatePart = Callable[[EvaluationFrame], Any]
FAILED: Final = object()
"""Stands for an argument or result that is an error; cost formulas take its size as one."""


class CompiledPart(msgspec.Struct, frozen=True, kw_only=True):
    """A compiled part of an expression.

    Attributes:
        evaluate: Returns the value of the part in a frame.
        cost: Its constant cost, which the part that contains this one charges: a straight line of operations is charged once.
        work: The most units of work that running it once takes, without its parts and without what it charges when it runs.
        selection: It is a variable or a selection from one.
        path: The one unit that upstream charges for a whole path of selections, except where it is a branch of `?:` or a key.
        constant: It is a literal, which costs nothing.
        folded: `value` was computed at compile time, although the part may cost.
        value: The value of a part that is constant or folded.
    """

    evaluate: EvaluatePart
    cost: int
    work: int
    selection: bool = False
    path: int = 0
    constant: bool = False
    folded: bool = False
    value: Any = None


def constant(value: Any) -> CompiledPart:
    return CompiledPart(evaluate=lambda _: value, cost=0, work=0, constant=True, folded=True, value=value)


def first_failure(frame: EvaluationFrame, error: CelRuntimeError, before: str | None) -> str:
    """Return the message that several parts fail with, charged for one more that failed: parts behind it are evaluated and charged.

    A limit that is reached ends the evaluation.
    """
    if isinstance(error, CelCostError):
        raise error
    frame.spend(FAILURE_WORK)
    return str(error) if before is None else before


def evaluated(frame: EvaluationFrame, evaluate: EvaluatePart) -> Any:
    """Return the value of a part that is evaluated for its cost only; FAILED if it fails."""
    try:
        return evaluate(frame)
    except CelCostError:
        raise
    except CelRuntimeError:
        return FAILED
