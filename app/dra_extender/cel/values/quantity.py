"""Kubernetes quantities: amounts as exact integers, and amounts as apimachinery's resource.Quantity stores them.

Nothing in the Quantity grammar is finer than one nano unit, so an amount is an `int` counting nano units: sums, differences and
comparisons are exact and as cheap as integers are. Binary and decimal spellings of one amount are the same number; the spelling is
not kept.

Some functions of CEL show how upstream stores a quantity: as a 64-bit number with a decimal exponent if it is written so that this
suffices, else as a decimal of any size. The storage decides whether a quantity is an integer, and how sums and floating-point
numbers are rounded; comparisons depend only on the amount.
"""

import re
from functools import lru_cache
from math import inf
from typing import Final

import msgspec

from dra_extender.cel.errors import CelRuntimeError
from dra_extender.cel.values.integers import MAX_INT, MIN_INT

NANO: Final = 10**9
"""Nano units in one unit."""

MAX_LENGTH: Final = 1000
"""Characters of the longest text that is read."""
_MAX_EXPONENT: Final = 400
_BINARY_CAP: Final = (2**63 - 1) * NANO
_SHOWN_LENGTH: Final = 60
_KEPT_LENGTH: Final = 32
"""Characters of a text up to which its quantity is cached."""
_NANO_SCALE: Final = -9
_MOST_DIGITS: Final = 18
_LEAST_SCALE: Final = -1400
_LEAST_POWER: Final = -323
_MOST_POWER: Final = 308

# Sign, whole digits, fraction digits, suffix. Kubernetes accepts no blanks, no underscores and only ASCII digits; it
# reads a text without any digit ("+", ".", "Mi") as the amount zero.
_GRAMMAR: Final = re.compile(r"([+-]?)([0-9]*+)(?:\.([0-9]*+))?+([eEinumkKMGTP]*+[+-]?[0-9]*+)")
_SCIENTIFIC: Final = re.compile(r"[eE]([+-]?[0-9]+)")
DECIMAL_EXPONENTS: Final = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
"""Suffix -> power of ten."""
BINARY_EXPONENTS: Final = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
"""Suffix -> power of two."""
_SUFFIX_BY_SIZE: Final = tuple(
    (10 ** (9 + exponent), suffix) for suffix, exponent in reversed(DECIMAL_EXPONENTS.items())
)
_BINARY_STEP: Final = 1024
_LEAST_MEMORY: Final = 64 * _BINARY_STEP
_BINARY_BY_SIZE: Final = tuple(reversed(BINARY_EXPONENTS.items()))


class QuantityError(ValueError):
    """A text that is no Kubernetes quantity; the message is a sentence that quotes it."""


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


def parse_quantity(text: str) -> int:
    """Return the amount of a Kubernetes quantity in nano units; see `read_quantity`."""
    return read_quantity(text).nano


def read_quantity(text: str) -> Quantity:
    """Read a quantity.

    Accepts the whole grammar of the API ("40Gi", "500m", "1.5", "2e3", ".5k", "-1"). What is finer than a nano unit is
    rounded away from zero, and a binary amount is capped at 2**63-1 units, both as the API server does. A text that is no quantity,
    or whose size is out of all proportion (exponent above 400, more than 1000 characters), is a QuantityError.
    """
    return _cached(text) if len(text) <= _KEPT_LENGTH else read_uncached(text)


