"""The static type check: it refuses every selector that upstream refuses to compile.

cel-go checks the expansion of a macro, which may bind open types; the same is done here without an expansion.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise, starmap
from operator import attrgetter
from typing import Any, ClassVar, Final

import msgspec

from dra_extender.cel.budget import CALL_UNITS, CHECK_UNITS, FOLD_UNITS, NODE_UNITS, STEP_UNITS, CompileMeter
from dra_extender.cel.errors import CelCompileError
from dra_extender.cel.native.patterns import PATTERN_FUNCTIONS, pattern_cost
from dra_extender.cel.syntax import ast
from dra_extender.cel.syntax.parser import dotted_name, qualified_call
from dra_extender.cel.types import typed_ast
from dra_extender.cel.types.declarations import Library, Overload
from dra_extender.cel.types.types import (
    ANY,
    BOOL,
    COMPARABLE,
    DEVICE,
    DYN,
    INT,
    OPTIONAL_NAME,
    TYPE_NAMES,
    Substitution,
    Type,
    TypeLimitError,
    compound,
    list_of,
    map_of,
    most_general,
    optional_of,
    type_of,
    variable,
)
from dra_extender.cel.values.values import TypeValue, type_name

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
_NULL_VALUE: Final = "google.protobuf.NullValue.NULL_VALUE"
_TRIED_WITHOUT_UNIFICATION: Final = frozenset({"_==_", "_!=_", "_[_]"})
_SHOWN_ARGUMENTS: Final = 8
_is_open: Final = attrgetter("open")
_METERED_NODES: Final = 16
"""Nodes that are checked between two charges of the meter."""


class Checker:
    """Checks one expression, and charges the meter for checking and for compiling it.

    Attributes:
        slots: The number of variables.
        dynamic_dispatch: A value may have another type than the checked one: an element of `device.attributes["d"].links + [1]`, or
            `dyn(["a"]).flatten().sort()`, a list of int by the first overload of `sort`. Overloads are chosen by values then.
        nodes: The number of nodes of the tree.
        constants: How many of the nodes are literals.
    """

    def __init__(self, source: str, functions: Library, device: Mapping[str, Type], meter: CompileMeter) -> None:
        self.slots = 0
        self.dynamic_dispatch = False
        self._source = source
        self._meter = meter
        self.nodes = 0
        self.constants = 0
        self._counted = 0
        self._calls = 0
        self._functions = functions
        self._device = device
        self._types = Substitution(max(self._meter.remaining // STEP_UNITS, 0))
        self._literals: list[tuple[Type, ast.SyntaxNode, Type]] = []
        self._open_variables_used: list[tuple[Type, str, ast.SyntaxNode]] = []
        self._enclosing_formats = 0

    def check(self, node: ast.SyntaxNode) -> typed_ast.TypedNode:
        """Check a whole expression; a name, a call or a literal that does not fit its place is a CelCompileError."""
        try:
            result = self._check(node, {})
            # Now that all types are final, variables whose types were open are checked again.
            for item, name, part in self._open_variables_used:
                self._require_value(self.final(item), name, part)
            self._require_homogeneous()
        except TypeLimitError as problem:
            raise CelCompileError(str(problem), self._source, 0) from None
        unmetered = CHECK_UNITS * (self.nodes % _METERED_NODES)
        self._meter.spend(unmetered + self._steps() + NODE_UNITS * self.nodes + self._calls)
        return result

    def _check(self, node: ast.SyntaxNode, scopes: Scopes) -> typed_ast.TypedNode:
        self.nodes += 1
        if not self.nodes % _METERED_NODES:
            self._meter.spend(CHECK_UNITS * _METERED_NODES + self._steps(), node.offset)
        return self._RULES[type(node)](self, node, scopes)

    def _literal(self, node: ast.Literal, _: Scopes) -> typed_ast.TypedNode:
        self.constants += 1
        return typed_ast.Constant(node, TYPE_NAMES[type_name(node.value)], node.value)

    def _identifier(self, node: ast.Identifier, scopes: Scopes) -> typed_ast.TypedNode:
        scope = scopes.get(node.name)
        if scope is not None:
            self._require_value(scope.type, node.name, node)
            return typed_ast.Variable(node, scope.type, scope.slot, scope.lazy)
        if node.name == "device":
            return typed_ast.DeviceVariable(node, DEVICE)
        if node.name in TYPE_NAMES:
            return typed_ast.Constant(node, type_of(TYPE_NAMES[node.name]), TypeValue(node.name))
        raise self._error(f"undeclared reference to {node.name!r}", node)

    def _select(self, node: ast.Select, scopes: Scopes) -> typed_ast.TypedNode:
        name = dotted_name(node)
        if name is not None and name.partition(".")[0] not in scopes:
            if name == _NULL_VALUE:
                return typed_ast.Constant(node, INT, 0)
            if name in TYPE_NAMES:
                return typed_ast.Constant(node, type_of(TYPE_NAMES[name]), TypeValue(name))
        operand = self._check(node.operand, scopes)
        resolved = self._types.resolve(operand.type)
        inner = resolved.parameters[0] if resolved.name == OPTIONAL_NAME else resolved
        result = self._member_type(node, inner)
        if node.test:
            result = BOOL
        elif inner is not resolved or node.optional:
            result = optional_of(result)
        return typed_ast.FieldSelection(node, result, operand, node.field, node.optional, node.test)

    def _member_type(self, node: ast.Select, operand: Type) -> Type:
        if operand.kind == "map":
            return operand.parameters[1]
        if operand.kind == "object":
            if node.field not in self._device:
                raise self._error(f"undefined field {node.field!r}", node)
            return self._device[node.field]
        if operand.kind == "variable":
            self._types.assign((DYN,), (operand,))
        elif operand.kind != "dyn":
            raise self._error(f"type '{operand}' does not support field selection", node)
        return DYN

    def _call(self, node: ast.CallExpression, scopes: Scopes) -> typed_ast.TypedNode:
        if node.function in ast.LOGICAL and node.target is None:
            return self._logical(node, scopes)
        name, target = node.function, node.target
        qualified = None if target is None else qualified_call(node)
        if qualified is not None and qualified in self._functions:
            name, target = qualified, None
        elif name not in self._functions:
            raise self._error(f"undeclared reference to {name!r}", node)
        # Literals anywhere in a call of format may mix types.
        self._enclosing_formats += name == "format"
        result = self._resolve(node, name, target, scopes)
        self._enclosing_formats -= name == "format"
        return result

    def _logical(self, node: ast.CallExpression, scopes: Scopes) -> typed_ast.TypedNode:
        terms: list[typed_ast.TypedNode] = []
        open_terms: list[tuple[int, typed_ast.TypedNode]] = []
        last = len(node.arguments) - 1
        for place, written in enumerate(node.arguments):
            term = self._check(written, scopes)
            terms.append(term)
            if term.type.kind == "variable":
                open_terms.append((end_of_operand(place, last), term))
            elif term.type is not BOOL:
                self._expect_bool(term)
            for end, earlier in open_terms:
                if end == place:
                    self._expect_bool(earlier)
        return typed_ast.Logical(node, BOOL, ast.LOGICAL[node.function], tuple(terms))

    def _resolve(
        self, node: ast.CallExpression, name: str, target: ast.SyntaxNode | None, scopes: Scopes
    ) -> typed_ast.TypedNode:
        arguments = tuple([self._check(item, scopes) for item in node.arguments])
        if target is not None:
            arguments = (self._check(target, scopes), *arguments)
        if name in _TRIED_WITHOUT_UNIFICATION:
            simple = self._resolve_without_unification(node, name, *arguments)
            if simple is not None:
                return simple
        types = tuple([item.type for item in arguments])
        self._calls += call_units(name, arguments)
        member = target is not None
        overloads = self._functions[name].shapes.get((member, len(arguments)), ())
        opened = any(map(_is_open, types)) and any(map(_is_open, map(self._types.resolve, types)))
        candidates, result = self._matching_overloads(overloads, types)
        if result is None:
            # As in upstream's message: "(int, int)", or "string.(int)" of a member call.
            shown = [str(self.final(item)) for item in types[:_SHOWN_ARGUMENTS]]
            shown.extend(["..."] * (len(types) > len(shown)))
            applied = f"{shown[0]}.({', '.join(shown[1:])})" if member else f"({', '.join(shown)})"
            raise self._error(f"found no matching overload for {name!r} applied to '{applied}'", node)
        if (
            opened
            and not self.dynamic_dispatch
            and result.kind != "dyn"
            and any(item.result.open for item in candidates)
        ):
            # Arguments of open types may make the result another type than the one that was found.
            closed = result.free or not result.open
            if closed or any(self._types.resolve(item).kind == "dyn" for item in types):
                self.dynamic_dispatch = True
        if name == "_?_:_":
            return typed_ast.Conditional(node, result, *arguments)
        if name in ast.INDEX_OPERATORS:
            operand, key = arguments
            return typed_ast.Index(node, result, operand, key, ast.INDEX_OPERATORS[name])
        member = candidates[0].member
        return typed_ast.Invoke(node, result, self._functions[name], tuple(candidates), arguments, member)

    def _matching_overloads(
        self, overloads: tuple[Overload, ...], types: tuple[Type, ...]
    ) -> tuple[list[Overload], Type | None]:
        """Return the overloads that arguments of these types fit, and the type of the result, dynamic if they differ in it."""
        candidates: list[Overload] = []
        result: Type | None = None
        self._types.step(len(overloads))
        for candidate in overloads:
            parameters, returned = self._types.instantiate(candidate.parameters, candidate.result)
            if self._types.assign(types, parameters):
                candidates.append(candidate)
                candidate_result = self._types.resolve(returned)
                if result is None:
                    result = candidate_result
                elif result.kind != "dyn" and not self._types.same(result, candidate_result):
                    result = DYN
        return candidates, result

    def _resolve_without_unification(
        self, node: ast.CallExpression, name: str, left: typed_ast.TypedNode, right: typed_ast.TypedNode
    ) -> typed_ast.TypedNode | None:
        """Return the node of a comparison or selection whose types fit without unification, as most do."""
        left_type, right_type = left.type, right.type
        if left_type.free or right_type.free:
            return None
        if name == "_[_]":
            fits = left_type.kind == "map" and right_type is left_type.parameters[0]
            return typed_ast.Index(node, left_type.parameters[1], left, right, optional=False) if fits else None
        if left_type is right_type or left_type.kind == "dyn" or right_type.kind == "dyn":
            function = self._functions[name]
            return typed_ast.Invoke(node, BOOL, function, function.overloads, (left, right), member=False)
        return None

    def _list_literal(self, node: ast.ListLiteral, scopes: Scopes) -> typed_ast.TypedNode:
        values: list[typed_ast.TypedNode] = []
        common = None
        for element in node.elements:
            value = self._check(element.value, scopes)
            values.append(value)
            element_type = self._element_type(value.type, element.value, optional=element.optional)
            common = self._join(common, element_type, element.value)
        optional = tuple([item.optional for item in node.elements])
        return typed_ast.MakeList(node, list_of(self._joined(common)), tuple(values), optional)

    def _map_literal(self, node: ast.MapLiteral, scopes: Scopes) -> typed_ast.TypedNode:
        keys: list[typed_ast.TypedNode] = []
        values: list[typed_ast.TypedNode] = []
        common_key = common_value = None
        for entry in node.entries:
            key = self._check(entry.key, scopes)
            keys.append(key)
            common_key = self._join(common_key, key.type, entry.key)
            value = self._check(entry.value, scopes)
            values.append(value)
            element_type = self._element_type(value.type, entry.value, optional=entry.optional)
            common_value = self._join(common_value, element_type, entry.value)
        optional = tuple([entry.optional for entry in node.entries])
        result = map_of(self._joined(common_key), self._joined(common_value))
        return typed_ast.MakeMap(node, result, tuple(keys), tuple(values), optional)

    def _comprehension(self, node: ast.Comprehension, scopes: Scopes) -> typed_ast.TypedNode:
        if node.kind in {"opt_map", "opt_flat_map"}:
            return self._optional_map(node, scopes)
        source = self._check(node.source, scopes)
        if node.kind == "bind":
            self._require_value(source.type, node.names[0], node)
            slot, inner = self._declare(node.names, (source.type,), scopes, lazy=True)
            body = self._check(node.body, inner)
            return typed_ast.CelBind(node, self._types.resolve(body.type), source, body, slot)
        slot, inner = self._declare(node.names, self._range(node, source.type), scopes)
        condition = None if node.condition is None else self._check(node.condition, inner)
        body = self._check(node.body, inner)
        if node.kind == "sort":
            result, strict = self._sorted(node, source.type, body.type)
            return typed_ast.Sort(node, result, source, body, slot, strict)
        if condition is not None:
            self._expect_bool(condition)
        result = self._loop_type(node, body, inner)
        slots = tuple(range(slot, slot + len(node.names)))
        return typed_ast.ComprehensionLoop(node, result, source, body, node.kind, slots, condition)

    def _optional_map(self, node: ast.Comprehension, scopes: Scopes) -> typed_ast.TypedNode:
        """Check optMap or optFlatMap.

        cel-go expands the macro to two copies of the source, one for hasValue() and one for value(), and checks both. The source is
        checked twice here, too, if the first check bound type variables.
        """
        flat = node.kind == "opt_flat_map"
        variables = self._open_variables(scopes)
        source = self._check(node.source, scopes)
        self._value_of(source)
        if variables and self._open_variables(scopes) != variables:
            source = self._check(node.source, scopes)
        value = self._value_of(source)
        self._dispatch_dynamically_if_free(value)
        self._require_value(value, node.names[0], node)
        slot, inner = self._declare(node.names, (value,), scopes, lazy=True)
        body = self._check(node.body, inner)
        resolved = self._types.resolve(body.type)
        # The result is of the type of `source.hasValue() ? optional.of(body) : optional.none()`, or the body itself if `flat`.
        either = self._types.fresh()
        present, absent = resolved if flat else optional_of(resolved), optional_of(self._types.fresh())
        if not self._types.assign((present, absent), (either, either)):
            raise self._error(f"expected an optional value but found '{self.final(body.type)}'", node.body)
        return typed_ast.OptionalMap(node, self._types.resolve(either), source, body, slot, flat)

    def _open_variables(self, scopes: Scopes) -> list[Type]:
        """Return the open types of the variables in scope, with type variables numbered so that equal results compare equal."""
        numbers: dict[Type, Type] = {}
        return [_numbered(self._types.resolve(item.type), numbers) for item in scopes.values() if item.type.free]

    def _value_of(self, source: typed_ast.TypedNode) -> Type:
        """Return the type of the value inside an optional."""
        value = self._types.fresh()
        if not self._types.assign((source.type,), (optional_of(value),)):
            raise self._error(f"expected an optional value but found '{self.final(source.type)}'", source.written)
        return self._types.resolve(value)

    def _range(self, node: ast.Comprehension, source: Type) -> tuple[Type, ...]:
        """Return the types of the variables of a loop over a source of this type."""
        resolved = self._types.resolve(source)
        single = len(node.names) == 1
        if resolved.kind == "list":
            return (resolved.parameters[0],) if single else (INT, resolved.parameters[0])
        if resolved.kind == "map":
            return resolved.parameters[: len(node.names)]
        if resolved.kind == "variable":
            self._types.assign((DYN,), (resolved,))
        elif resolved.kind != "dyn" or resolved == ANY:
            what = f"expression of type '{resolved}' cannot be range of a comprehension"
            raise self._error(f"{what} (must be list, map, or dynamic)", node.source)
        return (DYN,) * len(node.names)

    def _loop_type(self, node: ast.Comprehension, body: typed_ast.TypedNode, inner: Scopes) -> Type:
        if node.kind == "list":
            return list_of(self._types.resolve(body.type))
        if node.kind == "map":
            key = inner[node.names[0]].type
            self._require_value(key, node.names[0], node)
            return self._types.resolve(map_of(key, body.type))
        if node.kind == "entries":
            # transformMapEntry merges the maps of all rounds.
            result = map_of(self._types.fresh(), self._types.fresh())
            either = map_of(self._types.fresh(), self._types.fresh())
            if not self._types.assign((result, body.type), (either, either)):
                raise self._error(f"expected a map but found '{self.final(body.type)}'", node.body)
            self._dispatch_dynamically_if_free(result)
            return self._types.resolve(result)
        self._expect_bool(body)
        return BOOL

    def _sorted(self, node: ast.Comprehension, source: Type, key: Type) -> tuple[Type, bool]:
        """Return the type of sortBy's result, and whether one type of keys is the only one that fits."""
        keys = list_of(self._types.resolve(key))
        results: list[Type] = []
        self._types.step(len(COMPARABLE))
        for kind in COMPARABLE:
            result = list_of(self._types.fresh())
            if self._types.assign((source, keys), (result, list_of(kind))):
                results.append(self._types.resolve(result))
        if not results:
            unlisted = self.final(source).kind not in {"list", "dyn"}
            reason = f"applied to '{self.final(source)}'" if unlisted else f"with a key of type '{self.final(key)}'"
            raise self._error(f"found no matching overload for 'sortBy' {reason}", node)
        self._dispatch_dynamically_if_free(results[-1])
        same = all(starmap(self._types.same, pairwise(results)))
        return results[0] if same else DYN, len(results) == 1

    def final(self, item: Type) -> Type:
        """Return the type with its free variables made dynamic."""
        return self._types.resolve(item, free=DYN)

    def _error(self, message: str, node: ast.SyntaxNode) -> CelCompileError:
        return CelCompileError(message, self._source, node.offset)

    def _steps(self) -> int:
        """Return units for the steps since the last call."""
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
        resolved = self._types.resolve(item)
        if resolved.kind == "variable":
            self._open_variables_used.append((resolved, name, node))
        elif resolved.kind == "type":
            raise self._error(f"reference to undefined type: {name}", node)

    def _dispatch_dynamically_if_free(self, item: Type) -> None:
        """Choose overloads by values if this type is free: a later use may bind it to a type that the value does not have."""
        self.dynamic_dispatch = self.dynamic_dispatch or self._types.resolve(item).free

    def _expect_bool(self, item: typed_ast.TypedNode) -> None:
        if not self._types.assign((item.type,), (BOOL,)):
            raise self._error(f"expected type 'bool' but found '{self.final(item.type)}'", item.written)

    def _element_type(self, value: Type, written: ast.SyntaxNode, *, optional: bool) -> Type:
        """Return the type that an element or entry adds to a literal; an optional one must have an optional or dynamic type."""
        if not optional:
            return value
        if value.name == OPTIONAL_NAME:
            return value.parameters[0]
        if value.kind != "dyn":
            raise self._error(f"expected type 'optional_type' but found '{self.final(value)}'", written)
        return value

    def _join(self, types: _Common | None, item: Type, written: ast.SyntaxNode) -> _Common:
        """Add an element to the types of a literal; `_require_homogeneous` checks them once all types are final."""
        if types is None:
            return item, item
        first, common = types
        if item is common and item is first:
            return types
        self._types.step(0 if common is item else common.weight // 2)
        if not self._enclosing_formats:
            self._literals.append((first, written, item))
        return first, most_general(common, item) if self._types.assign((common,), (item,)) else DYN

    def _joined(self, types: _Common | None) -> Type:
        """Return the type that all elements fit; a fresh variable for an empty literal."""
        return self._types.fresh() if types is None else types[1]

    def _require_homogeneous(self) -> None:
        literal = expected = None
        for first, node, item in self._literals:
            if expected is None or first is not literal:
                literal, expected = first, self.final(first)
            actual = self.final(item)
            if not self._types.same(expected, actual):
                raise self._error(f"expected type '{expected}' but found '{actual}'", node)

    _RULES: ClassVar[Mapping[type[ast.SyntaxNode], Callable[[Any, Any, Scopes], typed_ast.TypedNode]]] = {
        ast.Literal: _literal,
        ast.Identifier: _identifier,
        ast.Select: _select,
        ast.CallExpression: _call,
        ast.ListLiteral: _list_literal,
        ast.MapLiteral: _map_literal,
        ast.Comprehension: _comprehension,
    }


def call_units(name: str, arguments: Sequence[typed_ast.TypedNode]) -> int:
    """Return units for compiling a call, with the compilation of a constant pattern and the evaluation of a call of constants."""
    units = CALL_UNITS
    if name in PATTERN_FUNCTIONS:
        units += sum([pattern_cost(text) // _WORK_PER_UNIT for text in _texts(arguments)])
    if name.isidentifier() and _READS.isdisjoint(map(type, arguments)):
        units += FOLD_UNITS + sum(map(len, _texts(arguments)))
    return units


def _texts(arguments: Sequence[typed_ast.TypedNode]) -> list[str]:
    return [
        argument.value for argument in arguments if type(argument) is typed_ast.Constant and type(argument.value) is str
    ]


def end_of_operand(place: int, last: int) -> int:
    """Return the last term that is checked before the term at `place` has to be a bool; `last` is the last term of all, at least 1.

    `a && b && c` is `a && (b && c)` or `(a && b) && c`: cel-go makes a balanced tree of it. Both sides of an operator are
    checked before either has to be a bool.
    """
    first = 0
    while True:
        middle = (first + last) // 2
        if place > middle:
            first = middle + 1
        elif first < middle:
            last = middle
        else:
            return last
        if first == last:
            return last


def _numbered(item: Type, numbers: dict[Type, Type]) -> Type:
    if not item.free:
        return item
    if item.kind == "variable":
        return numbers.setdefault(item, variable(str(len(numbers))))
    return compound(item.kind, item.name, *(_numbered(parameter, numbers) for parameter in item.parameters))
