"""Selections: `x.name`, `x[key]`, their optional forms, and has()."""

from collections.abc import Mapping
from operator import attrgetter
from typing import Any, Final

from dra_extender.cel.compiler.code import CompiledPart, EvaluatePart
from dra_extender.cel.cost import LOOKUP_WORK, PATH_WORK, SELECTION_WORK, EvaluationFrame
from dra_extender.cel.errors import CelCompileError, CelRuntimeError
from dra_extender.cel.native.equality import charge_key
from dra_extender.cel.types import typed_ast
from dra_extender.cel.types.types import OPTIONAL_NAME, UNSPECIFIC
from dra_extender.cel.values.integers import MAX_INT, MIN_INT
from dra_extender.cel.values.values import (
    LISTS,
    MAPS,
    NONE,
    NUMBERS,
    Optional,
    entry,
    from_map_key,
    map_key,
    no_overload,
    type_name,
)

_ABSENT: Final = object()

_LONG: Final = 64
_LONGEST_PATH: Final = 3
_SHOWN: Final = 1_000
"""The most characters of a key in a message."""
_TEST_OF_CHOICE: Final = -1
"""The path of has() of a selection from `?:`: as a branch of another `?:` it costs one unit more."""
_QUALIFIERS: Final = frozenset({str, bool}) | NUMBERS


def no_key(key: Any) -> CelRuntimeError:
    shown = from_map_key(key)
    return CelRuntimeError(f"no such key: {shown[:_SHOWN] if type(shown) is str else shown}")


def compile_field(node: typed_ast.FieldSelection, operand: CompiledPart) -> CompiledPart:
    shortcut, name, opens = _device_path(node), node.name, looks_into_optionals(node)
    work = LOOKUP_WORK
    if shortcut is not None:
        evaluate, work = shortcut, PATH_WORK
    elif node.test:
        evaluate = _presence(operand.evaluate, name, opens=opens)
    elif node.optional:
        evaluate = _optional_selection(operand.evaluate, lambda _: name, 1, opens=opens)
    else:
        evaluate = _select(operand.evaluate, name, opens=opens)
        work = LOOKUP_WORK if opens and node.operand.type.kind != "map" else SELECTION_WORK
    cost, path = _path_cost(operand)
    if node.test:
        path_of_test = 0 if path else _TEST_OF_CHOICE
        return CompiledPart(evaluate=evaluate, cost=cost, work=work, selection=True, path=path_of_test)
    return CompiledPart(evaluate=evaluate, cost=cost + 1, work=work, selection=True, path=path)


def compile_index(node: typed_ast.Index, operand: CompiledPart, key: CompiledPart, source: str) -> CompiledPart:
    if key.constant and type(key.value) not in _QUALIFIERS:
        raise CelCompileError(f"invalid qualifier type: {type_name(key.value)}", source, node.offset)
    shortcut, opens = _device_path(node), looks_into_optionals(node)
    key_cost = 1 + key.cost - key.path
    if shortcut is not None:
        evaluate = shortcut
    elif node.optional:
        evaluate = _optional_selection(operand.evaluate, key.evaluate, key_cost, opens=opens)
    else:
        evaluate = _index(operand.evaluate, key.evaluate, key_cost, opens=opens)
    cost, path = _path_cost(operand)
    work = LOOKUP_WORK if shortcut is None else PATH_WORK
    return CompiledPart(evaluate=evaluate, cost=cost + key_cost, work=work, selection=True, path=path)


def _path_cost(operand: CompiledPart) -> tuple[int, int]:
    """Return the cost before this selection, and how much of it is that of the path."""
    return (operand.cost, operand.path) if operand.selection else (operand.cost + 1, 1)


def looks_into_optionals(node: typed_ast.FieldSelection | typed_ast.Index) -> bool:
    """Return whether a selection reaches into an optional operand: if the path begins with it, or selects optionally before.

    An optional value that is an element or an entry on the path has neither entries nor elements.
    """
    operand = node.operand
    if not isinstance(operand, (typed_ast.FieldSelection, typed_ast.Index)):
        return True
    while isinstance(operand, (typed_ast.FieldSelection, typed_ast.Index)):
        if operand.optional:
            return True
        operand = operand.operand
    return operand.type.kind in UNSPECIFIC or operand.type.name == OPTIONAL_NAME


def _device_path(node: typed_ast.FieldSelection | typed_ast.Index) -> EvaluatePart | None:
    """Compile the selections of nearly every selector, such as `device.attributes["domain"].name`, in one closure."""
    match device_path(node), is_presence_test(node):
        case (field,), False:
            return _DEVICE_FIELDS.get(field)
        case (field, domain), False:
            domains = _MAPS[field]
            return lambda frame: domains(frame)[domain]
        case (field, domain, name), tests:
            return _presence_of(_MAPS[field], domain, name) if tests else _named(_MAPS[field], domain, name)
    return None


