"""How far a device is from satisfying an expression: the nearest of many has the least distance; which driver it needs."""

from typing import Any, Final

from dra_extender.cel.explain.evaluation import (
    Evaluation,
    ExplainableExpression,
    ExplainedPart,
    body_of,
    operands,
    source_of,
)
from dra_extender.cel.explain.messages import compared_sides
from dra_extender.cel.runtime.budget import Budget
from dra_extender.cel.runtime.device import DeviceActivation
from dra_extender.cel.runtime.quantity import Quantity
from dra_extender.cel.runtime.values import Optional
from dra_extender.cel.syntax import ast
from dra_extender.cel.types import typed_ast

_WRONG: Final = 2.0
"""What a condition adds that no amount can satisfy: a text, a flag, an attribute that is absent."""
_ORDERED: Final = frozenset({"_<_", "_<=_", "_>_", "_>=_", "_==_"})
_NUMBERS: Final = frozenset({int, float})


def distance(expression: ExplainableExpression, device: DeviceActivation, budget: Budget | None = None) -> float:
    """0 if the expression is true for the device, else the sum over its unmet conditions.

    A comparison of two amounts counts 1 and the part of the larger one by which they differ; any other condition counts 2, and so
    does one that fails.  Of alternatives the nearest counts.  What is evaluated is charged to `budget`; where that is spent, the
    rest counts as unmet.
    """
    evaluation = Evaluation(expression, device, budget=budget)
    if device.defect is not None:
        return _WRONG
    return _distance(evaluation, evaluation.root, wanted=True)


def required_driver(expression: ExplainableExpression) -> str | None:
    """The driver that a device must have: `device.driver == "..."`, alone or joined by `&&`; None if there is no such part."""
    pending = [expression.root]
    while pending:
        item = pending.pop(0)
        if isinstance(item.checked, typed_ast.Logical) and item.checked.absorbing is False:
            pending += operands(item)
        elif isinstance(item.node, ast.CallExpression) and item.node.function == "_==_":
            found = _driver_of(item.node)
            if found is not None:
                return found
    return None


def _driver_of(comparison: ast.CallExpression) -> str | None:
    values = [each.value for each in comparison.arguments if isinstance(each, ast.Literal)]
    reads_driver = any(
        isinstance(each, ast.Select)
        and each.field == "driver"
        and isinstance(each.operand, ast.Identifier)
        and each.operand.name == "device"
        for each in comparison.arguments
    )
    return values[0] if reads_driver and values and isinstance(values[0], str) else None


def _distance(evaluation: Evaluation, item: ExplainedPart, *, wanted: bool) -> float:
    outcome = evaluation.outcome(item)
    if outcome.error is None and _plain(outcome.value) is wanted:
        return 0.0
    checked = item.checked
    match checked:
        case typed_ast.Logical():
            terms = (_distance(evaluation, each, wanted=wanted) for each in operands(item))
            # `&&` that should be true, and `||` that should be false, need all their terms.
            return sum(terms) if checked.absorbing is not wanted else min(terms, default=_WRONG)
        case typed_ast.Invoke() if checked.function.name == "!_":
            return _distance(evaluation, operands(item)[0], wanted=not wanted)
        case typed_ast.CelBind():
            evaluation.defer(checked.slot, source_of(item))
            return _distance(evaluation, body_of(item), wanted=wanted)
    return _WRONG if outcome.error is not None else _of_comparison(evaluation, item)


def _of_comparison(evaluation: Evaluation, item: ExplainedPart) -> float:
    node = item.node
    if not isinstance(node, ast.CallExpression) or node.function not in _ORDERED:
        return _WRONG
    found = [_number(evaluation.outcome(each).value) for each in compared_sides(operands(item))]
    left, right = found if len(found) == len(("left", "right")) else (None, None)
    if left is None or right is None:
        return _WRONG
    return 1.0 + abs(left - right) / max(abs(left), abs(right), 1)


def _number(value: Any) -> float | None:
    value = _plain(value)
    if isinstance(value, Quantity):
        return float(value.nano)
    return float(value) if type(value) in _NUMBERS else None


def _plain(value: Any) -> Any:
    while type(value) is Optional and value.present:
        value = value.value
    return value
