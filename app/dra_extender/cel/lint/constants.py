"""Conditions with the same result on every device, and parts that fail on every device."""

from collections.abc import Iterator
from typing import Any, Final

from dra_extender.cel.analysis.walk import is_open, joined
from dra_extender.cel.explain.evaluation import Evaluation
from dra_extender.cel.explain.explain import explain_failure
from dra_extender.cel.lint.findings import LintCode, LintFinding, error, warning
from dra_extender.cel.syntax import ast
from dra_extender.cel.syntax.printer import print_expression
from dra_extender.cel.types import typed_ast
from dra_extender.cel.types.typed_ast import TypedNode, operands

_MOST_CONSTANTS: Final = 1000
_CONJUNCTION: Final = frozenset({"_&&_"})


def constant_findings(evaluation: Evaluation) -> Iterator[LintFinding]:
    """Yield the findings of an expression that compiles."""
    root = evaluation.root
    truth = _truth(evaluation, root)
    outcomes = ((node, evaluation.outcome(node)) for node in _closed(root))
    failures = [node for node, outcome in outcomes if outcome.error is not None and not outcome.stopped]
    for node in failures:
        finding = error if truth is None else warning
        cause = explain_failure(evaluation, node)
        lenient = ""
        if isinstance(node, typed_ast.Invoke) and node.function.name == "semver" and len(node.arguments) == 1:
            lenient = f"semver({print_expression(node.arguments[0].written)}, true)"
        yield finding(LintCode.CONSTANT_FAILURE, node.offset, f"whatever the device, {cause}", lenient)
    if failures:
        return
    if truth is False:
        reason = _contradiction(root.written)
        message = f"no device is ever selected{f': {reason}' if reason else ''}"
        yield warning(LintCode.ALWAYS_FALSE, 0, message)
    elif truth is True:
        yield warning(LintCode.ALWAYS_TRUE, 0, "every device is selected, whatever it is")


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
            holds = _truth(evaluation, node.condition)
            if holds is not None:
                return _truth(evaluation, node.then_branch if holds else node.else_branch)
            on_true, on_false = _truth(evaluation, node.then_branch), _truth(evaluation, node.else_branch)
            return on_true if on_true is on_false else None
        case typed_ast.CelBind():
            evaluation.defer(node.slot, node.source)
            return _truth(evaluation, node.body)
        case typed_ast.Invoke() if node.function.name == "!_":
            inner = _truth(evaluation, node.arguments[0])
            return None if inner is None else not inner
        case typed_ast.Invoke() if node.function.name in ast.EQUALITY:
            left, right = (print_expression(argument.written) for argument in node.arguments)
            return node.function.name == "_==_" if left == right else None
    return None


def _contradiction(root: ast.SyntaxNode) -> str:
    """Return the message about two operands of `&&` that demand different values of one part; empty if there are none."""
    allowed: dict[str, list[Any]] = {}
    forbidden: dict[str, list[Any]] = {}
    for node in joined(root, _CONJUNCTION):
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


def _demand(node: ast.SyntaxNode) -> tuple[str, list[Any], bool] | None:
    """Return what a comparison with constants demands: (subject, values, whether it must be one of them)."""
    match node:
        case ast.CallExpression(function="!_", arguments=(inner,)):
            demand = _demand(inner)
            return None if demand is None else (demand[0], demand[1], not demand[2])
        case ast.CallExpression(function="@in", arguments=(subject, ast.ListLiteral(elements=elements))):
            values = [_constant(element.value) for element in elements]
        case ast.CallExpression(function="_==_" | "_!=_", arguments=(left, right)):
            subject, constant = (right, left) if is_open(right) else (left, right)
            values = [_constant(constant)]
        case _:
            return None
    if None in values or not is_open(subject):
        return None
    return print_expression(subject), values, node.function != "_!=_"


def _constant(node: ast.SyntaxNode) -> tuple[str, Any] | None:
    """Return the type and the value of a literal text, bool or int."""
    if isinstance(node, ast.Literal) and type(node.value) in {str, bool, int}:
        return type(node.value).__name__, node.value
    return None
