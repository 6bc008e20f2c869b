"""Selections: `x.name`, `x[key]`, their optional forms, and has()."""

from collections.abc import Callable
from typing import Any, Final

from dra_extender.cel.compiler.code import CompiledPart, Run
from dra_extender.cel.native.equality import charge_key
from dra_extender.cel.runtime.cost import EvaluationFrame
from dra_extender.cel.runtime.values import (
    LISTS,
    MAPS,
    MAX_INT,
    MIN_INT,
    NONE,
    NUMBERS,
    Optional,
    entry,
    from_map_key,
    map_key,
    no_overload,
    type_name,
)
from dra_extender.cel.support.errors import CelCompileError, CelRuntimeError
from dra_extender.cel.types import typed_ast

_ABSENT: Final = object()
_LONG: Final = 64
_SHOWN: Final = 1_000
"""Characters of a key that a message names."""
_TEST_OF_CHOICE: Final = -1
"""has() of a selection from `?:` costs a unit more as a branch of another."""
_QUALIFIERS: Final = frozenset({str, bool}) | NUMBERS


def no_key(key: Any) -> CelRuntimeError:
    """The error for a key that a map does not have."""
    shown = from_map_key(key)
    return CelRuntimeError(f"no such key: {shown[:_SHOWN] if type(shown) is str else shown}")


def compile_field(node: typed_ast.FieldSelection, operand: CompiledPart) -> CompiledPart:
    """Compile a selection by name."""
    shortcut = _device_path(node)
    if shortcut is not None:
        run = shortcut
    elif node.test:
        run = _presence(operand.run, node.name, opens=_opens(node))
    elif node.optional:
        run = _optionally(operand.run, _constant_key(node.name), 1, opens=_opens(node))
    else:
        run = _select(operand.run, node.name, opens=_opens(node))
    cost, path = _path_cost(operand)
    if node.test:
        return CompiledPart(run=run, cost=cost, selection=True, path=0 if path else _TEST_OF_CHOICE)
    return CompiledPart(run=run, cost=cost + 1, selection=True, path=path)


def compile_index(node: typed_ast.Index, operand: CompiledPart, key: CompiledPart, source: str) -> CompiledPart:
    """Compile a selection by index or key.

    Raises:
        CelCompileError: A constant key is of a type that nothing can be selected by.
    """
    if key.constant and type(key.value) not in _QUALIFIERS:
        raise CelCompileError(f"invalid qualifier type: {type_name(key.value)}", source, node.offset)
    shortcut = _device_path(node)
    key_cost = 1 + key.cost - key.path
    if shortcut is not None:
        run = shortcut
    elif node.optional:
        run = _optionally(operand.run, key.run, key_cost, opens=_opens(node))
    else:
        run = _index(operand.run, key.run, key_cost, opens=_opens(node))
    cost, path = _path_cost(operand)
    return CompiledPart(run=run, cost=cost + key_cost, selection=True, path=path)


def _path_cost(operand: CompiledPart) -> tuple[int, int]:
    """The cost before this selection, and the part of it that stands for the whole path."""
    return (operand.cost, operand.path) if operand.selection else (operand.cost + 1, 1)


def _opens(node: typed_ast.FieldSelection | typed_ast.Index) -> bool:
    """Whether an optional operand is looked into: where the path begins with it, or has an optional selection before.

    One that is found on the way, as an element or entry, has neither entries nor elements.
    """
    operand = node.operand
    if not isinstance(operand, (typed_ast.FieldSelection, typed_ast.Index)):
        return True
    while isinstance(operand, (typed_ast.FieldSelection, typed_ast.Index)):
        if operand.optional:
            return True
        operand = operand.operand
    return operand.type.kind in {"dyn", "variable"} or operand.type.name == "optional_type"


def _constant_key(name: str) -> Run:
    return lambda _: name


