"""Durations as Go writes and reads them (`time.ParseDuration`): `5s`, `11m0s`, `1h30m`, `1.5s`, `300ms`."""

import re
from collections.abc import Callable
from typing import Final

SECOND: Final = 1_000_000_000
"""Nanoseconds in a second."""
MINUTE: Final = 60 * SECOND
HOUR: Final = 60 * MINUTE

_UNITS: Final = {
    "ns": 1,
    "us": 1000,
    "\u00b5s": 1000,
    "\u03bcs": 1000,
    "ms": 1_000_000,
    "s": SECOND,
    "m": MINUTE,
    "h": HOUR,
}
_TERM: Final = re.compile(r"([0-9]*+)(?:\.([0-9]*+))?+([^0-9.]++)")
_FRACTION_DIGITS: Final = 18
_TERM_WORK: Final = 65
_LONGEST: Final = 2**63


def parse_go_duration(text: str, spend: Callable[[int], None] | None = None) -> int:
    """The nanoseconds of a duration, within 64 bits.  `spend` gets the cost of each number before the number is read.

    Raises:
        ValueError: The text is no duration.
    """
    sign, rest = (text[0], text[1:]) if text[:1] in {"-", "+"} else ("", text)
    if rest == "0":
        return 0
    total = position = 0
    while position < len(rest):
        if spend is not None:
            spend(_TERM_WORK)
        found = _TERM.match(rest, position)
        nanos = None if found is None else _term(found)
        if found is None or nanos is None or total + nanos > _LONGEST:
            raise _no_duration(text)
        total += nanos
        position = found.end()
    if not rest or (sign != "-" and total >= _LONGEST):
        raise _no_duration(text)
    return -total if sign == "-" else total


def _no_duration(text: str) -> ValueError:
    return ValueError(f"expected a duration such as 5s or 11m0s, got {text!r}")


def _term(found: re.Match[str]) -> int | None:
    """The nanoseconds of a number with a unit; fractions are computed in doubles, as Go does."""
    whole, fraction, unit = found.groups()
    size = _UNITS.get(unit)
    whole = whole.lstrip("0") if whole and (size is not None) and len(whole) > _FRACTION_DIGITS else whole
    if size is None or not (found[1] or fraction) or len(whole) > _FRACTION_DIGITS + 1:
        return None
    nanos = int(whole or "0") * size
    if fraction:
        digits = fraction[:_FRACTION_DIGITS]
        nanos += int(float(int(digits)) * (float(size) / 10.0 ** len(digits)))
    return nanos
