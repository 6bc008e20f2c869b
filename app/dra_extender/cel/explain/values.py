"""The texts of values in messages."""

from collections.abc import Callable
from itertools import islice
from typing import Any, Final

from dra_extender.cel.syntax.printer import text_literal
from dra_extender.cel.values.integers import Uint
from dra_extender.cel.values.network import Cidr, IpAddress, Url
from dra_extender.cel.values.quantity import NANO, Quantity, QuantitySum, binary_text, format_quantity
from dra_extender.cel.values.semver import Semver
from dra_extender.cel.values.times import Duration, Timestamp, seconds_text, timestamp_text
from dra_extender.cel.values.values import CONTAINERS, LISTS, Optional, TypeValue, from_map_key, type_name

LONGEST_TEXT: Final = 200
"""The most characters of an expression or a value."""
_LONGEST_STRING: Final = 60
MOST_ITEMS: Final = 6
_DEEPEST_VALUE: Final = 3


def shortened(text: str, longest: int = LONGEST_TEXT) -> str:
    """Return the text, or its beginning and three dots."""
    return text if len(text) <= longest else f"{text[: longest - 3]}..."


def shown(value: Any) -> str:
    """Return a value as people read it: strings in quotes, quantities with their suffix, long ones cut."""
    return shortened(_shown(value, _DEEPEST_VALUE))


def quantity_text(nano: int) -> str:
    """Return the shorter one of the decimal and the binary spelling."""
    decimal, (units, remainder) = format_quantity(nano), divmod(nano, NANO)
    binary = binary_text(units) if units and not remainder else ""
    return min(decimal, binary or decimal, key=len)


def _shown(value: Any, depth: int) -> str:
    kind = type(value)
    if kind is str:
        return text_literal(shortened(value, _LONGEST_STRING))
    if kind in CONTAINERS and depth:
        more = f", and {len(value) - MOST_ITEMS} more" if len(value) > MOST_ITEMS else ""
        if kind in LISTS:
            return f"[{', '.join(_shown(item, depth - 1) for item in value[:MOST_ITEMS])}{more}]"
        entries = islice(value.items(), MOST_ITEMS)
        pairs = (f"{_shown(from_map_key(key), 0)}: {_shown(item, depth - 1)}" for key, item in entries)
        return f"{{{', '.join(pairs)}{more}}}"
    if kind in CONTAINERS:
        return f"a {type_name(value)} of {len(value)}"
    if kind is Optional:
        return f"optional({_shown(value.value, max(depth - 1, 0))})" if value.present else "absent"
    text = _SCALARS.get(kind)
    return f"a {type_name(value)}" if text is None else text(value)


_SCALARS: Final[dict[type, Callable[[Any], str]]] = {
    type(None): lambda _: "null",
    bool: lambda value: "true" if value else "false",
    int: repr,
    float: repr,
    Uint: lambda value: f"{int(value)}u",
    bytes: lambda value: shortened(repr(value), _LONGEST_STRING),
    Quantity: lambda value: quantity_text(value.nano),
    QuantitySum: lambda value: quantity_text(value.nano),
    Semver: lambda value: value.text,
    TypeValue: lambda value: value.name,
    Duration: lambda value: seconds_text(value.nanos),
    Timestamp: timestamp_text,
    IpAddress: str,
    Cidr: str,
    Url: lambda value: value.text,
}
