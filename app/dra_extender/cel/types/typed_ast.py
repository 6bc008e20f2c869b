"""The checked tree, from which code is compiled: names and the candidate overloads of calls are resolved."""

from itertools import chain
from typing import Any

import msgspec

from dra_extender.cel.syntax.ast import SyntaxNode
from dra_extender.cel.types.declarations import Function, Overload
from dra_extender.cel.types.types import Type


class TypedNode(msgspec.Struct, frozen=True, gc=False):
    """A node with its static type; `written` is the node of the syntax tree that it comes from."""

    written: SyntaxNode
    type: Type

    @property
    def offset(self) -> int:
        """The place in the text of the expression."""
        return self.written.offset


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
    """`condition ? then_branch : else_branch`."""

    condition: TypedNode
    then_branch: TypedNode
    else_branch: TypedNode


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


class ComprehensionNode(TypedNode, frozen=True, gc=False):
    """A macro that evaluates `body` with variables that come from `source`."""

    source: TypedNode
    body: TypedNode


class ComprehensionLoop(ComprehensionNode, frozen=True, gc=False):
    """A loop of kind all, exists, exists_one, list, map or entries; `slots` are the indexes of its variables in the frame."""

    kind: str
    slots: tuple[int, ...]
    condition: TypedNode | None


class CelBind(ComprehensionNode, frozen=True, gc=False):
    """`body` with a variable whose value `source` is evaluated on first use."""

    slot: int


class OptionalMap(ComprehensionNode, frozen=True, gc=False):
    """optMap and, if `flat`, optFlatMap."""

    slot: int
    flat: bool


class Sort(ComprehensionNode, frozen=True, gc=False):
    """sortBy: `body` is the key of an element; `strict` says that its static type is comparable."""

    slot: int
    strict: bool


def operands(node: TypedNode) -> tuple[TypedNode, ...]:
    """Return the parts that are evaluated in the scope of a node, in the order of the text: not the body of a comprehension."""
    match node:
        case ComprehensionNode():
            return (node.source,)
        case FieldSelection():
            return (node.operand,)
        case Index():
            return (node.operand, node.key)
        case Logical():
            return node.terms
        case Conditional():
            return (node.condition, node.then_branch, node.else_branch)
        case Invoke():
            return node.arguments
        case MakeList():
            return node.elements
        case MakeMap():
            return tuple(chain.from_iterable(zip(node.keys, node.values, strict=True)))
    return ()
