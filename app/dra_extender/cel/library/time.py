"""Durations and timestamps, and the functions that read their parts."""

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from dra_extender.cel.cost import EvaluationFrame
from dra_extender.cel.errors import CelRuntimeError
from dra_extender.cel.native.call import NativeFunction
from dra_extender.cel.types.declarations import Function, Overload, function, method, overload
from dra_extender.cel.types.types import DURATION, INT, STRING, TIMESTAMP
from dra_extender.cel.values.times import (
    HOUR,
    MINUTE,
    SECOND,
    Civil,
    Duration,
    Timestamp,
    civil,
    duration_of,
    parse_duration,
    parse_timestamp,
    seconds_text,
    timestamp_of,
    timestamp_text,
)

_NUMBER: Final = re.compile(r"[+-]?[0-9]{1,18}")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_CYCLE: Final = 146_097 * 86_400
"""Seconds in 400 years, after which the calendar repeats; times near the limits of datetime are shifted by this."""
_EARLY: Final = -62_100_000_000
_LATE: Final = 253_370_000_000
_CALENDAR_WORK: Final = 350
_PARSING_WORK: Final = 100
_ZONE_WORK: Final = 2_600
"""The work of a lookup in a named zone: 52 us, cached or not."""
_NO_ZONE_WORK: Final = 1_800
"""The additional work of looking for a zone that the system does not have."""
_LONGEST_ZONE: Final = 100
_UTC_NAMES: Final = frozenset({"", "UTC", "Local"})


def _offset(frame: EvaluationFrame, moment: Timestamp, zone: str) -> int:
    """Return seconds from UTC of a zone such as "Europe/Berlin" or "+01:00" at a moment."""
    if len(zone) > _LONGEST_ZONE:
        raise CelRuntimeError(f"unknown time zone {zone[:60]}")
    hours, colon, minutes = zone.partition(":")
    if colon:
        if not (_NUMBER.fullmatch(hours) and _NUMBER.fullmatch(minutes)):
            raise CelRuntimeError(f"invalid time zone offset {zone[:60]!r}")
        minute_count = int(minutes)
        offset = (int(hours) * 60 + (-minute_count if zone.startswith("-") else minute_count)) * 60
        # Upstream keeps the offset in 32 bits.
        return (offset + 2**31) % 2**32 - 2**31
    if zone in _UTC_NAMES:
        return 0
    frame.spend(_ZONE_WORK)
    seconds = moment.nanos // SECOND
    if not _EARLY < seconds < _LATE:
        seconds += _CYCLE if seconds < 0 else -_CYCLE
    try:
        utc_offset = (_EPOCH + timedelta(seconds=seconds)).astimezone(_zone(zone)).utcoffset()
    except (ZoneInfoNotFoundError, ValueError, OSError):
        frame.spend(_NO_ZONE_WORK)
        raise CelRuntimeError(f"unknown time zone {zone[:60]}") from None
    return 0 if utc_offset is None else round(utc_offset.total_seconds())


_zone: Final = lru_cache(maxsize=64)(ZoneInfo)


def _of_moment(name: str, take: Callable[[Civil], int], *spans: Overload) -> Function:
    """Return a function that reads a part of a timestamp, in UTC or in a given zone."""

    def in_zone(frame: EvaluationFrame, moment: Timestamp, zone: str = "") -> int:
        frame.spend(2 * _CALENDAR_WORK if zone else _CALENDAR_WORK)
        return take(civil(moment, _offset(frame, moment, zone)))

    zoned = (method(kinds, INT, in_zone, metered=True) for kinds in ((TIMESTAMP,), (TIMESTAMP, STRING)))
    return function(name, *zoned, *spans)


def _whole_units(unit: int) -> Callable[[Duration], int]:
    """Return a function that reads whole units of a duration, in doubles as upstream does: the last nanosecond may round up."""

    def whole_units(span: Duration) -> int:
        quotient, remainder = divmod(abs(span.nanos), unit)
        return int(quotient + remainder / float(unit)) * (-1 if span.nanos < 0 else 1)

    return whole_units


