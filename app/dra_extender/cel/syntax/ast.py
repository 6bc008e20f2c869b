"""The syntax tree of an expression: operators are calls, and macros are recognised but not expanded."""

import operator
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

import msgspec

BINARY_OPERATORS: Final[Mapping[str, tuple[str, int]]] = {
    "||": ("_||_", 1),
    "&&": ("_&&_", 2),
    **{symbol: (f"_{symbol}_", 3) for symbol in ("<", "<=", ">", ">=", "==", "!=")},
    "in": ("@in", 3),
    **{symbol: (f"_{symbol}_", 4) for symbol in "+-"},
    **{symbol: (f"_{symbol}_", 5) for symbol in "*/%"},
}
"""The function that each binary operator calls, and its precedence."""
LOGICAL: Final[Mapping[str, bool]] = {"_&&_": False, "_||_": True}
"""Operators of which a chain is one call, and the value of a term that decides."""
NO_NAMES: Final = frozenset({"true", "false", "null", "in"})
"""Words that name nothing unless they are in backquotes."""


class Macro(NamedTuple):
    """The comprehension that a macro means: its kind, the number of variables, and whether a condition stands before the body."""

    kind: str
    variables: int = 1
    filtered: bool = False


MACROS: Final[Mapping[tuple[str, int], Macro]] = {
    ("all", 2): Macro("all"),
    ("all", 3): Macro("all", 2),
    ("exists", 2): Macro("exists"),
    ("exists", 3): Macro("exists", 2),
    ("exists_one", 2): Macro("exists_one"),
    ("existsOne", 3): Macro("exists_one", 2),
    ("exists_one", 3): Macro("exists_one", 2),
    ("map", 2): Macro("list"),
    ("map", 3): Macro("list", filtered=True),
    ("transformList", 3): Macro("list", 2),
    ("transformList", 4): Macro("list", 2, filtered=True),
    ("transformMap", 3): Macro("map", 2),
    ("transformMap", 4): Macro("map", 2, filtered=True),
    ("transformMapEntry", 3): Macro("entries", 2),
    ("transformMapEntry", 4): Macro("entries", 2, filtered=True),
    ("sortBy", 2): Macro("sort"),
    ("optMap", 2): Macro("opt_map"),
    ("optFlatMap", 2): Macro("opt_flat_map"),
}
"""Macros that are called on their source, by name and number of arguments; of two names for one the last is printed."""
MAX_DEPTH = 100
"""Deepest accepted tree; checking and evaluating recurse along it."""
INDEX_OPERATORS: Final[Mapping[str, bool]] = {"_[_]": False, "_[?_]": True}
"""The operators that select by a key, and whether the selection is optional."""
ORDERINGS: Final[Mapping[str, Callable[[Any, Any], bool]]] = {
    "_<_": operator.lt,
    "_<=_": operator.le,
    "_>_": operator.gt,
    "_>=_": operator.ge,
}
ORDERING_METHODS: Final = frozenset({"compareTo", "isGreaterThan", "isLessThan"})
"""The methods by which quantities and versions compare."""
EQUALITY: Final = frozenset({"_==_", "_!=_"})
MIRRORED: Final[Mapping[str, str]] = {
    "_<_": "_>_",
    "_<=_": "_>=_",
    "_>_": "_<_",
    "_>=_": "_<=_",
    "_==_": "_==_",
    "_!=_": "_!=_",
}
"""All comparisons, with the operator for swapped operands."""


class SyntaxNode(msgspec.Struct, frozen=True, gc=False):
    """A piece of the expression that starts at `offset`; `depth` counts the levels below and including it."""

    offset: int
    depth: int


class Literal(SyntaxNode, frozen=True, gc=False):
    """A constant: None, bool, int, Uint, float, str or bytes."""

    value: Any


class Identifier(SyntaxNode, frozen=True, gc=False):
    """A bare name."""

    name: str


class Select(SyntaxNode, frozen=True, gc=False):
    """`operand.field`, `operand.?field`, or, with `test`, `has(operand.field)`."""

    operand: SyntaxNode
    field: str
    optional: bool = False
    test: bool = False


class CallExpression(SyntaxNode, frozen=True, gc=False):
    """A function or operator; `target` is set for `target.function(arguments)`."""

    function: str
    target: SyntaxNode | None
    arguments: tuple[SyntaxNode, ...]


class Element(msgspec.Struct, frozen=True, gc=False):
    """An element of a list literal; `optional` is `[?value]`."""

    value: SyntaxNode
    optional: bool


class Entry(msgspec.Struct, frozen=True, gc=False):
    """An entry of a map literal; `optional` is `{?key: value}`."""

    key: SyntaxNode
    value: SyntaxNode
    optional: bool


class ListLiteral(SyntaxNode, frozen=True, gc=False):
    """`[a, b]`."""

    elements: tuple[Element, ...]


class MapLiteral(SyntaxNode, frozen=True, gc=False):
    """`{k: v}`."""

    entries: tuple[Entry, ...]


class Comprehension(SyntaxNode, frozen=True, gc=False):
    """A loop or binding made by a macro.

    `kind` is the macro's meaning: all, exists, exists_one, list, map, entries, bind, sort, opt_map or opt_flat_map.
    `source` is what is iterated (or bound); `names` are the variables it introduces; `condition` filters; `body` is the
    predicate, transformation or bound expression.
    """

    kind: str
    source: SyntaxNode
    names: tuple[str, ...]
    condition: SyntaxNode | None
    body: SyntaxNode


def depth_above(*children: SyntaxNode | None) -> int:
    deepest = 0
    for child in children:
        if child is not None and child.depth > deepest:
            deepest = child.depth
    return deepest + 1
