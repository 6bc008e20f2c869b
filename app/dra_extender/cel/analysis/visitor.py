"""Walking a syntax tree."""

from collections.abc import Callable, Iterator
from typing import TypeVar

import msgspec

from dra_extender.cel.library.environment import FUNCTIONS
from dra_extender.cel.syntax import ast as s
from dra_extender.cel.syntax.macros import qualified_call
from dra_extender.cel.types.types import TYPE_NAMES

_T = TypeVar("_T")


def is_open(node: s.SyntaxNode) -> bool:
    """Whether a part depends on the device or on a variable."""
    return any(map(is_free_name, nodes_of(node)))


def is_free_name(node: s.SyntaxNode) -> bool:
    """Whether a node is a name that stands for the device or for a variable."""
    return isinstance(node, s.Identifier) and node.name not in TYPE_NAMES


def nodes_of(node: s.SyntaxNode) -> Iterator[s.SyntaxNode]:
    """The node and everything below it, in the order of the text, apart from a filter's repeated variable."""
    pending = [node]
    while pending:
        found = pending.pop()
        yield found
        pending.extend(reversed(children_of(found)))


def children_of(node: s.SyntaxNode) -> list[s.SyntaxNode]:
    """The nodes directly below."""
    match node:
        case s.Select():
            return [node.operand]
        case s.CallExpression():
            if node.target is None or qualified_call(node) in FUNCTIONS:
                return [*node.arguments]
            return [node.target, *node.arguments]
        case s.ListLiteral():
            return [element.value for element in node.elements]
        case s.MapLiteral():
            return [part for entry in node.entries for part in (entry.key, entry.value)]
        case s.Comprehension():
            return [node.source, *([node.condition] if node.condition is not None else []), node.body]
    return []


class Visit(msgspec.Struct, frozen=True):
    """A node with what is directly above it and the variables in its reach."""

    node: s.SyntaxNode
    parent: s.SyntaxNode | None
    names: frozenset[str]


def visits(root: s.SyntaxNode) -> Iterator[Visit]:
    """Every node, in the order of the text."""
    pending = [Visit(root, None, frozenset())]
    while pending:
        visit = pending.pop()
        yield visit
        node = visit.node
        inner = visit.names | set(node.names) if isinstance(node, s.Comprehension) else visit.names
        source = node.source if isinstance(node, s.Comprehension) else None
        below = children_of(node)
        pending.extend(Visit(each, node, visit.names if each is source else inner) for each in reversed(below))


Change = Callable[[s.SyntaxNode], s.SyntaxNode | None]
"""What to put in place of a node; None leaves the node, and looks further below."""


def mapped(node: s.SyntaxNode, change: Change) -> s.SyntaxNode:
    """The tree with some nodes replaced; the very same one if none is."""
    replacement = change(node)
    if replacement is not None:
        return replacement
    changes: dict[str, object] = {}
    match node:
        case s.Select():
            changes = {"operand": mapped(node.operand, change)}
        case s.CallExpression():
            target = None if node.target is None else mapped(node.target, change)
            changes = {"target": target, "arguments": _each(node.arguments, lambda item: mapped(item, change))}
        case s.ListLiteral():
            changes = {"elements": _each(node.elements, lambda item: _element(item, change))}
        case s.MapLiteral():
            changes = {"entries": _each(node.entries, lambda item: _entry(item, change))}
        case s.Comprehension():
            condition = None if node.condition is None else mapped(node.condition, change)
            body = mapped(node.body, change)
            changes = {"source": mapped(node.source, change), "condition": condition, "body": body}
    if all(getattr(node, name) is value for name, value in changes.items()):
        return node
    return msgspec.structs.replace(node, **changes)


def inlined(root: s.SyntaxNode, worth: Callable[[s.SyntaxNode], bool]) -> s.SyntaxNode:
    """The tree with the variables of cel.bind replaced by what they stand for, where that is worth it.

    The bindings themselves stay, so that nothing is lost.
    """

    def change(node: s.SyntaxNode) -> s.SyntaxNode | None:
        if not isinstance(node, s.Comprehension) or node.kind != "bind":
            return None
        source = inlined(node.source, worth)
        body = _substituted(node.body, node.names[0], source) if worth(source) else node.body
        return msgspec.structs.replace(node, source=source, body=inlined(body, worth))

    return mapped(root, change)


def _substituted(root: s.SyntaxNode, name: str, value: s.SyntaxNode) -> s.SyntaxNode:
    def change(node: s.SyntaxNode) -> s.SyntaxNode | None:
        if isinstance(node, s.Identifier):
            return value if node.name == name else None
        if isinstance(node, s.Comprehension) and name in node.names:
            return msgspec.structs.replace(node, source=mapped(node.source, change))
        return None

    return mapped(root, change)


def _each(items: tuple[_T, ...], change: Callable[[_T], _T]) -> tuple[_T, ...]:
    after = tuple(map(change, items))
    return items if all(one is other for one, other in zip(items, after, strict=True)) else after


def _element(item: s.Element, change: Change) -> s.Element:
    value = mapped(item.value, change)
    return item if value is item.value else s.Element(value, item.optional)


def _entry(item: s.Entry, change: Change) -> s.Entry:
    key, value = mapped(item.key, change), mapped(item.value, change)
    return item if key is item.key and value is item.value else s.Entry(key, value, item.optional)