def _device_path(node: typed_ast.TypedNode) -> Run | None:
    """The shape of nearly every selector, `device.driver` and `device.attributes["domain"].name`, without detours."""
    if not isinstance(node, (typed_ast.FieldSelection, typed_ast.Index)) or node.optional:
        return None
    if isinstance(node.operand, typed_ast.DeviceVariable):
        return _DEVICE_FIELDS.get(node.name) if isinstance(node, typed_ast.FieldSelection) and not node.test else None
    name = _constant_name(node)
    if (
        name is None
        or not isinstance(node.operand, (typed_ast.FieldSelection, typed_ast.Index))
        or node.operand.optional
    ):
        return None
    if isinstance(node.operand.operand, typed_ast.DeviceVariable):
        if isinstance(node.operand, typed_ast.FieldSelection) and node.operand.name in _DOMAINS and not _tests(node):
            return _DOMAINS[node.operand.name](name)
        return None
    domain = _constant_name(node.operand)
    maps = node.operand.operand
    if (
        domain is None
        or not isinstance(maps, typed_ast.FieldSelection)
        or not isinstance(maps.operand, typed_ast.DeviceVariable)
        or maps.optional
    ):
        return None
    shapes = _TESTS if _tests(node) else _NAMES
    return shapes[maps.name](domain, name) if maps.name in shapes else None


def attribute_path(node: typed_ast.TypedNode) -> tuple[str, str] | None:
    """Domain and name, if a part is `device.attributes["domain"].name` without anything optional."""
    if not isinstance(node, (typed_ast.FieldSelection, typed_ast.Index)) or node.optional or _tests(node):
        return None
    domains = node.operand
    if not isinstance(domains, (typed_ast.FieldSelection, typed_ast.Index)) or domains.optional:
        return None
    maps, domain, name = domains.operand, _constant_name(domains), _constant_name(node)
    if (
        not isinstance(maps, typed_ast.FieldSelection)
        or maps.optional
        or maps.name != "attributes"
        or domain is None
        or name is None
    ):
        return None
    return (domain, name) if isinstance(maps.operand, typed_ast.DeviceVariable) else None


def _tests(node: typed_ast.TypedNode) -> bool:
    return isinstance(node, typed_ast.FieldSelection) and node.test


def _constant_name(node: typed_ast.FieldSelection | typed_ast.Index) -> str | None:
    if isinstance(node, typed_ast.FieldSelection):
        return node.name
    key = node.key
    return key.value if isinstance(key, typed_ast.Constant) and isinstance(key.value, str) else None


def _attribute(domain: str, name: str) -> Run:
    def run(frame: EvaluationFrame) -> Any:
        try:
            return frame.device.attributes[domain][name]
        except KeyError:
            raise no_key(name) from None

    return run


def _capacity(domain: str, name: str) -> Run:
    def run(frame: EvaluationFrame) -> Any:
        try:
            return frame.device.capacity[domain][name]
        except KeyError:
            raise no_key(name) from None

    return run


_DEVICE_FIELDS: Final[dict[str, Run]] = {
    "driver": lambda frame: frame.device.driver,
    "attributes": lambda frame: frame.device.attributes,
    "capacity": lambda frame: frame.device.capacity,
}
_DOMAINS: Final[dict[str, Callable[[str], Run]]] = {
    "attributes": lambda domain: lambda frame: frame.device.attributes[domain],
    "capacity": lambda domain: lambda frame: frame.device.capacity[domain],
}
_NAMES: Final[dict[str, Callable[[str, str], Run]]] = {"attributes": _attribute, "capacity": _capacity}
_TESTS: Final[dict[str, Callable[[str, str], Run]]] = {
    "attributes": lambda domain, name: lambda frame: name in frame.device.attributes[domain],
    "capacity": lambda domain, name: lambda frame: name in frame.device.capacity[domain],
}


