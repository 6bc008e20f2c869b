"""The syntax tree of an expression, as written: operators are calls, macros are already recognised."""

from typing import Any

import msgspec

MAX_DEPTH = 100
"""Deepest accepted tree; checking and evaluating recurse along it."""


class Node(msgspec.Struct, frozen=True, gc=False):
    """A piece of the expression that starts at `offset`; `depth` counts the levels below and including it."""

    offset: int
    depth: int


class Literal(Node, frozen=True, gc=False):
    """A constant: None, bool, int, Uint, float, str or bytes."""

    value: Any


class Identifier(Node, frozen=True, gc=False):
    """A bare name."""

    name: str


class Select(Node, frozen=True, gc=False):
    """`operand.field`, `operand.?field`, or, with `test`, `has(operand.field)`."""

    operand: Node
    field: str
    optional: bool = False
    test: bool = False


class Call(Node, frozen=True, gc=False):
    """A function or operator; `target` is set for `target.function(arguments)`."""

    function: str
    target: Node | None
    arguments: tuple[Node, ...]


class Element(msgspec.Struct, frozen=True, gc=False):
    """An element of a list literal; `optional` is `[?value]`."""

    value: Node
    optional: bool


class Entry(msgspec.Struct, frozen=True, gc=False):
    """An entry of a map literal; `optional` is `{?key: value}`."""

    key: Node
    value: Node
    optional: bool


class ListLiteral(Node, frozen=True, gc=False):
    """`[a, b]`."""

    elements: tuple[Element, ...]


class MapLiteral(Node, frozen=True, gc=False):
    """`{k: v}`."""

    entries: tuple[Entry, ...]


class Comprehension(Node, frozen=True, gc=False):
    """A loop or binding made by a macro.

    `kind` is the macro's meaning: all, exists, exists_one, list, map, entries, bind, sort, opt_map or opt_flat_map.
    `source` is what is iterated (or bound); `names` are the variables it introduces; `condition` filters; `body` is the
    predicate, transformation or bound expression.
    """

    kind: str
    source: Node
    names: tuple[str, ...]
    condition: Node | None
    body: Node


def depth_above(*children: Node | None) -> int:
    """The depth of a node with these children."""
    deepest = 0
    for child in children:
        if child is not None and child.depth > deepest:
            deepest = child.depth
    return deepest + 1
