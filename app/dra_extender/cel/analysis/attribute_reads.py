"""The attributes that an expression reads: devices that agree on these get the same result."""

from collections.abc import Iterable
from typing import Final

from dra_extender.cel.analysis.rewrite import DEVICE_MAPS, is_device_field
from dra_extender.cel.analysis.visitor import children_of
from dra_extender.cel.syntax import ast

ANY_DOMAIN: Final = "*"
"""Stands for `device.driver` as a domain, which differs between devices."""


def qualified_name(domain: str, name: str) -> str:
    """The qualified name of an attribute, domain/name."""
    return f"{domain}/{name}"


def read_attributes(root: ast.SyntaxNode) -> frozenset[str] | None:
    """The attributes, as domain/name, whose values an expression can depend on; None if it may read any.

    The result may still depend on which attributes a device has. `root` is the tree of an expression that compiles.
    """
    names: set[str] = set()
    pending = [root]
    while pending:
        node = pending.pop()
        selects = type(node) is ast.Select or (
            isinstance(node, ast.CallExpression) and node.function in ast.INDEX_OPERATORS
        )
        name = _attribute(node) if selects else None
        if name is not None:
            names.add(name)
            continue
        parts = _parts_that_read(node)
        if parts is None:
            return None
        pending += parts
    return frozenset(names)


def _parts_that_read(node: ast.SyntaxNode) -> Iterable[ast.SyntaxNode] | None:
    """The nodes below that may read attributes; None for `device` and `device.attributes`, which may be used as a whole."""
    if isinstance(node, ast.Select):
        if isinstance(node.operand, ast.Identifier):
            return None if is_device_field(node, "attributes") else ()
        return (node.operand,)
    if isinstance(node, ast.Identifier) and node.name == "device":
        return None
    return [each for each in reversed(children_of(node)) if type(each) is not ast.Literal]


def _attribute(node: ast.SyntaxNode) -> str | None:
    """The attribute that a node selects or tests, if its name is constant."""
    owner, name = _selection(node)
    if owner is None or type(name) is not str:
        return None
    place, domain = _selection(owner)
    if not (isinstance(place, ast.Select) and place.field in DEVICE_MAPS and is_device_field(place, place.field)):
        return None
    if type(domain) is str:
        return qualified_name(domain, name)
    return (
        qualified_name(ANY_DOMAIN, name)
        if isinstance(domain, ast.Select) and is_device_field(domain, "driver")
        else None
    )


def _selection(node: ast.SyntaxNode) -> tuple[ast.SyntaxNode | None, str | ast.SyntaxNode]:
    """What a node selects from, and the key, a text if it is constant; None for nodes that select nothing."""
    if isinstance(node, ast.Select):
        return node.operand, node.field
    if isinstance(node, ast.CallExpression) and node.function in ast.INDEX_OPERATORS:
        operand, key = node.arguments
        return operand, key.value if isinstance(key, ast.Literal) and type(key.value) is str else key
    return None, ""
