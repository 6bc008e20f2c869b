"""A pytest plugin that shifts the wall clock by 1,000 days and a fraction before any test module is imported."""

import datetime as dt
import time

SHIFT_SECONDS = 86_400_000.25

_time, _time_ns = time.time, time.time_ns


class _ShiftedDatetime(dt.datetime):
    @classmethod
    def now(cls, tz: dt.tzinfo | None = None) -> "_ShiftedDatetime":
        return cls.fromtimestamp(time.time(), tz)


def _shifted_time() -> float:
    return _time() + SHIFT_SECONDS


def _shifted_time_ns() -> int:
    return _time_ns() + int(SHIFT_SECONDS * 1e9)


time.time, time.time_ns = _shifted_time, _shifted_time_ns
dt.datetime = _ShiftedDatetime  # type: ignore[misc]
