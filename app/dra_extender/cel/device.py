"""The device as expressions see it, and results of expressions as attributes of devices (DRADerivedAttributes)."""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from dra_extender.cel.errors import CelRuntimeError
from dra_extender.cel.types.types import BOOL, DYN, INT, SEMVER, STRING, Type
from dra_extender.cel.values.quantity import read_quantity
from dra_extender.cel.values.semver import Semver, SemverError, parse_semver
from dra_extender.cel.values.values import LISTS, DomainMap, Optional, TypeValue, type_name, unwrapped

_SPELLED: Final = {
    f"{kind}_value{plural}": f"{kind}{plural}" for kind in ("int", "bool", "string", "version") for plural in ("", "s")
}


class Attribute(msgspec.Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True, rename=_SPELLED):
    """The value of one device attribute, in JSON as the API has it; a union, so normally exactly one field is set."""

    int_value: int | None = None
    bool_value: bool | None = None
    string_value: str | None = None
    version_value: str | None = None
    int_values: tuple[int, ...] | None = None
    bool_values: tuple[bool, ...] | None = None
    string_values: tuple[str, ...] | None = None
    version_values: tuple[str, ...] | None = None


class DeviceActivation(msgspec.Struct, frozen=True):
    """A device prepared for evaluation by any number of programs.

    `fields` are the members of the variable `device`. `defect` is the error of an attribute without a value or with an invalid
    version: no expression can be evaluated then. Upstream fails, too, even if the expression does not mention the attribute.
    """

    fields: Mapping[str, Any]
    driver: str
    attributes: DomainMap
    capacity: DomainMap
    defect: str | None


def prepare_device(
    driver: str,
    attributes: Mapping[str, Attribute],
    capacity: Mapping[str, str],
    allow_multiple_allocations: bool,
) -> DeviceActivation:
    """Convert a device once.

    A name without a domain gets that of the driver, unless the qualified name is there, too. An amount that cannot be read is a
    QuantityError.
    """
    values = DomainMap()
    defect = None
    for name, attribute in sorted(attributes.items(), key=lambda item: "/" in item[0]):
        try:
            value = attribute_value(attribute)
        except ValueError as error:
            defect = defect or f"attribute {name}: {error}"
            continue
        _put(values, driver, name, value)
    amounts = DomainMap()
    for name, text in sorted(capacity.items(), key=lambda item: "/" in item[0]):
        _put(amounts, driver, name, read_quantity(text))
    fields = {
        "driver": driver,
        "allowMultipleAllocations": allow_multiple_allocations,
        "attributes": values,
        "capacity": amounts,
    }
    return DeviceActivation(fields, driver, values, amounts, defect)


def attribute_value(attribute: Attribute) -> Any:
    """Return the CEL value of an attribute: lists first (an empty list counts), then int, bool, string and version."""
    for plain in (attribute.int_values, attribute.bool_values, attribute.string_values):
        if plain is not None:
            return tuple(plain)
    if attribute.version_values is not None:
        return tuple(_version(text) for text in attribute.version_values)
    for scalar in (attribute.int_value, attribute.bool_value, attribute.string_value):
        if scalar is not None:
            return scalar
    if attribute.version_value is not None:
        return _version(attribute.version_value)
    raise ValueError("unsupported attribute value: none of its fields is set")


def _version(text: str) -> Any:
    try:
        return parse_semver(text)
    except SemverError as error:
        raise ValueError(f"parse semantic version: {error}") from None


def _put(domains: DomainMap, driver: str, name: str, value: Any) -> None:
    domain, slash, identifier = name.partition("/")
    if not slash:
        domain, identifier = driver, name
    domains.setdefault(domain, {})[identifier] = value


_ELEMENTS: Final = frozenset({BOOL, INT, STRING, SEMVER, DYN})
_FIELDS: Final[Mapping[type, str]] = {
    bool: "bool_value",
    int: "int_value",
    str: "string_value",
    Semver: "version_value",
}


def may_be_attribute(result: Type) -> bool:
    """Return whether values of a static type may be bools, ints, strings or versions, or lists of them."""
    return result in _ELEMENTS or (result.kind == "list" and result.parameters[0] in _ELEMENTS)


def to_attribute(value: Any) -> Attribute:
    """Return the attribute that holds a value; an empty list is one of strings, and versions keep their build metadata.

    A value that is no bool, int, string or version, and no list of one of these, is a CelRuntimeError; so is an optional list.
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
            expected, actual = type_name(values[0]), type_name(item)
            raise CelRuntimeError(f"expected list element at index {place} to be {expected}, got {actual}")
    return _holding(f"{_FIELDS[first]}s", tuple(map(_text, values)))


def _holding(field: str, value: Any) -> Attribute:
    fields: dict[str, Any] = {field: value}
    return Attribute(**fields)


def _plain(value: Any) -> Any:
    """Return the value inside of an optional, and the name of a type."""
    plain = unwrapped(value)
    return plain.name if type(plain) is TypeValue else plain


def _text(value: Any) -> Any:
    return value.text if type(value) is Semver else value
