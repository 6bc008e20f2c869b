"""The checked tree, from which code is compiled: names and the candidate overloads of calls are resolved."""

from typing import Any

import msgspec

from dra_extender.cel.types.declarations import Function, Overload
from dra_extender.cel.types.types import Type


class TypedNode(msgspec.Struct, frozen=True, gc=False):
    """A node with its static type; `offset` is its place in the expression."""

    offset: int
    type: Type


class Constant(TypedNode, frozen=True, gc=False):
    """A literal or the name of a type."""

    value: Any


class DeviceVariable(TypedNode, frozen=True, gc=False):
    """The variable `device`."""


class Variable(TypedNode, frozen=True, gc=False):
    """A variable of a macro; `slot` is its index in the frame, `lazy` says that cel.bind binds it."""

    slot: int
    lazy: bool


class FieldSelection(TypedNode, frozen=True, gc=False):
    """Selection by name; `test` asks for presence only."""

    operand: TypedNode
    name: str
    optional: bool
    test: bool


class Index(TypedNode, frozen=True, gc=False):
    """Selection by index or key."""

    operand: TypedNode
    key: TypedNode
    optional: bool


class Logical(TypedNode, frozen=True, gc=False):
    """`&&` (absorbing false) or `||` (absorbing true) over all its terms."""

    absorbing: bool
    terms: tuple[TypedNode, ...]


class Conditional(TypedNode, frozen=True, gc=False):
    """`condition ? chosen : other`."""

    condition: TypedNode
    chosen: TypedNode
    other: TypedNode


class Invoke(TypedNode, frozen=True, gc=False):
    """A call; `candidates` are the overloads that fit the static types, at least one."""

    function: Function
    candidates: tuple[Overload, ...]
    arguments: tuple[TypedNode, ...]
    member: bool


class MakeList(TypedNode, frozen=True, gc=False):
    """A list literal; `optional` marks elements that may be left out."""

    elements: tuple[TypedNode, ...]
    optional: tuple[bool, ...]


class MakeMap(TypedNode, frozen=True, gc=False):
    """A map literal."""

    keys: tuple[TypedNode, ...]
    values: tuple[TypedNode, ...]
    optional: tuple[bool, ...]


class ComprehensionLoop(TypedNode, frozen=True, gc=False):
    """A loop of kind all, exists, exists_one, list, map or entries; `slots` are the indexes of its variables in the frame."""

    kind: str
    source: TypedNode
    slots: tuple[int, ...]
    condition: TypedNode | None
    body: TypedNode


class CelBind(TypedNode, frozen=True, gc=False):
    """`body` with a variable that is evaluated when first used."""

    slot: int
    value: TypedNode
    body: TypedNode


class OptionalMap(TypedNode, frozen=True, gc=False):
    """optMap and, if `flat`, optFlatMap."""

    source: TypedNode
    slot: int
    body: TypedNode
    flat: bool


class Sort(TypedNode, frozen=True, gc=False):
    """sortBy: `key` is evaluated per element; `strict` says that its static type is comparable."""

    source: TypedNode
    slot: int
    key: TypedNode
    strict: bool
