"""The smallest change of an expression after which it is true for a device: other constants in its unmet comparisons."""

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import msgspec

from dra_extender.cel.explain.evaluation import Evaluation, ExplainableExpression, ExplainedPart, operands
from dra_extender.cel.explain.messages import compared_sides
from dra_extender.cel.explain.values import quantity_text
from dra_extender.cel.runtime.budget import Budget
from dra_extender.cel.runtime.device import DeviceActivation
from dra_extender.cel.runtime.quantity import Quantity
from dra_extender.cel.runtime.semver import Semver
from dra_extender.cel.runtime.values import Optional
from dra_extender.cel.syntax import ast
from dra_extender.cel.syntax.printer import print_expression
from dra_extender.cel.types import typed_ast

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
    if _plain(evaluation.outcome(item).value) is True:
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
    value = _plain(evaluation.outcome(left).value)
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


def _plain(value: Any) -> Any:
    while type(value) is Optional and value.present:
        value = value.value
    return value
