"""The state of the type check of one expression: variables in scope, types so far, and what is left to resolve at the end."""

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from dra_extender.cel.native.patterns import PATTERN_FUNCTIONS, pattern_cost
from dra_extender.cel.runtime.compile_limits import CALL_UNITS, FOLD_UNITS, STEP_UNITS, CompileMeter
from dra_extender.cel.support.errors import CelCompileError
from dra_extender.cel.syntax import ast
from dra_extender.cel.types import typed_ast
from dra_extender.cel.types.declarations import Library
from dra_extender.cel.types.types import BOOL, DYN, OPTIONAL_NAME, Substitution, Type, most_general

_READS: Final = frozenset({typed_ast.DeviceVariable, typed_ast.Variable, typed_ast.FieldSelection, typed_ast.Index})
_WORK_PER_UNIT: Final = 2


class ScopedVariable(msgspec.Struct, frozen=True, gc=False):
    """A variable in scope: its slot in the frame and its type."""

    slot: int
    type: Type
    lazy: bool = False


Scopes = Mapping[str, ScopedVariable]
_Common = tuple[Type, Type]
"""The type of the first element of a literal, and the type that all elements so far fit."""


class Inference:
    """The types of one expression, the bindings of their variables, and the cost of finding them.

    Attributes:
        slots: The number of variables.
        dynamic_dispatch: A value may have another type than the checked one: an element of `device.attributes["d"].links + [1]`, or
            `dyn(["a"]).flatten().sort()`, a list of int by the first overload of `sort`. Overloads are chosen by values then.
        nodes: The number of nodes of the tree.
        constants: How many of the nodes are literals.
    """

    def __init__(
        self, source: str, functions: Library, device: Mapping[str, Type], meter: CompileMeter | None = None
    ) -> None:
        self.slots = 0
        self.dynamic_dispatch = False
        self._source = source
        self._meter = CompileMeter(source) if meter is None else meter
        self.nodes = 0
        self.constants = 0
        self._counted = 0
        self._calls = 0
        self._functions = functions
        self._device = device
        self._types = Substitution(max(self._meter.left // STEP_UNITS, 0))
        self._literals: list[tuple[Type, ast.SyntaxNode, Type]] = []
        self._open_variables_used: list[tuple[Type, str, ast.SyntaxNode]] = []
        self._enclosing_formats = 0

    def final(self, item: Type) -> Type:
        """The type with its free variables made dynamic."""
        return self._types.resolve(item, free=DYN)

    def _error(self, message: str, node: ast.SyntaxNode) -> CelCompileError:
        return CelCompileError(message, self._source, node.offset)

    def _steps(self) -> int:
        """Units for the steps since the last call."""
        before, self._counted = self._counted, self._types.steps
        return STEP_UNITS * (self._counted - before)

    def _declare(
        self,
        names: tuple[str, ...],
        types: tuple[Type, ...],
        scopes: Scopes,
        *,
        lazy: bool = False,
    ) -> tuple[int, Scopes]:
        first = self.slots
        self.slots += len(names)
        added = {name: ScopedVariable(first + place, types[place], lazy) for place, name in enumerate(names)}
        return first, {**scopes, **added}

    def _require_value(self, item: Type, name: str, node: ast.SyntaxNode) -> None:
        """Refuse a variable whose value is a type: cel-go takes it for the name of that type, which is undefined."""
        found = self._types.resolve(item)
        if found.kind == "variable":
            self._open_variables_used.append((found, name, node))
        elif found.kind == "type":
            raise self._error(f"reference to undefined type: {name}", node)

    def _require_resolved(self) -> None:
        """Repeat `_require_value` for variables whose types were open, now that all types are final."""
        for item, name, part in self._open_variables_used:
            self._require_value(self.final(item), name, part)

    def _dispatch_dynamically_if_free(self, item: Type) -> None:
        """Choose overloads by values if this type is free: a later use may bind it to a type that the value does not have."""
        self.dynamic_dispatch = self.dynamic_dispatch or self._types.resolve(item).free

    def _expect_bool(self, item: typed_ast.TypedNode, node: ast.SyntaxNode) -> None:
        if not self._types.assign((item.type,), (BOOL,)):
            raise self._error(f"expected type 'bool' but found '{self.final(item.type)}'", node)

    def _element_type(self, value: Type, written: ast.SyntaxNode, *, optional: bool) -> Type:
        """The type that an element or entry adds to a literal; an optional one must have an optional or dynamic type."""
        if not optional:
            return value
        if value.name == OPTIONAL_NAME:
            return value.parameters[0]
        if value.kind != "dyn":
            raise self._error(f"expected type 'optional_type' but found '{self.final(value)}'", written)
        return value

    def _join(self, known: _Common | None, item: Type, written: ast.SyntaxNode) -> _Common:
        """Add an element to the types of a literal; `_require_homogeneous` checks them once all types are final."""
        if known is None:
            return item, item
        first, common = known
        if item is common and item is first:
            return known
        self._types.step(0 if common is item else common.weight // 2)
        if not self._enclosing_formats:
            self._literals.append((first, written, item))
        return first, most_general(common, item) if self._types.assign((common,), (item,)) else DYN

    def _joined(self, known: _Common | None) -> Type:
        """The type that all elements fit; a fresh variable for an empty literal."""
        return self._types.fresh() if known is None else known[1]

    def _require_homogeneous(self) -> None:
        known = expected = None
        for first, node, other in self._literals:
            if expected is None or first is not known:
                known, expected = first, self.final(first)
            found = self.final(other)
            if not self._types.same(expected, found):
                raise self._error(f"expected type '{expected}' but found '{found}'", node)


def call_units(name: str, arguments: Sequence[typed_ast.TypedNode]) -> int:
    """Units for compiling a call, with the compilation of a constant pattern and the evaluation of a call of constants."""
    units = CALL_UNITS
    if name in PATTERN_FUNCTIONS:
        units += sum([pattern_cost(text) // _WORK_PER_UNIT for text in _texts(arguments)])
    if name.isidentifier() and _READS.isdisjoint(map(type, arguments)):
        units += FOLD_UNITS + sum(map(len, _texts(arguments)))
    return units


def _texts(arguments: Sequence[typed_ast.TypedNode]) -> list[str]:
    return [each.value for each in arguments if type(each) is typed_ast.Constant and type(each.value) is str]
