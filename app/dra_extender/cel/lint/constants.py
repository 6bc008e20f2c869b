"""Conditions with the same result on every device, and parts that fail on every device."""

from collections.abc import Iterator
from typing import Any, Final

from dra_extender.cel.analysis.walk import is_open
from dra_extender.cel.explain.evaluation import Evaluation
from dra_extender.cel.explain.explain import explain_failure
from dra_extender.cel.lint.findings import LintCode, LintFinding, error, warning
from dra_extender.cel.syntax import ast
from dra_extender.cel.syntax.printer import print_expression
from dra_extender.cel.types import typed_ast
from dra_extender.cel.types.typed_ast import TypedNode, operands

_MOST_CONSTANTS: Final = 1000
_EQUALITY: Final = "_==_"


def constant_findings(evaluation: Evaluation) -> Iterator[LintFinding]:
    """Yield the findings of an expression that compiles."""
    root = evaluation.root
    truth = _truth(evaluation, root)
    failures = [node for node in _closed(root) if _fails(evaluation, node)]
    for node in failures:
        finding = error if truth is None else warning
        cause = explain_failure(evaluation, node).message
        suggestion = _lenient_version(node.written)
        yield finding(LintCode.CONSTANT_FAILURE, node.offset, f"whatever the device, {cause}", suggestion)
    if failures:
        return
    if truth is False:
        reason = _contradiction(root.written)
        message = f"no device is ever selected{f': {reason}' if reason else ''}"
        yield warning(LintCode.ALWAYS_FALSE, 0, message)
    elif truth is True:
        yield warning(LintCode.ALWAYS_TRUE, 0, "every device is selected, whatever it is")


def _fails(evaluation: Evaluation, node: TypedNode) -> bool:
    outcome = evaluation.outcome(node)
    return outcome.error is not None and not outcome.stopped


def _lenient_version(node: ast.SyntaxNode) -> str:
    """Return the lenient form of a version that is not a strict one; empty for any other node."""
    if isinstance(node, ast.CallExpression) and node.function == "semver" and len(node.arguments) == 1:
        return f"semver({print_expression(node.arguments[0])}, true)"
    return ""


def _closed(root: TypedNode) -> Iterator[TypedNode]:
    """Yield the largest calls without device and variables."""
    pending = [root]
    for _ in range(_MOST_CONSTANTS):
        if not pending:
            return
        node = pending.pop()
        if isinstance(node, typed_ast.Invoke) and not is_open(node.written):
            yield node
        else:
            pending.extend(operands(node))


def _truth(evaluation: Evaluation, node: TypedNode) -> bool | None:
    """Return the value of a condition on every device, if its text decides it."""
    if not is_open(node.written):
        value = evaluation.outcome(node).value
        return value if isinstance(value, bool) else None
    match node:
        case typed_ast.Logical():
            terms = [_truth(evaluation, term) for term in node.terms]
            if node.absorbing in terms:
                return node.absorbing
            if None not in terms:
                return not node.absorbing
            return False if not node.absorbing and _contradiction(node.written) else None
        case typed_ast.Conditional():
            held = _truth(evaluation, node.condition)
            if held is not None:
                return _truth(evaluation, node.chosen if held else node.other)
            chosen, other = _truth(evaluation, node.chosen), _truth(evaluation, node.other)
            return chosen if chosen is other else None
        case typed_ast.CelBind():
            evaluation.defer(node.slot, node.source)
            return _truth(evaluation, node.body)
        case typed_ast.Invoke() if node.function.name == "!_":
            inner = _truth(evaluation, node.arguments[0])
            return None if inner is None else not inner
    return _reflexive(node.written)


def _reflexive(node: ast.SyntaxNode) -> bool | None:
    """Return the value of `x == x` and of `x != x`."""
    if isinstance(node, ast.CallExpression) and node.function in {_EQUALITY, "_!=_"}:
        one, other = map(print_expression, node.arguments)
        return node.function == _EQUALITY if one == other else None
    return None


def _contradiction(root: ast.SyntaxNode) -> str:
    """Return the message about two operands of `&&` that demand different values of one part; empty if there are none."""
    allowed: dict[str, list[Any]] = {}
    forbidden: dict[str, list[Any]] = {}
    for node in _conjuncts(root):
        demand = _demand(node)
        if demand is None:
            continue
        subject, values, equal = demand
        if not equal:
            forbidden.setdefault(subject, []).extend(values)
        elif subject in allowed:
            allowed[subject] = [value for value in allowed[subject] if value in values]
        else:
            allowed[subject] = values
        if subject in allowed and not [value for value in allowed[subject] if value not in forbidden.get(subject, [])]:
            return f"{subject} cannot have different values at once"
    return ""


def _conjuncts(node: ast.SyntaxNode) -> Iterator[ast.SyntaxNode]:
    if isinstance(node, ast.CallExpression) and node.function == "_&&_":
        for argument in node.arguments:
            yield from _conjuncts(argument)
    else:
        yield node


def _demand(node: ast.SyntaxNode) -> tuple[str, list[Any], bool] | None:
    """Return what a comparison with constants demands: (subject, values, whether it must be one of them)."""
    if isinstance(node, ast.CallExpression) and node.function == "!_":
        demand = _demand(node.arguments[0])
        return None if demand is None else (demand[0], demand[1], not demand[2])
    if not isinstance(node, ast.CallExpression) or node.function not in {_EQUALITY, "_!=_", "@in"}:
        return None
    if node.function == "@in":
        return _membership_demand(*node.arguments)
    left, right = node.arguments
    subject, other = (right, left) if is_open(right) else (left, right)
    value = _constant(other)
    return (
        (print_expression(subject), [value], node.function == _EQUALITY)
        if value is not None and is_open(subject)
        else None
    )


def _membership_demand(element: ast.SyntaxNode, among: ast.SyntaxNode) -> tuple[str, list[Any], bool] | None:
    if not is_open(element) or not isinstance(among, ast.ListLiteral):
        return None
    values = [_constant(element.value) for element in among.elements]
    return (print_expression(element), values, True) if all(value is not None for value in values) else None


def _constant(node: ast.SyntaxNode) -> tuple[str, Any] | None:
    """Return the type and the value of a literal text, bool or int."""
    if isinstance(node, ast.Literal) and type(node.value) in {str, bool, int}:
        return type(node.value).__name__, node.value
    return None
