"""Conditions with the same result on every device, and parts that fail on every device."""

from collections.abc import Iterator
from typing import Any, Final

from dra_extender.cel.analysis.walk import is_open
from dra_extender.cel.explain.evaluation import Evaluation, ExplainedPart, body_of, operands, source_of
from dra_extender.cel.explain.explain import explain_failure
from dra_extender.cel.lint.findings import LintCode, LintFinding, error, warning
from dra_extender.cel.syntax import ast
from dra_extender.cel.syntax.printer import print_expression
from dra_extender.cel.types import typed_ast

_MOST_CONSTANTS: Final = 1000
_EQUALITY: Final = "_==_"


def constant_findings(evaluation: Evaluation) -> Iterator[LintFinding]:
    """The findings of an expression that compiles."""
    root = evaluation.root
    truth = _truth(evaluation, root)
    failures = [each for each in _closed(root) if _fails(evaluation, each)]
    for item in failures:
        found = error if truth is None else warning
        cause = explain_failure(evaluation, item).message
        yield found(LintCode.CONSTANT_FAILURE, item.node.offset, f"whatever the device, {cause}", _remedy(item.node))
    if failures:
        return
    if truth is False:
        reason = _contradiction(root)
        message = f"no device is ever selected{f': {reason}' if reason else ''}"
        yield warning(LintCode.ALWAYS_FALSE, 0, message)
    elif truth is True:
        yield warning(LintCode.ALWAYS_TRUE, 0, "every device is selected, whatever it is")


def _fails(evaluation: Evaluation, item: ExplainedPart) -> bool:
    outcome = evaluation.outcome(item)
    return outcome.error is not None and not outcome.stopped


def _remedy(node: ast.SyntaxNode) -> str:
    """The lenient form of a version that is not a strict one."""
    if isinstance(node, ast.CallExpression) and node.function == "semver" and len(node.arguments) == 1:
        return f"semver({print_expression(node.arguments[0])}, true)"
    return ""


def _closed(root: ExplainedPart) -> Iterator[ExplainedPart]:
    """The largest calls without device and variables."""
    pending = [root]
    for _ in range(_MOST_CONSTANTS):
        if not pending:
            return
        item = pending.pop()
        if isinstance(item.checked, typed_ast.Invoke) and not is_open(item.node):
            yield item
        else:
            pending.extend(operands(item))


def _truth(evaluation: Evaluation, item: ExplainedPart) -> bool | None:
    """The value of a condition on every device, if its text decides it."""
    checked = item.checked
    if not is_open(item.node):
        value = evaluation.outcome(item).value
        return value if isinstance(value, bool) else None
    match checked:
        case typed_ast.Logical():
            return _logical(evaluation, item, checked)
        case typed_ast.Conditional():
            return _conditional(evaluation, item)
        case typed_ast.CelBind():
            evaluation.defer(checked.slot, source_of(item))
            return _truth(evaluation, body_of(item))
        case typed_ast.Invoke() if checked.function.name == "!_":
            inner = _truth(evaluation, operands(item)[0])
            return None if inner is None else not inner
    return _reflexive(item.node)


def _conditional(evaluation: Evaluation, item: ExplainedPart) -> bool | None:
    condition, chosen, other = operands(item)
    held = _truth(evaluation, condition)
    if held is not None:
        return _truth(evaluation, chosen if held else other)
    branches = {_truth(evaluation, each) for each in (chosen, other)}
    return branches.pop() if len(branches) == 1 else None


def _logical(evaluation: Evaluation, item: ExplainedPart, checked: typed_ast.Logical) -> bool | None:
    terms = [_truth(evaluation, each) for each in operands(item)]
    if checked.absorbing in terms:
        return checked.absorbing
    if all(each is not None for each in terms):
        return not checked.absorbing
    return False if not checked.absorbing and _contradiction(item) else None


def _reflexive(node: ast.SyntaxNode) -> bool | None:
    """`x == x` and `x != x`."""
    if isinstance(node, ast.CallExpression) and node.function in {_EQUALITY, "_!=_"}:
        one, other = map(print_expression, node.arguments)
        return node.function == _EQUALITY if one == other else None
    return None


def _contradiction(item: ExplainedPart) -> str:
    """The message about two operands of `&&` that demand different values of one part; empty if there are none."""
    allowed: dict[str, list[Any]] = {}
    forbidden: dict[str, list[Any]] = {}
    for node in _conjuncts(item.node):
        found = _demand(node)
        if found is None:
            continue
        subject, values, equal = found
        if not equal:
            forbidden.setdefault(subject, []).extend(values)
        elif subject in allowed:
            allowed[subject] = [each for each in allowed[subject] if each in values]
        else:
            allowed[subject] = values
        if subject in allowed and not [each for each in allowed[subject] if each not in forbidden.get(subject, [])]:
            return f"{subject} cannot have different values at once"
    return ""


def _conjuncts(node: ast.SyntaxNode) -> Iterator[ast.SyntaxNode]:
    if isinstance(node, ast.CallExpression) and node.function == "_&&_":
        for each in node.arguments:
            yield from _conjuncts(each)
    else:
        yield node


def _demand(node: ast.SyntaxNode) -> tuple[str, list[Any], bool] | None:
    """(subject, values, whether it must be one of them) of a comparison with constants."""
    if isinstance(node, ast.CallExpression) and node.function == "!_":
        found = _demand(node.arguments[0])
        return None if found is None else (found[0], found[1], not found[2])
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
    values = [_constant(each.value) for each in among.elements]
    return (print_expression(element), values, True) if all(each is not None for each in values) else None


def _constant(node: ast.SyntaxNode) -> tuple[str, Any] | None:
    """The type and the value of a literal text, bool or int."""
    if isinstance(node, ast.Literal) and type(node.value) in {str, bool, int}:
        return type(node.value).__name__, node.value
    return None
