"""Run-time values.

CEL values are Python's own wherever the meaning is the same: None, bool, int, float, str, bytes, list or tuple, dict.
Other types, such as unsigned integers, optionals, quantities and versions, have classes.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from dra_extender.cel.errors import CelRuntimeError
from dra_extender.cel.values.integers import Uint
from dra_extender.cel.values.named_formats import NamedFormat
from dra_extender.cel.values.network import Cidr, IpAddress, Url
from dra_extender.cel.values.quantity import Quantity, QuantitySum
from dra_extender.cel.values.semver import Semver
from dra_extender.cel.values.times import Duration, Timestamp


class Optional(msgspec.Struct, frozen=True):
    """An optional value; `present` is false for optional.none()."""

    present: bool
    value: Any = None


class TypeValue(msgspec.Struct, frozen=True, gc=False):
    """The value of `type(x)`."""

    name: str


class DomainMap(dict[str, dict[str, Any]]):
    """`device.attributes` and `device.capacity`: the value of an unknown domain is an empty map; `in` and size() ignore it."""

    __slots__ = ()

    def __missing__(self, _: object) -> Mapping[str, Any]:
        return {}


UNHASHABLE: Final = frozenset({bytes, Semver, NamedFormat})
"""Types whose values upstream cannot look up in a map."""
_SIZED: Final = frozenset({str, bytes, list, tuple, dict, DomainMap})
NONE: Final = Optional(present=False)
NUMBERS: Final = frozenset({int, Uint, float})
LISTS: Final = frozenset({list, tuple})
MAPS: Final = frozenset({dict, DomainMap})
CONTAINERS: Final = LISTS | MAPS
KEYS: Final = frozenset({str, type(None), Duration, Timestamp, IpAddress, Cidr, TypeValue}) | NUMBERS - {float}
"""Types of map keys whose equality in Python is that of CEL: all but bool and double."""

KIND_NAMES: Final[Mapping[type, str]] = {
    type(None): "null_type",
    bool: "bool",
    int: "int",
    Uint: "uint",
    float: "double",
    str: "string",
    bytes: "bytes",
    list: "list",
    tuple: "list",
    dict: "map",
    DomainMap: "map",
    TypeValue: "type",
    Optional: "optional_type",
    Quantity: "kubernetes.Quantity",
    QuantitySum: "kubernetes.Quantity",
    Duration: "google.protobuf.Duration",
    Timestamp: "google.protobuf.Timestamp",
    Semver: "kubernetes.Semver",
    IpAddress: "net.IP",
    Cidr: "net.CIDR",
    Url: "kubernetes.URL",
    NamedFormat: "kubernetes.NamedFormat",
}
"""The CEL name of the type of each kind of values."""


def type_name(value: object) -> str:
    return KIND_NAMES.get(type(value), type(value).__name__)


def no_overload(*values: object) -> CelRuntimeError:
    """Return the error for an operation that does not exist for these run-time types."""
    return CelRuntimeError(f"no such overload for ({', '.join(map(type_name, values))})")


def optional(value: Any) -> Optional:
    """Return an optional that holds the value, or none of None."""
    return NONE if value is None else Optional(present=True, value=value)


def unwrapped(value: Any) -> Any:
    """Return the value inside of an optional, however deep; any other value itself."""
    while type(value) is Optional and value.present:
        value = value.value
    return value


def size_of(value: Any) -> int:
    """Return the size that cost formulas count: elements or characters, 1 for what has no size."""
    kind = type(value)
    if kind in _SIZED:
        return len(value)
    if kind is Optional:
        return size_of(value.value) if value.present else 1
    return value.size if kind is IpAddress or kind is Cidr else 1


def map_key(key: Any) -> Any:
    """Return the dict key of a map key: bools and doubles are wrapped, because Python takes them as equal to integers."""
    kind = type(key)
    if kind in KEYS:
        return key
    if kind is bool:
        return _BOOL_KEYS[key]
    if kind is float:
        return DoubleKey(key if key == key else float("nan"))  # noqa: PLR0124 - a NaN of its own equals no other
    raise CelRuntimeError(f"unsupported map key type: {type_name(key)}")


def member_key(value: Any) -> Any:
    """Return what represents a value in a frozenset: bools are wrapped, because Python takes them as equal to integers."""
    return _BOOL_KEYS[value] if type(value) is bool else value


def from_map_key(key: Any) -> Any:
    return key.value if type(key) is BoolKey or type(key) is DoubleKey else key


def entry(values: Mapping[Any, Any], key: Any) -> Any:
    """Return the value under a key, if there is one; a double finds a whole number that equals it, but no number finds a double."""
    place = map_key(key)
    if type(place) is DoubleKey and place not in values and key.is_integer():
        place = int(key)
    return values[place]


def keys_of(values: Mapping[Any, Any]) -> Iterator[Any]:
    """Return the CEL keys of a map, in the order it was built."""
    return (from_map_key(key) for key in values)


class BoolKey(msgspec.Struct, frozen=True, gc=False):
    """The dict key of a bool."""

    value: bool


class DoubleKey(msgspec.Struct, frozen=True, gc=False):
    """The dict key of a double."""

    value: float


_BOOL_KEYS: Final = (BoolKey(value=False), BoolKey(value=True))
