"""Mistakes in paths to attributes and capacities: suffixes, names without a domain, and keys such as "domain/name"."""

from collections.abc import Iterator
from difflib import get_close_matches
from typing import Final

from dra_extender.cel.analysis.attributes import (
    CAPACITY_SUFFIXES,
    SUFFIXES,
    access_of,
    device_map_of,
    is_domain_name,
    step_of,
    without_suffix,
)
from dra_extender.cel.analysis.walk import children_of
from dra_extender.cel.environment import DEVICE_FIELDS
from dra_extender.cel.lint.findings import LintCode, LintFinding, error, warning
from dra_extender.cel.syntax import ast
from dra_extender.cel.syntax.printer import access_expression, print_expression

_COMPARISONS: Final = frozenset({"_==_", "_!=_", "_<_", "_<=_", "_>_", "_>=_", "_&&_", "_||_", "!_"})
_ABOUT_MAPS: Final = frozenset({"size", "includes"})


def path_findings(
    node: ast.SyntaxNode,
    drivers: frozenset[str],
    parent: ast.SyntaxNode | None = None,
    variables: frozenset[str] = frozenset(),
) -> Iterator[LintFinding]:
    """Yield the findings of a tree; names of `drivers` are domains even without a dot."""
    match node:
        case ast.Identifier(name=name) if name in DEVICE_FIELDS and name not in variables:
            message = f"there is no variable {name}; it is a field of device"
            yield error(LintCode.UNKNOWN_FIELD, node.offset, message, f"device.{name}")
        case ast.Select(operand=ast.Identifier(name="device"), field=name) if name not in DEVICE_FIELDS:
            close = get_close_matches(name, sorted(DEVICE_FIELDS), n=1)
            message = f"device has no field {name}; it has {', '.join(DEVICE_FIELDS)}"
            yield error(LintCode.UNKNOWN_FIELD, node.offset, message, f"device.{close[0]}" if close else "")
        case ast.CallExpression(function="_[_]" | "_[?_]", arguments=(ast.Identifier(name="device"), key)):
            suggestion = f"device.{key.value}" if isinstance(key, ast.Literal) and key.value in DEVICE_FIELDS else ""
            message = "fields of device are read with a dot, not by index"
            yield error(LintCode.UNKNOWN_FIELD, node.offset, message, suggestion)
    if isinstance(node, ast.Select):
        yield from _suffix(node)
    if device_map_of(node) is not None:
        yield from _domain(node, parent, drivers)
    for child in children_of(node):
        scope = variables
        if isinstance(node, ast.Comprehension) and child is not node.source:
            scope = variables.union(node.names)
        yield from path_findings(child, drivers, node, scope)


def _suffix(node: ast.Select) -> Iterator[LintFinding]:
    """Yield the finding about `....string` behind an attribute, or in place of its name."""
    meant = without_suffix(node)
    if meant is not None:
        whole = "has(...) is always false" if node.test else "it fails on every device"
        message = f"attributes hold plain values without .{node.field}: {whole}"
        yield error(LintCode.VALUE_SUFFIX, node.offset, message, print_expression(meant))
        return
    access = access_of(node.operand)
    if access is not None and access.device_map == "capacity" and node.field in CAPACITY_SUFFIXES:
        message = f"a capacity is a quantity itself, without .{node.field}"
        yield error(LintCode.VALUE_SUFFIX, node.offset, message, print_expression(node.operand))


def _domain(node: ast.SyntaxNode, parent: ast.SyntaxNode | None, drivers: frozenset[str]) -> Iterator[LintFinding]:
    """Yield the findings about keys of device.attributes and device.capacity that are not domains."""
    step = step_of(node)
    device_map = device_map_of(node)
    if step is None or device_map is None or is_domain_name(step.key) or step.key in drivers:
        return
    if isinstance(parent, ast.Select) and parent.field in SUFFIXES | CAPACITY_SUFFIXES and "/" not in step.key:
        if device_map == "capacity":
            meant = access_expression(device_map, None, step.key)
            message = f"a capacity is a quantity itself, without .{parent.field}, and is found under its domain"
            yield error(LintCode.VALUE_SUFFIX, parent.offset, message, meant)
        return
    rule = f"device.{device_map} is indexed by domain, then by name"
    if "/" not in step.key:
        finding = error if not step.optional and _is_value(node, parent) else warning
        message = f"{step.key!r} has no dot, so it is hardly a domain; {rule}"
        yield finding(LintCode.UNQUALIFIED_NAME, node.offset, message, access_expression(device_map, None, step.key))
    elif not (isinstance(parent, ast.Select) and parent.field in SUFFIXES and device_map == "attributes"):
        domain, _, name = step.key.partition("/")
        finding = warning if isinstance(parent, ast.Select) and parent.test else error
        message = f"{rule}; no domain is called {step.key!r}"
        yield finding(LintCode.QUALIFIED_KEY, node.offset, message, access_expression(device_map, domain, name))


def _is_value(node: ast.SyntaxNode, parent: ast.SyntaxNode | None) -> bool:
    """Return whether an expression uses a domain's map where only the value of an attribute makes sense."""
    if parent is None:
        return True
    if not isinstance(parent, ast.CallExpression):
        return False
    if parent.target is node:
        return parent.function not in _ABOUT_MAPS
    others = [argument for argument in parent.arguments if argument is not node]
    if any(isinstance(other, ast.MapLiteral) or device_map_of(other) is not None for other in others):
        return False
    return parent.function in _COMPARISONS or (parent.function == "@in" and parent.arguments[0] is node)
