"""`==` and `!=`, which most selectors use to compare an attribute with a constant."""

from typing import Any, Final

from dra_extender.cel.compiler.code import CompiledPart, EvaluatePart, evaluated
from dra_extender.cel.compiler.selections import attribute_path, no_key
from dra_extender.cel.cost import EvaluationFrame
from dra_extender.cel.errors import CelCostError, CelRuntimeError
from dra_extender.cel.native.equality import STRICT, equal, equal_or_false
from dra_extender.cel.types import typed_ast
from dra_extender.cel.values.values import NUMBERS, size_of

_SHORT: Final = 10
_NUMERIC: Final = NUMBERS | {bool}


def compile_equality(node: typed_ast.Invoke, left: CompiledPart, right: CompiledPart, *, negated: bool) -> CompiledPart:
    cost = 1 + left.cost + right.cost
    swapped = left.folded
    written, operand, folded_part = (node.arguments[1], right, left) if swapped else (node.arguments[0], left, right)
    value, text = folded_part.value, isinstance(folded_part.value, str)
    if not folded_part.folded or operand.folded or not (value if text else type(value) in _NUMERIC):
        return CompiledPart(evaluate=_equals(left.evaluate, right.evaluate, negated=negated), cost=cost)
    path = attribute_path(written)
    if path is not None and not (text and len(value) > _SHORT):
        evaluate = _attribute_equals(path, value, negated=negated, swapped=swapped)
    elif text:
        evaluate = _equals_text(operand.evaluate, value, negated=negated, swapped=swapped)
    else:
        evaluate = _equals_number(operand.evaluate, value, negated=negated, swapped=swapped)
    return CompiledPart(evaluate=evaluate, cost=cost)


def _equals_text(operand: EvaluatePart, text: str, *, negated: bool, swapped: bool) -> EvaluatePart:
    length = len(text)

    def evaluate(frame: EvaluationFrame) -> bool:
        value = operand(frame)
        if type(value) is str:
            shorter = len(value)
            if shorter > length:  # noqa: PLR1730 - min() is slower, and this is the hottest path there is
                shorter = length
            if not 0 < shorter <= _SHORT:
                frame.cost += (shorter - 1) // _SHORT
            return (value == text) is not negated
        return _compare(frame, text, value, negated) if swapped else _compare(frame, value, text, negated)

    return evaluate


def _equals_number(operand: EvaluatePart, number: Any, *, negated: bool, swapped: bool) -> EvaluatePart:
    kind = type(number)

    def evaluate(frame: EvaluationFrame) -> bool:
        value = operand(frame)
        if type(value) is kind:
            return (value == number) is not negated
        return _compare(frame, number, value, negated) if swapped else _compare(frame, value, number, negated)

    return evaluate


def _attribute_equals(path: tuple[str, str], constant: Any, *, negated: bool, swapped: bool) -> EvaluatePart:
    """Compare an attribute with a number or a text, which is so short that only an empty value has another cost."""
    domain, name = path
    kind = type(constant)

    def evaluate(frame: EvaluationFrame) -> bool:
        try:
            value = frame.device.attributes[domain][name]
        except KeyError:
            raise no_key(name) from None
        if type(value) is kind and value:
            return (value == constant) is not negated
        return _compare(frame, constant, value, negated) if swapped else _compare(frame, value, constant, negated)

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
