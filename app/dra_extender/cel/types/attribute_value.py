"""Results of expressions as values of derived attributes (DRADerivedAttributes)."""

from collections.abc import Mapping
from typing import Any, Final

from dra_extender.cel.runtime.semver import Semver
from dra_extender.cel.runtime.values import LISTS, Optional, TypeValue, type_name, unwrapped
from dra_extender.cel.support.errors import CelRuntimeError
from dra_extender.cel.types.types import BOOL, DYN, INT, SEMVER, STRING, Type
from dra_extender.model.device import Attribute

_ELEMENTS: Final = frozenset({BOOL, INT, STRING, SEMVER, DYN})
_FIELDS: Final[Mapping[type, str]] = {
    bool: "bool_value",
    int: "int_value",
    str: "string_value",
    Semver: "version_value",
}


def may_be_attribute(result: Type) -> bool:
    """Whether values of a static type may be bools, ints, strings or versions, or lists of them."""
    return result in _ELEMENTS or (result.kind == "list" and result.parameters[0] in _ELEMENTS)


def to_attribute(value: Any) -> Attribute:
    """The attribute that holds a value; an empty list is one of strings, and versions keep their build metadata.

    Raises:
        CelRuntimeError: The value is no bool, int, string or version, and no list of one of these; optional lists are refused.
    """
    optional = type(value) is Optional
    value = _plain(value)
    kind = type(value)
    if kind in _FIELDS:
        return _holding(_FIELDS[kind], _text(value))
    if kind not in LISTS or optional:
        raise CelRuntimeError(f"unsupported CEL return type: {type_name(value)}")
    if not value:
        return Attribute(string_values=())
    values = tuple(map(_plain, value))
    first = type(values[0])
    if first not in _FIELDS:
        raise CelRuntimeError(f"unsupported list element type: {type_name(values[0])}")
    for place, item in enumerate(values):
        if type(item) is not first:
            expected, found = type_name(values[0]), type_name(item)
            raise CelRuntimeError(f"expected list element at index {place} to be {expected}, got {found}")
    return _holding(f"{_FIELDS[first]}s", tuple(map(_text, values)))


def _holding(field: str, value: Any) -> Attribute:
    fields: dict[str, Any] = {field: value}
    return Attribute(**fields)


def _plain(value: Any) -> Any:
    """The value inside of an optional, and the name of a type."""
    found = unwrapped(value)
    return found.name if type(found) is TypeValue else found


def _text(value: Any) -> Any:
    return value.text if type(value) is Semver else value