def _select(operand: Run, name: str, *, opens: bool) -> Run:
    def run(frame: EvaluationFrame) -> Any:
        try:
            value = operand(frame)
        except CelRuntimeError:
            frame.cost -= 1
            raise
        if type(value) in MAPS:
            try:
                return value[name]
            except KeyError:
                raise no_key(name) from None
        if type(value) is Optional and opens:
            return _refunding(frame, lambda: _inside(frame, value, name))
        raise no_key(name) if type(value) is Optional else no_overload(value)

    return run


def _presence(operand: Run, name: str, *, opens: bool) -> Run:
    def run(frame: EvaluationFrame) -> bool:
        try:
            value = operand(frame)
        except CelRuntimeError:
            frame.cost -= 1
            raise
        if type(value) is Optional and opens:
            present = value.present and (
                _refunding(frame, lambda: _look_up(value.value, name, lenient=True)) is not _ABSENT
            )
            frame.cost -= not present
            return present
        return _look_up(value, name, lenient=True) is not _ABSENT

    return run


def _index(operand: Run, key: Run, key_cost: int, *, opens: bool) -> Run:
    def run(frame: EvaluationFrame) -> Any:
        try:
            value = operand(frame)
        except CelRuntimeError:
            frame.cost -= key_cost
            raise
        if type(value) is Optional and opens:
            if value.present:
                return _refunding(frame, lambda: _inside(frame, value, key(frame)))
            frame.cost -= key_cost
            return NONE
        wanted = key(frame)
        _charge(frame, wanted)
        found = _look_up(value, wanted, lenient=False)
        if found is _ABSENT:
            if type(value) in LISTS:
                raise CelRuntimeError(f"index out of bounds: {wanted}")
            raise no_key(wanted)
        return found

    return run


def _optionally(operand: Run, key: Run, key_cost: int, *, opens: bool) -> Run:
    """Select what may be absent; a selection that fails costs nothing, nor does a key that nobody asked for."""

    def run(frame: EvaluationFrame) -> Optional:
        unspent = key_cost
        try:
            value = operand(frame)
            if type(value) is Optional and not value.present and opens:
                frame.cost -= key_cost
                return NONE
            unspent = 1
            return _inside(frame, value, key(frame), opens=opens)
        except CelRuntimeError:
            frame.cost -= unspent
            raise

    return run


def _refunding(frame: EvaluationFrame, select: Callable[[], Any]) -> Any:
    """Select from an optional value; a selection that fails costs nothing."""
    try:
        return select()
    except CelRuntimeError:
        frame.cost -= 1
        raise


def _inside(frame: EvaluationFrame, value: Any, key: Any, *, opens: bool = True) -> Optional:
    """Look into a value or an optional one; a selection that finds nothing costs nothing."""
    if type(value) is Optional and opens:
        if not value.present:
            frame.cost -= 1
            return NONE
        value = value.value
    _charge(frame, key)
    found = _look_up(value, key, lenient=True)
    if found is _ABSENT:
        frame.cost -= 1
        return NONE
    return Optional(present=True, value=found)


def _charge(frame: EvaluationFrame, key: Any) -> None:
    if (type(key) is str and len(key) > _LONG) or type(key) is float:
        charge_key(frame, map_key(key), _LONG)


def _look_up(value: Any, key: Any, *, lenient: bool) -> Any:
    """The element or entry of a list or map, or a marker object if there is none; `lenient` has no entries in scalars."""
    kind = type(value)
    if type(key) not in _QUALIFIERS:
        raise CelRuntimeError(f"invalid qualifier type: {type_name(key)}")
    if kind in MAPS:
        try:
            return entry(value, key)
        except KeyError:
            return _ABSENT
    if kind not in LISTS:
        if lenient:
            return _ABSENT
        raise no_overload(value, key)
    if isinstance(key, float) and key.is_integer() and key > MIN_INT:
        key = int(key)
    if isinstance(key, bool) or not isinstance(key, int) or key > MAX_INT:
        raise no_overload(value, key)
    return value[key] if 0 <= key < len(value) else _ABSENT
