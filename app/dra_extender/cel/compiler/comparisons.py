"""`==` and `!=`, and what they cost."""

from typing import Any, Final

from dra_extender.cel.compiler.code import CompiledPart, EvaluatePart, evaluated
from dra_extender.cel.cost import EQUALITY_WORK, SCALAR_EQUALITY_WORK, EvaluationFrame
from dra_extender.cel.errors import CelCostError, CelRuntimeError
from dra_extender.cel.native.equality import STRICT, equal, equal_or_false
from dra_extender.cel.types.types import BOOL, DOUBLE, INT, STRING, UINT, Type
from dra_extender.cel.values.values import NUMBERS, size_of

_SHORT: Final = 10
_NUMERIC: Final = NUMBERS | {bool}
_CONSTANTS: Final = _NUMERIC | {str}
_SCALARS: Final = frozenset({BOOL, INT, UINT, DOUBLE})


def compile_equality(
    left: CompiledPart, right: CompiledPart, *, negated: bool, common_type: Type | None
) -> CompiledPart:
    """Compile a comparison; `common_type` is the static type of both sides if they have one."""
    cost = 1 + left.cost + right.cost
    is_scalar = common_type in _SCALARS or (common_type is STRING and (left.folded or right.folded))
    work = SCALAR_EQUALITY_WORK if is_scalar else EQUALITY_WORK
    operand, folded = (right, left) if left.folded else (left, right)
    value = folded.value
    if not folded.folded or operand.folded or type(value) not in _CONSTANTS:
        return CompiledPart(evaluate=_equals(left.evaluate, right.evaluate, negated=negated), cost=cost, work=work)
    evaluate = _equals_constant(operand.evaluate, value, negated=negated, swapped=left.folded)
    return CompiledPart(evaluate=evaluate, cost=cost, work=work)


def _equals_constant(operand: EvaluatePart, constant: Any, *, negated: bool, swapped: bool) -> EvaluatePart:
    """Compare with a number or a text, as most conditions do; faster than `_equals`."""
    kind = type(constant)
    length = len(constant) if kind is str else 1

    def evaluate(frame: EvaluationFrame) -> bool:
        try:
            value = operand(frame)
        except CelRuntimeError as error:
            if not length and not isinstance(error, CelCostError):
                frame.cost -= 1
            raise
        if type(value) is not kind:
            return _compare(frame, constant, value, negated) if swapped else _compare(frame, value, constant, negated)
        if kind is str:
            shorter = len(value)
            if shorter > length:  # noqa: PLR1730 - min() is slower
                shorter = length
            if not 0 < shorter <= _SHORT:
                frame.cost += (shorter - 1) // _SHORT
        return (value == constant) is not negated

    return evaluate


def _equals(left: EvaluatePart, right: EvaluatePart, *, negated: bool) -> EvaluatePart:
    def evaluate(frame: EvaluationFrame) -> bool:
        try:
            left_value = left(frame)
        except CelRuntimeError as error:
            if not isinstance(error, CelCostError) and size_of(evaluated(frame, right)) == 0:
                frame.cost -= 1
            raise
        try:
            right_value = right(frame)
        except CelRuntimeError:
            if size_of(left_value) == 0 and (negated or type(left_value) not in STRICT):
                frame.cost -= 1
            raise
        return _compare(frame, left_value, right_value, negated)

    return evaluate


def _compare(frame: EvaluationFrame, left: Any, right: Any, negated: bool) -> bool:
    kind = type(left)
    if kind is type(right) and kind in _NUMERIC:
        return (left == right) is not negated
    shorter = 1 if kind in STRICT and not negated else min(size_of(left), size_of(right))
    if not 0 < shorter <= _SHORT:
        frame.cost += (shorter - 1) // _SHORT
    return not equal_or_false(frame, left, right) if negated else equal(frame, left, right)
