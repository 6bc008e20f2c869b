"""The types of macros. cel-go checks the expansion of a macro, which may bind open types; the same is done here without one."""

from itertools import pairwise, starmap
from typing import Final

from dra_extender.cel.syntax import ast
from dra_extender.cel.types import typed_ast
from dra_extender.cel.types.inference import Inference, Scopes
from dra_extender.cel.types.types import (
    ANY,
    BOOL,
    BYTES,
    DOUBLE,
    DURATION,
    DYN,
    INT,
    STRING,
    TIMESTAMP,
    UINT,
    Type,
    compound,
    list_of,
    map_of,
    optional_of,
    variable,
)

_SORTABLE: Final = (INT, UINT, DOUBLE, BOOL, DURATION, TIMESTAMP, STRING, BYTES)
"""Types of keys of sortBy, in the order in which they are tried."""


def end_of_operand(place: int, last: int) -> int:
    """The last term that is checked before the term at `place` has to be a bool.

    `a && b && c` is `a && (b && c)` or `(a && b) && c`: cel-go makes a balanced tree of it. Both sides of an operator are
    checked before either has to be a bool.

    Args:
        place: The place of the term.
        last: The place of the last term, at least one.
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


class Expansions(Inference):
    """Finds the types of macros from those of their parts."""

    def _open_variables(self, scopes: Scopes) -> list[Type]:
        """The open types of the variables in scope, with free type variables numbered so that equal results compare equal."""
        numbers: dict[Type, Type] = {}
        return [_numbered(self._types.resolve(item.type), numbers) for item in scopes.values() if item.type.free]

    def _value_of(self, source: typed_ast.TypedNode, written: ast.SyntaxNode) -> Type:
        """The type of the value inside an optional."""
        value = self._types.fresh()
        if not self._types.assign((source.type,), (optional_of(value),)):
            raise self._error(f"expected an optional value but found '{self.final(source.type)}'", written)
        return self._types.resolve(value)

    def _optional_result(self, written: ast.SyntaxNode, body: Type, *, flat: bool) -> Type:
        """`source.hasValue() ? optional.of(body) : optional.none()`, or the body itself if `flat`."""
        found = self._types.resolve(body)
        either = self._types.fresh()
        present, absent = found if flat else optional_of(found), optional_of(self._types.fresh())
        if not self._types.assign((present, absent), (either, either)):
            raise self._error(f"expected an optional value but found '{self.final(body)}'", written)
        return self._types.resolve(either)

    def _range(self, node: ast.Comprehension, source: Type) -> tuple[Type, ...]:
        """The types of the variables of a loop over a source of this type."""
        found = self._types.resolve(source)
        single = len(node.names) == 1
        if found.kind == "list":
            return (found.parameters[0],) if single else (INT, found.parameters[0])
        if found.kind == "map":
            return found.parameters[: len(node.names)]
        if found.kind == "variable":
            self._types.assign((DYN,), (found,))
        elif found.kind != "dyn" or found == ANY:
            message = f"expression of type '{found}' cannot be range of a comprehension (must be list, map, or dynamic)"
            raise self._error(message, node.source)
        return (DYN,) * len(node.names)

    def _loop_type(self, node: ast.Comprehension, body: typed_ast.TypedNode, inner: Scopes) -> Type:
        if node.kind == "list":
            return list_of(self._types.resolve(body.type))
        if node.kind == "map":
            key = inner[node.names[0]].type
            self._require_value(key, node.names[0], node)
            return self._types.resolve(map_of(key, body.type))
        if node.kind == "entries":
            return self._merged(node, body)
        self._expect_bool(body, node.body)
        return BOOL

    def _merged(self, node: ast.Comprehension, body: typed_ast.TypedNode) -> Type:
        """The type of the map into which transformMapEntry merges the maps of all rounds."""
        result = map_of(self._types.fresh(), self._types.fresh())
        either = map_of(self._types.fresh(), self._types.fresh())
        if not self._types.assign((result, body.type), (either, either)):
            raise self._error(f"expected a map but found '{self.final(body.type)}'", node.body)
        self._dispatch_dynamically_if_free(result)
        return self._types.resolve(result)

    def _sorted(self, node: ast.Comprehension, source: Type, key: Type) -> tuple[Type, bool]:
        """The type of sortBy's result, and whether one type of keys is the only one that fits."""
        keys = list_of(self._types.resolve(key))
        results: list[Type] = []
        self._types.step(len(_SORTABLE))
        for kind in _SORTABLE:
            result = list_of(self._types.fresh())
            if self._types.assign((source, keys), (result, list_of(kind))):
                results.append(self._types.resolve(result))
        if not results:
            found = self.final(source)
            message = (
                f"applied to '{found}'"
                if found.kind not in {"list", "dyn"}
                else f"with a key of type '{self.final(key)}'"
            )
            raise self._error(f"found no matching overload for 'sortBy' {message}", node)
        self._dispatch_dynamically_if_free(results[-1])
        same = all(starmap(self._types.same, pairwise(results)))
        return results[0] if same else DYN, len(results) == 1
