"""`==` and `!=`, which most selectors use to compare an attribute with a constant."""

from typing import Any, Final

from dra_extender.cel.compiler.code import CompiledPart, Run, evaluated
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
    swapped = left.known
    written, operand, known = (node.arguments[1], right, left) if swapped else (node.arguments[0], left, right)
    value, text = known.value, isinstance(known.value, str)
    if not known.known or operand.known or not (value if text else type(value) in _NUMERIC):
        return CompiledPart(run=_equals(left.run, right.run, negated=negated), cost=cost)
    path = attribute_path(written)
    if path is not None and not (text and len(value) > _SHORT):
        run = _attribute_equals(path, value, negated=negated, swapped=swapped)
    elif text:
        run = _equals_text(operand.run, value, negated=negated, swapped=swapped)
    else:
        run = _equals_number(operand.run, value, negated=negated, swapped=swapped)
    return CompiledPart(run=run, cost=cost)


def _equals_text(operand: Run, text: str, *, negated: bool, swapped: bool) -> Run:
    length = len(text)

    def run(frame: EvaluationFrame) -> bool:
        value = operand(frame)
        if type(value) is str:
            shorter = len(value)
            if shorter > length:  # noqa: PLR1730 - min() is slower, and this is the hottest path there is
                shorter = length
            if not 0 < shorter <= _SHORT:
                frame.cost += (shorter - 1) // _SHORT
            return (value == text) is not negated
        return _compare(frame, text, value, negated) if swapped else _compare(frame, value, text, negated)

    return run


def _equals_number(operand: Run, number: Any, *, negated: bool, swapped: bool) -> Run:
    kind = type(number)

    def run(frame: EvaluationFrame) -> bool:
        value = operand(frame)
        if type(value) is kind:
            return (value == number) is not negated
        return _compare(frame, number, value, negated) if swapped else _compare(frame, value, number, negated)

    return run


def _attribute_equals(path: tuple[str, str], wanted: Any, *, negated: bool, swapped: bool) -> Run:
    """Compare an attribute with a number or a text, which is so short that only an empty value has another cost."""
    domain, name = path
    kind = type(wanted)

    def run(frame: EvaluationFrame) -> bool:
        try:
            value = frame.device.attributes[domain][name]
        except KeyError:
            raise no_key(name) from None
        if type(value) is kind and value:
            return (value == wanted) is not negated
        return _compare(frame, wanted, value, negated) if swapped else _compare(frame, value, wanted, negated)

    return run


def _equals(left: Run, right: Run, *, negated: bool) -> Run:
    def run(frame: EvaluationFrame) -> bool:
        try:
            one = left(frame)
        except CelRuntimeError as error:
            if not isinstance(error, CelCostError) and size_of(evaluated(frame, right)) == 0:
                frame.cost -= 1
            raise
        try:
            other = right(frame)
        except CelRuntimeError:
            if size_of(one) == 0 and (negated or type(one) not in STRICT):
                frame.cost -= 1
            raise
        return _compare(frame, one, other, negated)

    return run


def _compare(frame: EvaluationFrame, one: Any, other: Any, negated: bool) -> bool:
    kind = type(one)
    if kind is type(other) and kind in _NUMERIC:
        return (one == other) is not negated
    shorter = 1 if kind in STRICT and not negated else min(size_of(one), size_of(other))
    if not 0 < shorter <= _SHORT:
        frame.cost += (shorter - 1) // _SHORT
    return not equal_or_false(frame, one, other) if negated else equal(frame, one, other)
