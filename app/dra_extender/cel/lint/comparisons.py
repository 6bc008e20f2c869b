"""Comparisons that do not exist: quantities and versions compare by their own functions only."""

import re
from collections.abc import Iterator
from contextlib import suppress
from typing import Final

from dra_extender.cel.analysis.attributes import AccessKind, access_of, kind_of
from dra_extender.cel.analysis.walk import nodes_of
from dra_extender.cel.lint.findings import LintCode, LintFinding, error, warning
from dra_extender.cel.syntax import ast
from dra_extender.cel.syntax.printer import print_expression, text_literal
from dra_extender.cel.values.quantity import QuantityError, read_quantity
from dra_extender.cel.values.semver import SemverError, parse_lenient, parse_semver

_ORDER: Final = frozenset(name.strip("_") for name in ast.ORDERINGS)
_EQUALITY: Final = frozenset(name.strip("_") for name in ast.EQUALITY)
_PLAIN: Final = frozenset({AccessKind.TEXT, AccessKind.NUMBER})
_QUANTITIES: Final = frozenset({AccessKind.CAPACITY, AccessKind.QUANTITY})
_VERSION: Final = re.compile(r"v?[0-9]{1,9}(\.[0-9]{1,9}){0,2}([-+].{1,100})?")
_DOTTED: Final = re.compile(r"v?[0-9]{1,9}\.[0-9]{1,9}(\.[0-9]{1,9})?([-+].{1,100})?")


def comparison_findings(root: ast.SyntaxNode) -> Iterator[LintFinding]:
    for node in nodes_of(root):
        if not isinstance(node, ast.CallExpression):
            continue
        if node.function in ast.MIRRORED:
            left, right = node.arguments
            finding = _operator(node, left, right, node.function.strip("_"))
            if finding is None:
                finding = _operator(node, right, left, ast.MIRRORED[node.function].strip("_"))
            if finding is not None:
                yield finding
        elif node.function in ast.ORDERING_METHODS and node.target is not None and len(node.arguments) == 1:
            target = node.target
            argument = node.arguments[0]
            target_kind, argument_kind = kind_of(target), kind_of(argument)
            if target_kind in _QUANTITIES and argument_kind in _PLAIN:
                message = f"{node.function} of a quantity needs a quantity"
                suggestion = _call(target, node.function, _quantity(argument))
                yield error(LintCode.CAPACITY_COMPARISON, node.offset, message, suggestion)
            elif target_kind is AccessKind.ATTRIBUTE and argument_kind is AccessKind.QUANTITY:
                yield _of_attribute(node, target, certain=True)
            elif target_kind in {AccessKind.ATTRIBUTE, AccessKind.SEMVER} and argument_kind is AccessKind.TEXT:
                suggestion = _call(target, node.function, _semver(argument))
                yield error(
                    LintCode.VERSION_COMPARISON,
                    node.offset,
                    f"{node.function} of a version needs a version",
                    suggestion,
                )
            elif target_kind is AccessKind.CAPACITY and argument_kind is AccessKind.SEMVER:
                yield error(LintCode.CAPACITY_COMPARISON, node.offset, "a capacity is a quantity, not a version")


def _operator(
    node: ast.CallExpression, subject: ast.SyntaxNode, operand: ast.SyntaxNode, symbol: str
) -> LintFinding | None:
    """Return the finding about `subject symbol operand`."""
    subject_kind, operand_kind = kind_of(subject), kind_of(operand)
    ordered = symbol in _ORDER
    if subject_kind in _QUANTITIES and (operand_kind in _PLAIN or (ordered and operand_kind in _QUANTITIES)):
        what = "a capacity is a quantity, which" if subject_kind is AccessKind.CAPACITY else "a quantity"
        how = "compares with quantities only" if operand_kind in _PLAIN else f"compares by compareTo, not by {symbol}"
        message = f"{what} {how}"
        return error(LintCode.CAPACITY_COMPARISON, node.offset, message, _compare(subject, _quantity(operand), symbol))
    if subject_kind is AccessKind.SEMVER and operand_kind in _PLAIN:
        message = f"a version does not compare with {'text' if operand_kind is AccessKind.TEXT else 'a number'}"
        return error(LintCode.VERSION_COMPARISON, node.offset, message, _compare(subject, _semver(operand), symbol))
    return _attribute_operator(node, subject, operand, symbol) if subject_kind is AccessKind.ATTRIBUTE else None


