"""Quantities as apimachinery's resource.Quantity stores them, because some functions show how.

An amount is stored as a 64-bit number with a decimal exponent if it is written so that this suffices, else as a decimal of any
size. Comparisons depend on the value alone. The storage decides whether a quantity is an integer, and how sums and floating-point
numbers are rounded.
"""

import re
from functools import lru_cache
from math import inf
from typing import Final

import msgspec

from dra_extender.cel.runtime.integers import MAX_INT, MIN_INT
from dra_extender.cel.support.errors import CelRuntimeError
from dra_extender.model.quantity import (
    BINARY_EXPONENTS,
    DECIMAL_EXPONENTS,
    MAX_LENGTH,
    NANO,
    QuantityError,
    parse_quantity,
)

LONGEST_QUANTITY: Final = MAX_LENGTH
"""Characters of the longest text that is read."""
_NANO_SCALE: Final = -9
_MOST_DIGITS: Final = 18
_LEAST_SCALE: Final = -1400
_LEAST_POWER: Final = -323
_MOST_POWER: Final = 308
_GREATEST: Final = MAX_INT * NANO

_PARTS: Final = re.compile(r"[+-]?0*+([0-9]*+)\.?([0-9]*+)(.*)")


class Quantity(msgspec.Struct, frozen=True, gc=False, eq=False):
    """An amount, `nano` in nano units, stored as `value` times ten to the power of `scale`.

    `decimal` is set where the number needs more than 64 bits. Quantities are equal if their amounts are.
    """

    nano: int
    value: int
    scale: int
    decimal: bool

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Quantity) and self.nano == other.nano

    def __hash__(self) -> int:
        return hash(self.nano)


class QuantitySum(Quantity, frozen=True, gc=False, eq=False):
    """The result of add or sub; as upstream, `==` accepts it on the left side only, and fails with one on the right."""


_KEPT_LENGTH: Final = 32
"""The most characters of a text whose quantity is cached."""


def read_quantity(text: str) -> Quantity:
    """Read a quantity.

    Raises:
        QuantityError: The text is no quantity, or is too long.
    """
    return _cached(text) if len(text) <= _KEPT_LENGTH else read_uncached(text)


@lru_cache(maxsize=16384)
def _cached(text: str) -> Quantity:
    return read_uncached(text)


def read_uncached(text: str) -> Quantity:
    """As `read_quantity`, without the cache."""
    nano = parse_quantity(text)
    found = _PARTS.fullmatch(text)
    if found is None:
        raise QuantityError(f"cannot read quantity {text!r}")
    whole, fraction, suffix = found[1] or "0", found[2], found[3]
    binary = BINARY_EXPONENTS.get(suffix)
    scale = (0 if binary is not None else _exponent(suffix)) - len(fraction)
    digits = len(whole) + len(fraction)
    if binary is not None:
        short = not fraction and digits + 3 * binary // 10 < _MOST_DIGITS - 3
    else:
        short = digits <= _MOST_DIGITS and scale >= _NANO_SCALE
    if short:
        value = int(whole + fraction) << (binary or 0)
        return Quantity(nano, -value if text[0] == "-" else value, scale, decimal=False)
    if nano == 0:
        return Quantity(0, 0, max(scale, _LEAST_SCALE), decimal=True)
    if binary is not None and abs(nano) == _GREATEST:
        return Quantity(nano, nano // NANO, 0, decimal=True)
    return Quantity(nano, nano, _NANO_SCALE, decimal=True)


def _exponent(suffix: str) -> int:
    found = DECIMAL_EXPONENTS.get(suffix)
    return int(suffix[1:]) if found is None else found


def whole_number(number: int) -> Quantity:
    """The quantity of a 64-bit integer."""
    return Quantity(number * NANO, number, 0, decimal=False)


def as_integer(quantity: Quantity) -> int | None:
    """The amount as a 64-bit integer; None if its stored form is no integer, as that of `1.0` and `1000m`."""
    if quantity.decimal or quantity.scale < 0:
        return None
    if quantity.scale == 0 or quantity.value == 0:
        return quantity.value
    number: int = quantity.nano // NANO
    return number if MIN_INT <= number <= MAX_INT else None


def as_float(quantity: Quantity) -> float:
    """The stored number times a power of ten, both rounded before they are multiplied, as upstream does."""
    try:
        base = float(quantity.value)
    except OverflowError:
        base = inf if quantity.value > 0 else -inf
    return base * _power_of_ten(quantity.scale) if quantity.scale else base


def _power_of_ten(power: int) -> float:
    """As Go computes it, from two factors of a table."""
    if power > _MOST_POWER:
        return inf
    if power < _LEAST_POWER:
        return 0.0
    large, small = divmod(abs(power), 32)
    if power >= 0:
        return float(f"1e{32 * large}") * float(f"1e{small}")
    return float(f"1e-{32 * large}") / float(f"1e{small}")


def added(one: Quantity, other: Quantity) -> QuantitySum:
    """The sum, in the smaller scale of both."""
    if not (one.decimal or other.decimal):
        made = _short_sum(one, other.value, other.scale)
        if made is not None:
            return made
    return _decimal_sum(one, other, 1)


def subtracted(one: Quantity, other: Quantity) -> QuantitySum:
    """The difference; the least 64-bit integer has no opposite, and is added where upstream subtracts it."""
    if not (one.decimal or other.decimal):
        opposite = other.value if other.value == MIN_INT else -other.value
        made = _short_sum(one, opposite, other.scale)
        if made is not None:
            return made
    return _decimal_sum(one, other, -1)


def _short_sum(one: Quantity, value: int, scale: int) -> QuantitySum | None:
    """The sum of two short numbers, None if it is too large to be short."""
    if value == 0:
        return QuantitySum(one.nano, one.value, one.scale, decimal=False)
    if one.value == 0:
        return _short(value, scale)
    least = min(one.scale, scale)
    first, second = one.value * 10 ** (one.scale - least), value * 10 ** (scale - least)
    total = first + second
    fits = all(MIN_INT <= part <= MAX_INT for part in (first, second, total))
    return _short(total, least) if fits else None


def _short(value: int, scale: int) -> QuantitySum:
    return QuantitySum(value * 10 ** (scale - _NANO_SCALE), value, scale, decimal=False)


def _decimal_sum(one: Quantity, other: Quantity, sign: int) -> QuantitySum:
    least = min(one.scale, other.scale)
    first, second = (each.value and each.value * 10 ** (each.scale - least) for each in (one, other))
    return QuantitySum(one.nano + sign * other.nano, first + sign * second, least, decimal=True)


def quantity(text: str) -> Quantity:
    """`quantity(text)`.

    Raises:
        CelRuntimeError: The text is no quantity.
    """
    try:
        return read_quantity(text)
    except QuantityError as error:
        raise CelRuntimeError(str(error)) from None


def is_quantity(text: str) -> bool:
    """`isQuantity(text)`."""
    try:
        read_quantity(text)
    except QuantityError:
        return False
    return True
