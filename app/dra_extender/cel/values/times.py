"""Durations and timestamps: what their texts mean, and how they are written."""

import re
from collections.abc import Callable
from datetime import date
from decimal import Decimal
from typing import Final

import msgspec

from dra_extender.cel.errors import CelRuntimeError
from dra_extender.cel.values.integers import MAX_INT, MIN_INT

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
    """Return the nanoseconds of a duration, within 64 bits.  `spend` gets the cost of each number before the number is read."""
    sign, terms = (text[0], text[1:]) if text[:1] in {"-", "+"} else ("", text)
    if terms == "0":
        return 0
    total = position = 0
    while position < len(terms):
        if spend is not None:
            spend(_TERM_WORK)
        match = _TERM.match(terms, position)
        nanos = None if match is None else _term(match)
        if match is None or nanos is None or total + nanos > _LONGEST:
            raise _no_duration(text)
        total += nanos
        position = match.end()
    if not terms or (sign != "-" and total >= _LONGEST):
        raise _no_duration(text)
    return -total if sign == "-" else total


def _no_duration(text: str) -> ValueError:
    return ValueError(f"expected a duration such as 5s or 11m0s, got {text!r}")


def _term(match: re.Match[str]) -> int | None:
    """Return the nanoseconds of a number with a unit; fractions are computed in doubles, as Go does."""
    integral, fraction, unit = match.groups()
    size = _UNITS.get(unit)
    integral = (
        integral.lstrip("0") if integral and (size is not None) and len(integral) > _FRACTION_DIGITS else integral
    )
    if size is None or not (match[1] or fraction) or len(integral) > _FRACTION_DIGITS + 1:
        return None
    nanos = int(integral or "0") * size
    if fraction:
        digits = fraction[:_FRACTION_DIGITS]
        nanos += int(float(int(digits)) * (float(size) / 10.0 ** len(digits)))
    return nanos


_DAY_SECONDS: Final = 86_400
_FIRST: Final = -62_135_596_800
_LAST: Final = 253_402_300_799
_MOMENT: Final = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})T([0-9]{1,2}):([0-9]{2}):([0-9]{2})(?:[.,]([0-9]++))?+(?:Z|([-+])([0-9]{2}):([0-9]{2}))",
)
_DATE: Final = re.compile(r"([0-9]{4})-([0-9]{2})-([0-9]{2})")
_CYCLE_YEARS: Final = 400
_CYCLE_DAYS: Final = 146_097
"""The Gregorian calendar repeats after 400 years; Python's has the years 1 to 9999 only."""
_EPOCH_DAY: Final = date(1970, 1, 1).toordinal()


class Duration(msgspec.Struct, frozen=True, gc=False, order=True):
    """A span of time in nanoseconds, within 64 bits."""

    nanos: int


class Timestamp(msgspec.Struct, frozen=True, gc=False, eq=False):
    """A moment in nanoseconds since 1970; `offset` is the zone it was written in, in seconds, and shows in its text only."""

    nanos: int
    offset: int = 0

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Timestamp) and self.nanos == other.nanos

    def __lt__(self, other: "Timestamp") -> bool:
        return self.nanos < other.nanos

    def __le__(self, other: "Timestamp") -> bool:
        return self.nanos <= other.nanos

    def __gt__(self, other: "Timestamp") -> bool:
        return self.nanos > other.nanos

    def __ge__(self, other: "Timestamp") -> bool:
        return self.nanos >= other.nanos

    def __hash__(self) -> int:
        return hash(self.nanos)


class Civil(msgspec.Struct, frozen=True, gc=False):
    """A moment in one zone: `month` and `day` from 1, `year_day` from 0, `week_day` from 0 for Sunday."""

    year: int
    month: int
    day: int
    year_day: int
    week_day: int
    hour: int
    minute: int
    second: int
    nano: int


def duration_of(nanos: int) -> Duration:
    """Return a duration, if it fits into 64 bits."""
    if MIN_INT <= nanos <= MAX_INT:
        return Duration(nanos)
    raise CelRuntimeError("duration overflow")


def timestamp_of(nanos: int, offset: int = 0) -> Timestamp:
    """Return a timestamp, if it lies in the years 1 to 9999."""
    if _FIRST <= nanos // SECOND <= _LAST:
        return Timestamp(nanos, offset)
    raise CelRuntimeError("timestamp overflow")