def _milliseconds(span: Duration) -> int:
    return abs(span.nanos) // 1_000_000 * (-1 if span.nanos < 0 else 1)


_PARTS: Final = (
    _of_moment("getFullYear", lambda local_time: local_time.year),
    _of_moment("getMonth", lambda local_time: local_time.month - 1),
    _of_moment("getDayOfYear", lambda local_time: local_time.year_day),
    _of_moment("getDayOfMonth", lambda local_time: local_time.day - 1),
    _of_moment("getDate", lambda local_time: local_time.day),
    _of_moment("getDayOfWeek", lambda local_time: local_time.week_day),
    _of_moment("getHours", lambda local_time: local_time.hour, method((DURATION,), INT, _whole_units(HOUR))),
    _of_moment("getMinutes", lambda local_time: local_time.minute, method((DURATION,), INT, _whole_units(MINUTE))),
    _of_moment("getSeconds", lambda local_time: local_time.second, method((DURATION,), INT, _whole_units(SECOND))),
    _of_moment(
        "getMilliseconds", lambda local_time: local_time.nano // 1_000_000, method((DURATION,), INT, _milliseconds)
    ),
)


def _moved(moment: Timestamp, nanos: int) -> Timestamp:
    return timestamp_of(moment.nanos + nanos, moment.offset)


def _duration(frame: EvaluationFrame, text: str) -> Duration:
    frame.begin_call("duration", _PARSING_WORK + (len(text) >> 3))
    return parse_duration(text, frame.spend)


TIMESTAMP_OF_TEXT: Final = NativeFunction(
    "timestamp", parse_timestamp, lambda text: 2 * _PARSING_WORK + (len(text) >> 3)
)

ARITHMETIC: Final = {
    "_+_": (
        overload((DURATION, DURATION), DURATION, lambda left, right: duration_of(left.nanos + right.nanos)),
        overload((DURATION, TIMESTAMP), TIMESTAMP, lambda span, moment: _moved(moment, span.nanos)),
        overload((TIMESTAMP, DURATION), TIMESTAMP, lambda moment, span: _moved(moment, span.nanos)),
    ),
    "_-_": (
        overload((DURATION, DURATION), DURATION, lambda left, right: duration_of(left.nanos - right.nanos)),
        overload((TIMESTAMP, DURATION), TIMESTAMP, lambda moment, span: _moved(moment, duration_of(-span.nanos).nanos)),
        overload((TIMESTAMP, TIMESTAMP), DURATION, lambda left, right: duration_of(left.nanos - right.nanos)),
    ),
}
"""Overloads that the core library inserts among those of its operators, in upstream's order."""

UNDECLARED: Final = {("-_", 1): overload((DURATION,), DURATION, lambda span: duration_of(-span.nanos))}

FUNCTIONS: Final = (
    *_PARTS,
    function(
        "duration",
        overload((DURATION,), DURATION, lambda span: span),
        overload((STRING,), DURATION, _duration, metered=True),
    ),
    function(
        "timestamp",
        overload((TIMESTAMP,), TIMESTAMP, lambda moment: moment),
        overload((INT,), TIMESTAMP, lambda seconds: timestamp_of(seconds * SECOND)),
        overload((STRING,), TIMESTAMP, TIMESTAMP_OF_TEXT),
    ),
    function(
        "int",
        overload((DURATION,), INT, lambda span: span.nanos),
        overload((TIMESTAMP,), INT, lambda moment: moment.nanos // SECOND),
    ),
    function(
        "string",
        overload(
            (DURATION,),
            STRING,
            NativeFunction("duration", lambda span: seconds_text(span.nanos), lambda _: 20),
        ),
        overload((TIMESTAMP,), STRING, NativeFunction("timestamp", timestamp_text, lambda _: _CALENDAR_WORK)),
    ),
)
