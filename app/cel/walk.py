"""Walking a syntax tree."""

from collections.abc import Iterator

import msgspec

from app.cel import syntax as s
from app.cel.environment import FUNCTIONS
from app.cel.macros import qualified_call
from app.cel.types import TYPE_NAMES


def is_open(node: s.Node) -> bool:
    """Whether a part depends on the device or on a variable."""
    return any(isinstance(each, s.Identifier) and each.name not in TYPE_NAMES for each in nodes_of(node))


def nodes_of(node: s.Node) -> Iterator[s.Node]:
    """The node and everything below it, in the order of the text, apart from a filter's repeated variable."""
    pending = [node]
    while pending:
        found = pending.pop()
        yield found
        pending.extend(reversed(children_of(found)))


def children_of(node: s.Node) -> list[s.Node]:
    """The nodes directly below."""
    match node:
        case s.Select():
            return [node.operand]
        case s.Call():
            namespace = qualified_call(node) in FUNCTIONS
            return [*([node.target] if node.target is not None and not namespace else []), *node.arguments]
        case s.ListLiteral():
            return [element.value for element in node.elements]
        case s.MapLiteral():
            return [part for entry in node.entries for part in (entry.key, entry.value)]
        case s.Comprehension():
            return [node.source, *([node.condition] if node.condition is not None else []), node.body]
    return []


class Visit(msgspec.Struct, frozen=True):
    """A node with what is directly above it and the variables in its reach."""

    node: s.Node
    parent: s.Node | None
    names: frozenset[str]


def visits(root: s.Node) -> Iterator[Visit]:
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