def parse_duration(text: str, spend: Callable[[int], None] | None = None) -> Duration:
    """Read a duration such as "1h30m", "-1.5s" or "300ms"; `spend` is called with the work of each number before it is read."""
    try:
        return Duration(parse_go_duration(text, spend))
    except ValueError as problem:
        raise CelRuntimeError("type conversion error from 'string' to 'google.protobuf.Duration'") from problem


def seconds_text(nanos: int) -> str:
    """Return the seconds as the shortest decimal of their double, with the unit: "3601.5s"."""
    full_seconds, nano_rest = divmod(abs(nanos), SECOND)
    seconds = full_seconds + nano_rest / 1e9
    text = f"{Decimal(repr(seconds)):f}"
    text = text.rstrip("0").rstrip(".") if "." in text else text
    return f"{'-' if nanos < 0 else ''}{text}s"


def parse_timestamp(text: str) -> Timestamp:
    """Read a timestamp in the form of RFC 3339, with the liberties that upstream's parser takes, but not the year 0."""
    match = _MOMENT.fullmatch(text)
    seconds = None if match is None else _seconds(*map(int, match.groups()[:6]))
    offset = None if match is None else _offset(*match.groups()[7:])
    if match is None or seconds is None or offset is None:
        raise CelRuntimeError("type conversion error from 'string' to 'google.protobuf.Timestamp'")
    nano = int(f"{match[7] or '':0<9.9}")
    return timestamp_of((seconds - offset) * SECOND + nano, offset)


def is_date(text: str) -> bool:
    """Return whether a text is a date such as "2025-02-28"."""
    match = _DATE.fullmatch(text)
    return match is not None and _seconds(*map(int, match.groups())) is not None


def _seconds(year: int, month: int, day: int, hour: int = 0, minute: int = 0, second: int = 0) -> int | None:
    """Return seconds since 1970, or None if there is no such date or time of day."""
    if hour > 23 or minute > 59 or second > 59:  # noqa: PLR2004 - a clock
        return None
    cycles, year_of_cycle = divmod(year, _CYCLE_YEARS)
    try:
        days = date(_CYCLE_YEARS + year_of_cycle, month, day).toordinal() + (cycles - 1) * _CYCLE_DAYS - _EPOCH_DAY
    except ValueError:
        return None
    return ((days * 24 + hour) * 60 + minute) * 60 + second


def _offset(sign: str | None, hours: str | None, minutes: str | None) -> int | None:
    if sign is None:
        return 0
    hour, minute = int(hours or 0), int(minutes or 0)
    if hour > 24 or minute > 60:  # noqa: PLR2004 - upstream's parser admits exactly these
        return None
    return (-1 if sign == "-" else 1) * (hour * 60 + minute) * 60


def civil(moment: Timestamp, offset: int) -> Civil:
    """Return the calendar date and time of day of a moment, at an offset from UTC in seconds."""
    full_seconds, nano = divmod(moment.nanos, SECOND)
    days, second = divmod(full_seconds + offset, _DAY_SECONDS)
    cycles, day_of_cycle = divmod(days + _EPOCH_DAY - 1, _CYCLE_DAYS)
    local_date = date.fromordinal(day_of_cycle + 1)
    return Civil(
        year=local_date.year + cycles * _CYCLE_YEARS,
        month=local_date.month,
        day=local_date.day,
        year_day=local_date.timetuple().tm_yday - 1,
        week_day=(days + 4) % 7,
        hour=second // 3600,
        minute=second // 60 % 60,
        second=second % 60,
        nano=nano,
    )


def timestamp_text(moment: Timestamp) -> str:
    """Return the moment in the form of RFC 3339, in the zone it was written in."""
    local_time = civil(moment, moment.offset)
    fraction = f".{local_time.nano:09d}".rstrip("0") if local_time.nano else ""
    minutes = abs(moment.offset) // 60
    zone = f"{'-' if moment.offset < 0 else '+'}{minutes // 60:02d}:{minutes % 60:02d}" if moment.offset else "Z"
    date = f"{local_time.year:04d}-{local_time.month:02d}-{local_time.day:02d}"
    return f"{date}T{local_time.hour:02d}:{local_time.minute:02d}:{local_time.second:02d}{fraction}{zone}"
