"""The device as expressions see it."""

from collections.abc import Mapping
from typing import Any

import msgspec

from dra_extender.cel.runtime.quantity import read_quantity
from dra_extender.cel.runtime.semver import SemverError, parse_semver
from dra_extender.cel.runtime.values import DomainMap
from dra_extender.model.device import Attribute


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

    Args:
        driver: Name of the driver; also the domain of names without one.
        attributes: Values by name, "domain/name" or "name"; the qualified spelling wins if both are there.
        capacity: Amounts as they are published, by name.
        allow_multiple_allocations: The field of that name; False where it is absent.

    Raises:
        QuantityError: An amount cannot be read.
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
    """The CEL value of an attribute: lists first (an empty list counts), then int, bool, string and version.

    Raises:
        ValueError: No value is set, or a version is not a strict semantic version.
    """
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
