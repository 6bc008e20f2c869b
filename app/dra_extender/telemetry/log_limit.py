"""How many lines of one kind the log takes: whoever can cause a line at will must not fill the disk."""

import logging
import time
from collections.abc import Callable
from typing import Any, Final

BURST: Final = 100
"""Lines of one kind that may come at once."""
PER_SECOND: Final = 5.0
"""Lines of one kind that may come for long."""
TELL_SECONDS: Final = 10.0
"""How often it is told at most how many lines of a kind were left out."""
MOST_KINDS: Final = 1024
"""Kinds that are told apart; all further ones count as one."""

Kind = tuple[str, int, str]
_FURTHER: Final[Kind] = ("", 0, "")


class _Bucket:
    __slots__ = ("left_out", "since", "tokens", "told")

    def __init__(self, now: float) -> None:
        self.tokens = float(BURST)
        self.since = now
        self.told = now - TELL_SECONDS
        self.left_out = 0


class LogLimit(logging.Filter):
    """Lets pass, of each kind of line, BURST lines at once and PER_SECOND for long.

    The kind of a line is its logger, its level and its sentence, without what it is about.  A line that passes after others were
    left out has their number as `left_out`, every TELL_SECONDS at most.
    """

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        """`monotonic`: seconds."""
        super().__init__()
        self._monotonic = monotonic
        self._buckets: dict[Kind, _Bucket] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether this line is written; called under the lock of its handler."""
        now = self._monotonic()
        bucket = self._bucket(_kind(record), now)
        bucket.tokens = min(float(BURST), bucket.tokens + (now - bucket.since) * PER_SECOND)
        bucket.since = now
        if bucket.tokens < 1:
            bucket.left_out += 1
            return False
        bucket.tokens -= 1
        if bucket.left_out and now - bucket.told >= TELL_SECONDS:
            _tell(record, bucket.left_out)
            bucket.told, bucket.left_out = now, 0
        return True

    def _bucket(self, kind: Kind, now: float) -> _Bucket:
        found = self._buckets.get(kind)
        if found is None:
            kind = kind if len(self._buckets) < MOST_KINDS else _FURTHER
            found = self._buckets.setdefault(kind, _Bucket(now))
        return found


def _kind(record: logging.LogRecord) -> Kind:
    said: Any = record.msg
    sentence = said.get("event", "") if isinstance(said, dict) else said
    return (record.name, record.levelno, str(sentence))


def _tell(record: logging.LogRecord, count: int) -> None:
    if isinstance(record.msg, dict):
        record.msg = {**record.msg, "left_out": count}
    else:
        record.msg, record.args = f"{record.getMessage()} (left_out={count})", None
