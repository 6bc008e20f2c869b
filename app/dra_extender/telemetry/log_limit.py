"""Limits the log lines of one kind: a caller that can cause a line at will must not fill the disk."""

import logging
import time
from collections.abc import Callable
from typing import Any, Final

BURST: Final = 100
"""Lines of one kind that may come at once."""
PER_SECOND: Final = 5.0
"""Lines of one kind per second in the long run."""
REPORT_SECONDS: Final = 10.0
"""Least seconds between two reports of the number of lines of a kind that were left out."""
MOST_KINDS: Final = 1024
"""Kinds with a limit of their own; all further ones share one."""

Kind = tuple[str, int, str]
_FURTHER: Final[Kind] = ("", 0, "")


class _Bucket:
    __slots__ = ("left_out", "reported", "since", "tokens")

    def __init__(self, now: float) -> None:
        self.tokens = float(BURST)
        self.since = now
        self.reported = now - REPORT_SECONDS
        self.left_out = 0


class LogLimit(logging.Filter):
    """Lets BURST lines of each kind pass at once, and PER_SECOND in the long run.

    The kind of a line is its logger, its level and its event, without the values.  A line that passes after others were left out
    has their number as `left_out`, every REPORT_SECONDS at most.
    """

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        """`monotonic`: seconds."""
        super().__init__()
        self._monotonic = monotonic
        self._buckets: dict[Kind, _Bucket] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether this line is written; called under the lock of its handler."""
        now = self._monotonic()
        bucket = self._bucket(_kind(record), now)
        bucket.tokens = min(float(BURST), bucket.tokens + (now - bucket.since) * PER_SECOND)
        bucket.since = now
        if bucket.tokens < 1:
            bucket.left_out += 1
            return False
        bucket.tokens -= 1
        if bucket.left_out and now - bucket.reported >= REPORT_SECONDS:
            _report(record, bucket.left_out)
            bucket.reported, bucket.left_out = now, 0
        return True

    def _bucket(self, kind: Kind, now: float) -> _Bucket:
        bucket = self._buckets.get(kind)
        if bucket is None:
            kind = kind if len(self._buckets) < MOST_KINDS else _FURTHER
            bucket = self._buckets.setdefault(kind, _Bucket(now))
        return bucket


def _kind(record: logging.LogRecord) -> Kind:
    message: Any = record.msg
    event = message.get("event", "") if isinstance(message, dict) else message
    return (record.name, record.levelno, str(event))


def _report(record: logging.LogRecord, count: int) -> None:
    if isinstance(record.msg, dict):
        record.msg = {**record.msg, "left_out": count}
    else:
        record.msg, record.args = f"{record.getMessage()} (left_out={count})", None