def _attribute_operator(
    node: ast.CallExpression, subject: ast.SyntaxNode, operand: ast.SyntaxNode, symbol: str
) -> LintFinding | None:
    """Return the finding about `subject symbol operand`, where the subject is an attribute."""
    kind, ordered = kind_of(operand), symbol in _ORDER
    if kind is AccessKind.QUANTITY:
        return _of_attribute(node, subject, certain=ordered)
    if kind is AccessKind.SEMVER and ordered:
        message = f"versions compare by compareTo, not by {symbol}"
        suggestion = _compare(subject, print_expression(operand), symbol)
        return error(LintCode.VERSION_COMPARISON, node.offset, message, suggestion)
    return _version_as_text(node, subject, operand, symbol) if kind is AccessKind.TEXT else None


def _version_as_text(
    node: ast.CallExpression, subject: ast.SyntaxNode, operand: ast.SyntaxNode, symbol: str
) -> LintFinding | None:
    access = access_of(subject)
    assert access is not None and isinstance(operand, ast.Literal)  # noqa: S101, PT018 - for the type checker; their kinds say so
    named = access.name.casefold().endswith("version")
    suggestion = _compare(subject, _semver(operand), symbol)
    if symbol in _EQUALITY:
        if not named or not _DOTTED.fullmatch(operand.value):
            return None
        message = f"if {access.name} is published as a version, comparing it with text fails; a version equals semver(...) only"
        return warning(LintCode.VERSION_COMPARISON, node.offset, message, suggestion)
    if not _DOTTED.fullmatch(operand.value) and not (named and _VERSION.fullmatch(operand.value)):
        return None
    message = f'{symbol} fails for a version, and orders text by characters, "10" before "9"'
    return error(LintCode.VERSION_COMPARISON, node.offset, message, suggestion)


def _of_attribute(node: ast.CallExpression, subject: ast.SyntaxNode, *, certain: bool) -> LintFinding:
    message = "an attribute is never a quantity; amounts such as memory are capacities"
    text = print_expression(subject).replace("device.attributes", "device.capacity", 1)
    return (error if certain else warning)(LintCode.QUANTITY_OF_ATTRIBUTE, node.offset, message, text)


def _compare(subject: ast.SyntaxNode, operand: str, symbol: str) -> str:
    """Return the comparison to write instead; empty if `operand` is."""
    if symbol in _EQUALITY:
        return operand and f"{print_expression(subject)} {symbol} {operand}"
    return operand and f"{_call(subject, 'compareTo', operand)} {symbol} 0"


def _call(target: ast.SyntaxNode, method: str, argument: str) -> str:
    return argument and f"{print_expression(target)}.{method}({argument})"


def _quantity(node: ast.SyntaxNode) -> str:
    """Return the quantity that a constant means, empty if it means none."""
    if not isinstance(node, ast.Literal):
        return print_expression(node)
    text = str(node.value)
    with suppress(QuantityError):
        read_quantity(text)
        return f"quantity({text_literal(text)})"
    return ""


def _semver(node: ast.SyntaxNode) -> str:
    """Return the version that a constant means, in its lenient form if it is not a strict one; empty if it means none."""
    text = str(node.value) if isinstance(node, ast.Literal) else ""
    for read, more in ((parse_semver, ""), (parse_lenient, ", true")):
        with suppress(SemverError):
            read(text)
            return f"semver({text_literal(text)}{more})"
    return ""
