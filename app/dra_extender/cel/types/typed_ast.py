"""The checked tree: names are resolved, candidates of calls chosen, literals of one type. It is what gets compiled."""

from typing import Any

import msgspec

from dra_extender.cel.types.declarations import Function, Overload
from dra_extender.cel.types.types import Type


class Checked(msgspec.Struct, frozen=True, gc=False):
    """A node with its static type; `offset` is its place in the expression."""

    offset: int
    type: Type


class Constant(Checked, frozen=True, gc=False):
    """A literal or the name of a type."""

    value: Any


class Device(Checked, frozen=True, gc=False):
    """The variable `device`."""


class Variable(Checked, frozen=True, gc=False):
    """A variable that a macro introduced; `slot` is its place in the frame, `lazy` says it is bound by cel.bind."""

    slot: int
    lazy: bool


class Field(Checked, frozen=True, gc=False):
    """Selection by name; `test` asks for presence only."""

    operand: Checked
    name: str
    optional: bool
    test: bool


class Index(Checked, frozen=True, gc=False):
    """Selection by index or key."""

    operand: Checked
    key: Checked
    optional: bool


class Logical(Checked, frozen=True, gc=False):
    """`&&` (absorbing false) or `||` (absorbing true) over all its terms."""

    absorbing: bool
    terms: tuple[Checked, ...]


class Conditional(Checked, frozen=True, gc=False):
    """`condition ? chosen : other`."""

    condition: Checked
    chosen: Checked
    other: Checked


class Invoke(Checked, frozen=True, gc=False):
    """A call; `candidates` are the overloads that fit the static types, at least one."""

    function: Function
    candidates: tuple[Overload, ...]
    arguments: tuple[Checked, ...]
    member: bool


class MakeList(Checked, frozen=True, gc=False):
    """A list literal; `optional` marks elements that may be left out."""

    elements: tuple[Checked, ...]
    optional: tuple[bool, ...]


class MakeMap(Checked, frozen=True, gc=False):
    """A map literal."""

    keys: tuple[Checked, ...]
    values: tuple[Checked, ...]
    optional: tuple[bool, ...]


class Loop(Checked, frozen=True, gc=False):
    """A loop of kind all, exists, exists_one, list, map or entries; `slots` are its variables' places."""

    kind: str
    source: Checked
    slots: tuple[int, ...]
    condition: Checked | None
    body: Checked


class Bind(Checked, frozen=True, gc=False):
    """`body` with a variable that is evaluated when first used."""

    slot: int
    value: Checked
    body: Checked


class OptionalMap(Checked, frozen=True, gc=False):
    """optMap and, if `flat`, optFlatMap."""

    source: Checked
    slot: int
    body: Checked
    flat: bool


class Sort(Checked, frozen=True, gc=False):
    """sortBy: `key` is evaluated per element; `strict` says its type is known to be comparable."""

    source: Checked
    slot: int
    key: Checked
    strict: bool
