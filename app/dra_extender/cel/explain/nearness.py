"""How far a device is from satisfying an expression, and the smallest change of the expression that selects it."""

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import msgspec

from dra_extender.cel.budget import Budget
from dra_extender.cel.device import DeviceActivation
from dra_extender.cel.explain.evaluation import (
    Evaluation,
    ExplainableExpression,
    ExplainedPart,
    body_of,
    operands,
    source_of,
)
from dra_extender.cel.explain.messages import compared_sides
from dra_extender.cel.explain.values import quantity_text
from dra_extender.cel.syntax import ast
from dra_extender.cel.syntax.printer import print_expression
from dra_extender.cel.types import typed_ast
from dra_extender.cel.values.quantity import Quantity
from dra_extender.cel.values.semver import Semver
from dra_extender.cel.values.values import unwrapped

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
    if outcome.error is None and unwrapped(outcome.value) is wanted:
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
    value = unwrapped(value)
    if isinstance(value, Quantity):
        return float(value.nano)
    return float(value) if type(value) in _NUMBERS else None


_WEAKER: Final = {"_<_": "_<=_", "_<=_": "_<=_", "_>_": "_>=_", "_>=_": "_>=_", "_==_": "_==_"}
_MIRRORED: Final = {"_<_": "_>_", "_<=_": "_>=_", "_>_": "_<_", "_>=_": "_<=_", "_==_": "_==_"}
_METHODS: Final = {"isGreaterThan": "_>_", "isLessThan": "_<_"}
"""Comparisons of quantities and versions by their methods."""
_SYMBOLS: Final = {"_<=_": "<=", "_>=_": ">=", "_==_": "=="}
_PLAIN: Final = (bool, int, float, str)


class Relaxation(NamedTuple):
    """Another expression, and what it asks for in the place of the unmet conditions: `memory >= 40Gi`."""

    expression: str
    conditions: tuple[str, ...]


def relaxed(
    expression: ExplainableExpression, device: DeviceActivation, budget: Budget | None = None
) -> Relaxation | None:
    """The expression with constants that the device has, in each comparison that is false for it; None if that is not enough.

    Only comparisons joined by `&&` are changed.  What is evaluated is charged to `budget`; None also where that is spent.
    """
    evaluation = Evaluation(expression, device, budget=budget)
    if device.defect is not None:
        return None
    changes: dict[int, ast.SyntaxNode] = {}
    conditions: list[str] = []
    for item in _unmet(evaluation, evaluation.root):
        found = _weakened(evaluation, item)
        if found is None:
            return None
        changes[id(item.node)], text = found
        conditions.append(text)
    if not changes:
        return None
    return Relaxation(print_expression(_replaced(evaluation.root.node, changes)), tuple(conditions))


def _unmet(evaluation: Evaluation, item: ExplainedPart) -> Iterator[ExplainedPart]:
    if unwrapped(evaluation.outcome(item).value) is True:
        return
    if isinstance(item.checked, typed_ast.Logical) and item.checked.absorbing is False:
        for each in operands(item):
            yield from _unmet(evaluation, each)
    else:
        yield item


def _weakened(evaluation: Evaluation, item: ExplainedPart) -> tuple[ast.SyntaxNode, str] | None:
    """The comparison with the value that the device has; None if it is no comparison of a value with a constant."""
    node = item.node
    if not isinstance(node, ast.CallExpression):
        return None
    function = _METHODS.get(node.function, node.function)
    if function not in _WEAKER:
        return None
    sides = operands(item)
    left, right = sides if node.function in _METHODS else compared_sides(sides)
    symbol = _WEAKER[function]
    if not evaluation.is_open(left):
        left, right, symbol = right, left, _WEAKER[_MIRRORED[function]]
    value = unwrapped(evaluation.outcome(left).value)
    if evaluation.is_open(right) or evaluation.outcome(left).error is not None:
        return None
    if isinstance(value, Quantity | Semver):
        text = quantity_text(value.nano) if isinstance(value, Quantity) else value.text
        maker = "quantity" if isinstance(value, Quantity) else "semver"
        literal: ast.SyntaxNode = _call(maker, None, _literal(text))
        compared: ast.SyntaxNode = _call(symbol, None, _call("compareTo", left.node, literal), _literal(0))
    elif type(value) in _PLAIN:
        text = f'"{value}"' if isinstance(value, str) else str(value).lower()
        compared = _call(symbol, None, left.node, _literal(value))
    else:
        return None
    return compared, f"{_name(left.node)} {_SYMBOLS[symbol]} {text}"


def _name(node: ast.SyntaxNode) -> str:
    """The last name of an access, which is what people call an attribute or a capacity; else the whole text."""
    return node.field if isinstance(node, ast.Select) else print_expression(node)


def _literal(value: Any) -> ast.Literal:
    return ast.Literal(0, 1, value)


def _call(function: str, target: ast.SyntaxNode | None, *arguments: ast.SyntaxNode) -> ast.CallExpression:
    return ast.CallExpression(0, ast.depth_above(target, *arguments), function, target, arguments)


def _replaced(node: ast.SyntaxNode, changes: dict[int, ast.SyntaxNode]) -> ast.SyntaxNode:
    """The tree with other nodes in the place of conditions, which are joined by calls alone."""
    if id(node) in changes:
        return changes[id(node)]
    if not isinstance(node, ast.CallExpression):
        return node
    return msgspec.structs.replace(node, arguments=tuple(_replaced(each, changes) for each in node.arguments))
