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
from dra_extender.cel.analysis.walk import Visit, visits
from dra_extender.cel.environment import DEVICE_FIELDS
from dra_extender.cel.lint.findings import LintCode, LintFinding, error, warning
from dra_extender.cel.syntax import ast
from dra_extender.cel.syntax.printer import access_expression, print_expression

_COMPARISONS: Final = frozenset({"_==_", "_!=_", "_<_", "_<=_", "_>_", "_>=_", "_&&_", "_||_", "!_"})
_ABOUT_MAPS: Final = frozenset({"size", "includes"})


def path_findings(root: ast.SyntaxNode, drivers: frozenset[str]) -> Iterator[LintFinding]:
    """Return the findings of a tree; names of `drivers` are domains even without a dot."""
    for visit in visits(root):
        node = visit.node
        if isinstance(node, ast.Identifier):
            if node.name in DEVICE_FIELDS and node.name not in visit.names:
                message = f"there is no variable {node.name}; it is a field of device"
                yield error(LintCode.UNKNOWN_FIELD, node.offset, message, f"device.{node.name}")
        elif isinstance(node, ast.Select) and _is_device(node.operand):
            yield from _unknown_field(node, node.field)
        elif (
            isinstance(node, ast.CallExpression)
            and node.function in ast.INDEX_OPERATORS
            and _is_device(node.arguments[0])
        ):
            yield from _indexed_device(node)
        if isinstance(node, ast.Select):
            yield from _suffix(node)
        if device_map_of(node) is not None:
            yield from _domain(visit, drivers)


def _is_device(node: ast.SyntaxNode) -> bool:
    return isinstance(node, ast.Identifier) and node.name == "device"


def _unknown_field(node: ast.SyntaxNode, name: str) -> Iterator[LintFinding]:
    if name not in DEVICE_FIELDS:
        close = get_close_matches(name, sorted(DEVICE_FIELDS), n=1)
        fields = ", ".join(DEVICE_FIELDS)
        suggestion = f"device.{close[0]}" if close else ""
        yield error(LintCode.UNKNOWN_FIELD, node.offset, f"device has no field {name}; it has {fields}", suggestion)


def _indexed_device(node: ast.CallExpression) -> Iterator[LintFinding]:
    key = node.arguments[1]
    known = isinstance(key, ast.Literal) and key.value in DEVICE_FIELDS
    suggestion = f"device.{key.value}" if known and isinstance(key, ast.Literal) else ""
    yield error(LintCode.UNKNOWN_FIELD, node.offset, "fields of device are read with a dot, not by index", suggestion)


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


def _domain(visit: Visit, drivers: frozenset[str]) -> Iterator[LintFinding]:
    """Yield the findings about keys of device.attributes and device.capacity that are not domains."""
    step = step_of(visit.node)
    device_map = device_map_of(visit.node)
    if step is None or device_map is None or is_domain_name(step.key) or step.key in drivers:
        return
    parent = visit.parent
    if isinstance(parent, ast.Select) and parent.field in SUFFIXES | CAPACITY_SUFFIXES and "/" not in step.key:
        if device_map == "capacity":
            meant = access_expression(device_map, None, step.key)
            message = f"a capacity is a quantity itself, without .{parent.field}, and is found under its domain"
            yield error(LintCode.VALUE_SUFFIX, parent.offset, message, meant)
        return
    if "/" in step.key:
        yield from _qualified(visit, device_map, step.key)
        return
    finding = error if not step.optional and _is_value(visit) else warning
    message = (
        f"{step.key!r} has no dot, so it is hardly a domain; device.{device_map} is indexed by domain, then by name"
    )
    yield finding(LintCode.UNQUALIFIED_NAME, visit.node.offset, message, access_expression(device_map, None, step.key))


def _qualified(visit: Visit, device_map: str, key: str) -> Iterator[LintFinding]:
    parent = visit.parent
    if isinstance(parent, ast.Select) and parent.field in SUFFIXES and device_map == "attributes":
        return
    domain, _, name = key.partition("/")
    message = f"device.{device_map} is indexed by domain, then by name; no domain is called {key!r}"
    tested = isinstance(parent, ast.Select) and parent.test
    finding = warning if tested else error
    yield finding(LintCode.QUALIFIED_KEY, visit.node.offset, message, access_expression(device_map, domain, name))


def _is_value(visit: Visit) -> bool:
    """Return whether an expression uses a domain's map where only the value of an attribute makes sense."""
    parent = visit.parent
    if parent is None:
        return True
    if not isinstance(parent, ast.CallExpression):
        return False
    if parent.target is visit.node:
        return parent.function not in _ABOUT_MAPS
    others = [argument for argument in parent.arguments if argument is not visit.node]
    if any(isinstance(other, ast.MapLiteral) or device_map_of(other) is not None for other in others):
        return False
    return parent.function in _COMPARISONS or (parent.function == "@in" and parent.arguments[0] is visit.node)