def device_path(node: typed_ast.TypedNode) -> tuple[str, ...]:
    """Return the constant names that lead from `device` to a part, as ("attributes", domain, name); empty if there are no such."""
    path: tuple[str, ...] = ()
    while not isinstance(node, typed_ast.DeviceVariable):
        if isinstance(node, typed_ast.FieldSelection):
            name: Any = node.name
        elif isinstance(node, typed_ast.Index) and isinstance(node.key, typed_ast.Constant):
            name = node.key.value
        else:
            return ()
        if node.optional or not isinstance(name, str) or len(path) == _LONGEST_PATH:
            return ()
        path = (name, *path)
        node = node.operand
    return path


def is_presence_test(node: typed_ast.TypedNode) -> bool:
    return isinstance(node, typed_ast.FieldSelection) and node.test


_MAPS: Final[Mapping[str, EvaluatePart]] = {
    "attributes": attrgetter("device.attributes"),
    "capacity": attrgetter("device.capacity"),
}
_DEVICE_FIELDS: Final[Mapping[str, EvaluatePart]] = {"driver": attrgetter("device.driver"), **_MAPS}


def _named(domains: EvaluatePart, domain: str, name: str) -> EvaluatePart:
    def evaluate(frame: EvaluationFrame) -> Any:
        try:
            return domains(frame)[domain][name]
        except KeyError:
            raise no_key(name) from None

    return evaluate


def _presence_of(domains: EvaluatePart, domain: str, name: str) -> EvaluatePart:
    return lambda frame: name in domains(frame)[domain]


def _select(operand: EvaluatePart, name: str, *, opens: bool) -> EvaluatePart:
    def evaluate(frame: EvaluationFrame) -> Any:
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
            return _select_from_value(frame, value, lambda _: name)
        raise no_key(name) if type(value) is Optional else no_overload(value)

    return evaluate


def _presence(operand: EvaluatePart, name: str, *, opens: bool) -> EvaluatePart:
    def evaluate(frame: EvaluationFrame) -> bool:
        try:
            value = operand(frame)
        except CelRuntimeError:
            frame.cost -= 1
            raise
        if type(value) is Optional and opens:
            return _select_from_value(frame, value, lambda _: name).present
        return _look_up(value, name, lenient=True) is not _ABSENT

    return evaluate


def _index(operand: EvaluatePart, key: EvaluatePart, key_cost: int, *, opens: bool) -> EvaluatePart:
    def evaluate(frame: EvaluationFrame) -> Any:
        try:
            value = operand(frame)
        except CelRuntimeError:
            frame.cost -= key_cost
            raise
        if type(value) is Optional and opens:
            return _select_from_value(frame, value, key, key_cost)
        key_value = key(frame)
        _charge(frame, key_value)
        selected = _look_up(value, key_value, lenient=False)
        if selected is _ABSENT:
            if type(value) in LISTS:
                raise CelRuntimeError(f"index out of bounds: {key_value}")
            raise no_key(key_value)
        return selected

    return evaluate


def _optional_selection(operand: EvaluatePart, key: EvaluatePart, key_cost: int, *, opens: bool) -> EvaluatePart:
    def evaluate(frame: EvaluationFrame) -> Optional:
        try:
            value = operand(frame)
        except CelRuntimeError:
            frame.cost -= key_cost
            raise
        return _select_from_value(frame, value, key, key_cost, opens=opens)

    return evaluate


def _select_from_value(
    frame: EvaluationFrame, value: Any, key: EvaluatePart, key_cost: int = 1, *, opens: bool = True
) -> Optional:
    """Select from a value, or from the value inside of an optional.

    A selection that fails or finds nothing costs nothing, and neither does a key that is not evaluated.
    """
    if type(value) is Optional and opens:
        if not value.present:
            frame.cost -= key_cost
            return NONE
        value = value.value
    try:
        key_value = key(frame)
        _charge(frame, key_value)
        selected = _look_up(value, key_value, lenient=True)
    except CelRuntimeError:
        frame.cost -= 1
        raise
    if selected is _ABSENT:
        frame.cost -= 1
        return NONE
    return Optional(present=True, value=selected)


def _charge(frame: EvaluationFrame, key: Any) -> None:
    if (type(key) is str and len(key) > _LONG) or type(key) is float:
        charge_key(frame, map_key(key), _LONG)


def _look_up(value: Any, key: Any, *, lenient: bool) -> Any:
    """Return the element or entry of a list or map, or a marker object if there is none; scalars have no entries if `lenient`."""
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
