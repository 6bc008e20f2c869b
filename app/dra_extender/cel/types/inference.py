"""What the check of one expression has found: the variables in reach, the types so far, what has to be resolved at the end."""

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
    """A variable in reach: where it is kept and its type."""

    slot: int
    type: Type
    lazy: bool = False


Scopes = Mapping[str, ScopedVariable]
_Common = tuple[Type, Type]
"""The type of the first element of a literal, and the one that all elements so far fit."""


class Inference:
    """The types of one expression, what open ones are resolved to, and what finding them took.

    Afterwards `slots` is the number of variables it needs, and `careful` says that a value may be of another type than the
    check took it for, as an element of `device.attributes["d"].links + [1]` is, or of `dyn(["a"]).flatten().sort()`, which
    is a list of int by the first overload of `sort`. `nodes` is the size of the tree, and `constants` how many of these are
    literals.
    """

    def __init__(
        self, source: str, functions: Library, device: Mapping[str, Type], meter: CompileMeter | None = None
    ) -> None:
        self.slots = 0
        self.careful = False
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
        self._unsettled: list[tuple[Type, str, ast.SyntaxNode]] = []
        self._exempt = 0

    def final(self, item: Type) -> Type:
        """A type with nothing open: what could be anything is dynamic."""
        return self._types.resolve(item, free=DYN)

    def _error(self, message: str, node: ast.SyntaxNode) -> CelCompileError:
        return CelCompileError(message, self._source, node.offset)

    def _steps(self) -> int:
        """Units for the steps since the last time."""
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
        """A variable that is known to hold a type is taken for the name of that type."""
        found = self._types.resolve(item)
        if found.kind == "variable":
            self._unsettled.append((found, name, node))
        elif found.kind == "type":
            raise self._error(f"reference to undefined type: {name}", node)

    def _require_resolved(self) -> None:
        """Look once more at the variables whose types were open, when all types are final."""
        for item, name, part in self._unsettled:
            self._require_value(self.final(item), name, part)

    def _doubt(self, item: Type) -> None:
        """Trust no static types if this one is open: a later use settles it, whatever the value is."""
        self.careful = self.careful or self._types.resolve(item).free

    def _expect_bool(self, item: typed_ast.TypedNode, node: ast.SyntaxNode) -> None:
        if not self._types.assign((item.type,), (BOOL,)):
            raise self._error(f"expected type 'bool' but found '{self.final(item.type)}'", node)

    def _element_type(self, value: Type, written: ast.SyntaxNode, *, optional: bool) -> Type:
        """The type of an element or entry of a literal; a variable of its own is none that may be left out."""
        if not optional:
            return value
        if value.name == OPTIONAL_NAME:
            return value.parameters[0]
        if value.kind != "dyn":
            raise self._error(f"expected type 'optional_type' but found '{self.final(value)}'", written)
        return value

    def _join(self, known: _Common | None, item: Type, written: ast.SyntaxNode) -> _Common:
        """One more element of a literal; the check that all are of one type has to wait until types are final."""
        if known is None:
            return item, item
        first, common = known
        if item is common and item is first:
            return known
        self._types.step(0 if common is item else common.weight // 2)
        if not self._exempt:
            self._literals.append((first, written, item))
        return first, most_general(common, item) if self._types.assign((common,), (item,)) else DYN

    def _joined(self, known: _Common | None) -> Type:
        """What all elements fit, which is open for none."""
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
    """Units for compiling a call: with nothing but constants it is evaluated, and a constant pattern is compiled."""
    units = CALL_UNITS
    if name in PATTERN_FUNCTIONS:
        units += sum([pattern_cost(text) // _WORK_PER_UNIT for text in _texts(arguments)])
    if name.isidentifier() and _READS.isdisjoint(map(type, arguments)):
        units += FOLD_UNITS + sum(map(len, _texts(arguments)))
    return units


def _texts(arguments: Sequence[typed_ast.TypedNode]) -> list[str]:
    return [each.value for each in arguments if type(each) is typed_ast.Constant and type(each.value) is str]
