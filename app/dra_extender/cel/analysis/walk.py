"""Visiting and changing the nodes of a syntax tree."""

import operator
from collections.abc import Callable, Iterator
from typing import TypeVar

import msgspec

from dra_extender.cel.environment import FUNCTIONS
from dra_extender.cel.syntax import ast
from dra_extender.cel.syntax.parser import qualified_call
from dra_extender.cel.types.types import TYPE_NAMES

_Part = TypeVar("_Part", bound=msgspec.Struct)


def is_open(node: ast.SyntaxNode) -> bool:
    """Return whether a node depends on the device or on a variable."""
    return any(map(is_free_name, nodes_of(node)))


def is_free_name(node: ast.SyntaxNode) -> bool:
    """Return whether a node is a name that stands for the device or for a variable."""
    return isinstance(node, ast.Identifier) and node.name not in TYPE_NAMES


def nodes_of(node: ast.SyntaxNode) -> Iterator[ast.SyntaxNode]:
    """Return the node and everything below it, in the order of the text, apart from a filter's repeated variable."""
    pending = [node]
    while pending:
        part = pending.pop()
        yield part
        pending.extend(reversed(children_of(part)))


def children_of(node: ast.SyntaxNode) -> list[ast.SyntaxNode]:
    match node:
        case ast.Select():
            return [node.operand]
        case ast.CallExpression():
            if node.target is None or qualified_call(node) in FUNCTIONS:
                return [*node.arguments]
            return [node.target, *node.arguments]
        case ast.ListLiteral():
            return [element.value for element in node.elements]
        case ast.MapLiteral():
            return [part for entry in node.entries for part in (entry.key, entry.value)]
        case ast.Comprehension():
            return [node.source, *([node.condition] if node.condition is not None else []), node.body]
    return []


def joined(node: ast.SyntaxNode, operators: frozenset[str]) -> Iterator[ast.SyntaxNode]:
    """Yield the conditions that these operators join."""
    if isinstance(node, ast.CallExpression) and node.function in operators:
        for argument in node.arguments:
            yield from joined(argument, operators)
    else:
        yield node


Change = Callable[[ast.SyntaxNode], ast.SyntaxNode | None]
"""From a node to its replacement; None keeps the node, and the nodes below it are visited."""


def mapped(node: ast.SyntaxNode, change: Change) -> ast.SyntaxNode:
    """Return the tree with some nodes replaced; the same object if none is."""
    replacement = change(node)
    return _mapped_fields(node, change) if replacement is None else replacement


def _mapped_fields(part: _Part, change: Change) -> _Part:
    changes: dict[str, object] = {}
    for name in part.__struct_fields__:
        before = getattr(part, name)
        after = _mapped_value(before, change)
        if after is not before:
            changes[name] = after
    return msgspec.structs.replace(part, **changes) if changes else part


def _mapped_value(value: object, change: Change) -> object:
    if isinstance(value, ast.SyntaxNode):
        return mapped(value, change)
    if isinstance(value, ast.Element | ast.Entry):
        return _mapped_fields(value, change)
    if isinstance(value, tuple):
        after = tuple(_mapped_value(item, change) for item in value)
        return value if all(map(operator.is_, value, after)) else after
    return value


def inlined(root: ast.SyntaxNode, worth: Callable[[ast.SyntaxNode], bool]) -> ast.SyntaxNode:
    """Return the tree with the variables of cel.bind replaced by their values, where `worth` says so of the value.

    The bindings themselves remain, so that their values are visited, too.
    """

    def change(node: ast.SyntaxNode) -> ast.SyntaxNode | None:
        if not isinstance(node, ast.Comprehension) or node.kind != "bind":
            return None
        source = inlined(node.source, worth)
        body = _substituted(node.body, node.names[0], source) if worth(source) else node.body
        return msgspec.structs.replace(node, source=source, body=inlined(body, worth))

    return mapped(root, change)


def _substituted(root: ast.SyntaxNode, name: str, value: ast.SyntaxNode) -> ast.SyntaxNode:
    def change(node: ast.SyntaxNode) -> ast.SyntaxNode | None:
        if isinstance(node, ast.Identifier):
            return value if node.name == name else None
        if isinstance(node, ast.Comprehension) and name in node.names:
            return msgspec.structs.replace(node, source=mapped(node.source, change))
        return None

    return mapped(root, change)
