"""Kubernetes quantities as exact integers.

Nothing in the Quantity grammar is finer than one nano unit, so an amount is an `int` counting nano units: sums,
differences and comparisons are exact and as cheap as integers are. Binary and decimal spellings of one amount are the
same number; the spelling is not kept.
"""

import re
from functools import lru_cache
from typing import Final

NANO: Final = 10**9
"""Nano units in one unit."""

MAX_LENGTH: Final = 1000
"""Characters of the longest text that is read."""
_MAX_EXPONENT: Final = 400
_BINARY_CAP: Final = (2**63 - 1) * NANO
_SHOWN_LENGTH: Final = 60
_KEPT_LENGTH: Final = 32
"""Characters of a text up to which its amount is cached."""

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


def parse_quantity(text: str) -> int:
    """Read a Kubernetes quantity.

    Accepts the whole grammar of the API ("40Gi", "500m", "1.5", "2e3", ".5k", "-1"). What is finer than a nano unit is
    rounded away from zero, and a binary amount is capped at 2**63-1 units, both as the API server does.

    Args:
        text: The quantity as the API spells it.

    Returns:
        The amount in nano units.

    Raises:
        QuantityError: The text is not a quantity, or its size is out of all proportion (exponent above 400, more than
            1000 characters).
    """
    return _cached(text) if len(text) <= _KEPT_LENGTH else _parsed(text)


@lru_cache(maxsize=16384)
def _cached(text: str) -> int:
    return _parsed(text)


def _parsed(text: str) -> int:
    found = _GRAMMAR.fullmatch(text) if text and len(text) <= MAX_LENGTH else None
    if found is None:
        raise QuantityError(
            f"cannot read quantity {_shown(text)}: "
            "expected an optional sign, digits, and a suffix such as k, M, Gi, m or e3",
        )
    sign, whole, fraction, suffix = found.groups(default="")
    if not (whole or fraction) and _needs_digits(suffix):
        raise QuantityError(f"cannot read quantity {_shown(text)}: expected digits before {suffix!r}")
    digits = int(f"0{whole}{fraction}")
    nano = _magnitude(text, digits, len(fraction), suffix)
    return -nano if sign == "-" else nano


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
    units, rest = divmod(nano, NANO)
    if rest or units < _LEAST_MEMORY or units % _BINARY_STEP:
        return format_quantity(nano)
    suffix, exponent = next(each for each in _BINARY_BY_SIZE if units % (1 << each[1]) == 0)
    return f"{units >> exponent}{suffix}"


def _needs_digits(suffix: str) -> bool:
    """Whether a text without digits is no quantity: the API server reads it as zero, but not before these suffixes."""
    scientific = _SCIENTIFIC.fullmatch(suffix)
    return suffix in {"Pi", "Ei"} or (scientific is not None and int(scientific[1]) < DECIMAL_EXPONENTS["n"])


def _magnitude(text: str, digits: int, fraction_length: int, suffix: str) -> int:
    """Scale the digits by the suffix; the result is in nano units and never negative."""
    if (exponent := BINARY_EXPONENTS.get(suffix)) is not None:
        return min(_scaled(digits << exponent, 9 - fraction_length), _BINARY_CAP)
    exponent = DECIMAL_EXPONENTS.get(suffix)
    if exponent is None:
        scientific = _SCIENTIFIC.fullmatch(suffix)
        if scientific is None:
            raise QuantityError(
                f"cannot read quantity {_shown(text)}: unknown suffix {_shown(suffix)}, "
                "expected n, u, m, k, M, G, T, P, E, Ki, Mi, Gi, Ti, Pi, Ei or an exponent such as e3",
            )
        exponent = int(scientific[1])
        if exponent > _MAX_EXPONENT and digits:
            raise QuantityError(f"cannot read quantity {_shown(text)}: the exponent is above {_MAX_EXPONENT}")
    return _scaled(digits, 9 + exponent - fraction_length)


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