def read_uncached(text: str) -> Quantity:
    """Read a quantity as `read_quantity` does, without the cache."""
    match = _GRAMMAR.fullmatch(text) if text and len(text) <= MAX_LENGTH else None
    if match is None:
        raise QuantityError(
            f"cannot read quantity {_shown(text)}: "
            "expected an optional sign, digits, and a suffix such as k, M, Gi, m or e3",
        )
    sign, integral, fraction, suffix = match.groups(default="")
    if not (integral or fraction) and _needs_digits(suffix):
        raise QuantityError(f"cannot read quantity {_shown(text)}: expected digits before {suffix!r}")
    binary = BINARY_EXPONENTS.get(suffix)
    value = int(f"0{integral}{fraction}") << (binary or 0)
    scale = (0 if binary is not None else _decimal_exponent(text, suffix, zero=not value)) - len(fraction)
    nano = _scaled(value, scale - _NANO_SCALE)
    if binary is not None:
        nano = min(nano, _BINARY_CAP)
    digits = max(1, len(integral.lstrip("0"))) + len(fraction)
    if binary is not None:
        short = not fraction and digits + 3 * binary // 10 < _MOST_DIGITS - 3
    else:
        short = digits <= _MOST_DIGITS and scale >= _NANO_SCALE
    sign_factor = -1 if sign == "-" else 1
    if short:
        return Quantity(sign_factor * nano, sign_factor * value, scale, decimal=False)
    if nano == 0:
        return Quantity(0, 0, max(scale, _LEAST_SCALE), decimal=True)
    nano *= sign_factor
    if binary is not None and abs(nano) == _BINARY_CAP:
        return Quantity(nano, nano // NANO, 0, decimal=True)
    return Quantity(nano, nano, _NANO_SCALE, decimal=True)


_cached: Final = lru_cache(maxsize=16384)(read_uncached)


def format_quantity(nano: int) -> str:
    """Spell an amount of nano units as the canonical decimal quantity.

    It has no fraction and the largest suffix that fits ("40G", "1500m"), and parses back to the same amount.
    """
    for size, suffix in _SUFFIX_BY_SIZE:
        if nano and nano % size == 0:
            return f"{nano // size}{suffix}"
    return "0"


def counter_text(nano: int) -> str:
    """Spell the size of a counter, whose own spelling is not kept: sizes of memory as binary quantities, others as decimal ones."""
    units, remainder = divmod(nano, NANO)
    if remainder or units < _LEAST_MEMORY or units % _BINARY_STEP:
        return format_quantity(nano)
    return binary_text(units)


def binary_text(units: int) -> str:
    """Spell a number of whole units with the largest binary suffix that divides it; empty if none does."""
    exact = (f"{units >> exponent}{suffix}" for suffix, exponent in _BINARY_BY_SIZE if units % (1 << exponent) == 0)
    return next(exact, "")


def _needs_digits(suffix: str) -> bool:
    """Return whether a text without digits is no quantity: the API server reads it as zero, but not before these suffixes."""
    scientific = _SCIENTIFIC.fullmatch(suffix)
    return suffix in {"Pi", "Ei"} or (scientific is not None and int(scientific[1]) < DECIMAL_EXPONENTS["n"])


def _decimal_exponent(text: str, suffix: str, *, zero: bool) -> int:
    """Return the power of ten that a suffix stands for; zero may have any exponent."""
    exponent = DECIMAL_EXPONENTS.get(suffix)
    if exponent is None:
        scientific = _SCIENTIFIC.fullmatch(suffix)
        if scientific is None:
            raise QuantityError(
                f"cannot read quantity {_shown(text)}: unknown suffix {_shown(suffix)}, "
                "expected n, u, m, k, M, G, T, P, E, Ki, Mi, Gi, Ti, Pi, Ei or an exponent such as e3",
            )
        exponent = int(scientific[1])
        if exponent > _MAX_EXPONENT and not zero:
            raise QuantityError(f"cannot read quantity {_shown(text)}: the exponent is above {_MAX_EXPONENT}")
    return exponent


def _scaled(digits: int, power: int) -> int:
    """Multiply by a power of ten, rounding up what is left below one."""
    if power >= 0:
        factor: int = 10**power if digits else 0
        return digits * factor
    if -power > MAX_LENGTH + _MAX_EXPONENT:
        return 1 if digits else 0
    divisor: int = 10 ** abs(power)
    return (digits + divisor - 1) // divisor


def _shown(text: str) -> str:
    return repr(text) if len(text) <= _SHOWN_LENGTH else f"{text[:_SHOWN_LENGTH]!r}..."


def whole_number(number: int) -> Quantity:
    return Quantity(number * NANO, number, 0, decimal=False)


def as_integer(quantity: Quantity) -> int | None:
    """Return the amount as a 64-bit integer; None if its stored form is no integer, as that of `1.0` and `1000m`."""
    if quantity.decimal or quantity.scale < 0:
        return None
    if quantity.scale == 0 or quantity.value == 0:
        return quantity.value
    number: int = quantity.nano // NANO
    return number if MIN_INT <= number <= MAX_INT else None


def as_float(quantity: Quantity) -> float:
    """Return the stored number times a power of ten, both rounded before they are multiplied, as upstream does."""
    try:
        base = float(quantity.value)
    except OverflowError:
        base = inf if quantity.value > 0 else -inf
    return base * _power_of_ten(quantity.scale) if quantity.scale else base


def _power_of_ten(power: int) -> float:
    """Compute a power of ten as Go does, from two factors of a table."""
    if power > _MOST_POWER:
        return inf
    if power < _LEAST_POWER:
        return 0.0
    large, small = divmod(abs(power), 32)
    if power >= 0:
        return float(f"1e{32 * large}") * float(f"1e{small}")
    return float(f"1e-{32 * large}") / float(f"1e{small}")


def added(left: Quantity, right: Quantity) -> QuantitySum:
    """Return the sum, in the smaller scale of both."""
    if not (left.decimal or right.decimal):
        short_sum = _short_sum(left, right.value, right.scale)
        if short_sum is not None:
            return short_sum
    return _decimal_sum(left, right, 1)


def subtracted(left: Quantity, right: Quantity) -> QuantitySum:
    """Return the difference; the least 64-bit integer has no opposite, and is added where upstream subtracts it."""
    if not (left.decimal or right.decimal):
        opposite = right.value if right.value == MIN_INT else -right.value
        short_sum = _short_sum(left, opposite, right.scale)
        if short_sum is not None:
            return short_sum
    return _decimal_sum(left, right, -1)


def _short_sum(left: Quantity, value: int, scale: int) -> QuantitySum | None:
    """Return the sum of two short numbers, None if it is too large to be short."""
    if value == 0:
        return QuantitySum(left.nano, left.value, left.scale, decimal=False)
    if left.value == 0:
        return _short(value, scale)
    least = min(left.scale, scale)
    first, second = left.value * 10 ** (left.scale - least), value * 10 ** (scale - least)
    total = first + second
    fits = all(MIN_INT <= part <= MAX_INT for part in (first, second, total))
    return _short(total, least) if fits else None


def _short(value: int, scale: int) -> QuantitySum:
    return QuantitySum(value * 10 ** (scale - _NANO_SCALE), value, scale, decimal=False)


def _decimal_sum(left: Quantity, right: Quantity, sign: int) -> QuantitySum:
    least = min(left.scale, right.scale)
    first, second = (amount.value and amount.value * 10 ** (amount.scale - least) for amount in (left, right))
    return QuantitySum(left.nano + sign * right.nano, first + sign * second, least, decimal=True)


def quantity(text: str) -> Quantity:
    try:
        return read_quantity(text)
    except QuantityError as error:
        raise CelRuntimeError(str(error)) from None
