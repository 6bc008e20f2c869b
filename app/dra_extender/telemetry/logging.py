"""Log lines: one format for the whole process, and a limit for the lines of each kind.

A caller that can cause a line at will must not fill the disk.
"""

import logging
import sys
import time
from collections.abc import Callable, MutableMapping
from enum import StrEnum
from typing import Any, Final, TextIO

import structlog
from structlog.typing import Processor

from dra_extender.model.api_json import printable
from dra_extender.runtime.token_bucket import TokenBucket

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


class _Lines:
    """The lines of one kind: tokens for further ones, and how many were left out since that was reported."""

    __slots__ = ("left_out", "reported", "tokens")

    def __init__(self, now: float) -> None:
        self.tokens = TokenBucket(PER_SECOND, BURST, now)
        self.reported = now - REPORT_SECONDS
        self.left_out = 0


class LogLimit(logging.Filter):
    """Lets BURST lines of each kind pass at once, and PER_SECOND in the long run.

    The kind of a line is its logger, its level and its event, without the values.  A line that passes after others were left out
    has their number as `left_out`, every REPORT_SECONDS at most.
    """

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._monotonic = monotonic
        self._lines: dict[Kind, _Lines] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether this line is written; called under the lock of its handler."""
        now = self._monotonic()
        lines = self._lines_of(_kind(record), now)
        if not lines.tokens.take(now):
            lines.left_out += 1
            return False
        if lines.left_out and now - lines.reported >= REPORT_SECONDS:
            _report(record, lines.left_out)
            lines.reported, lines.left_out = now, 0
        return True

    def _lines_of(self, kind: Kind, now: float) -> _Lines:
        lines = self._lines.get(kind)
        if lines is None:
            kind = kind if len(self._lines) < MOST_KINDS else _FURTHER
            lines = self._lines.setdefault(kind, _Lines(now))
        return lines


def _kind(record: logging.LogRecord) -> Kind:
    message: Any = record.msg
    event = message.get("event", "") if isinstance(message, dict) else message
    return (record.name, record.levelno, str(event))


def _report(record: logging.LogRecord, count: int) -> None:
    if isinstance(record.msg, dict):
        record.msg = {**record.msg, "left_out": count}
    else:
        record.msg, record.args = f"{record.getMessage()} (left_out={count})", None


# Libraries that log every connection at INFO.
_VERBOSE: Final = ("uvicorn.error", "uvicorn.access", "asyncio", "aiohttp.access")


class LogFormat(StrEnum):
    """JSON for machines, text for people."""

    JSON = "json"
    TEXT = "text"


class LogLevel(StrEnum):
    """Messages below this level are left out."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


def configure_logging(log_format: LogFormat, level: LogLevel, stream: TextIO | None = None) -> None:
    """Send every log line of the process, of the libraries too, to `stream` (standard error) in one format.

    JSON lines have the keys of Kubernetes components: `ts`, `level`, `logger`, `msg`, then the values: `pod` and `claim` as
    namespace/name, `node`, `err`.  LogLimit bounds the lines of each kind.
    """
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True, key="ts"),
    ]
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *shared,
            structlog.stdlib.PositionalArgumentsFormatter(),
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=False,
    )
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *_rendering(log_format)],
        )
    )
    handler.addFilter(LogLimit())
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(level.upper())
    for name in _VERBOSE:
        logging.getLogger(name).setLevel(max(logging.WARNING, root.level))


def _rendering(log_format: LogFormat) -> list[Processor]:
    if log_format is LogFormat.TEXT:
        return [
            _printable_values,
            structlog.dev.ConsoleRenderer(
                colors=False, timestamp_key="ts", pad_event_to=0, exception_formatter=structlog.dev.plain_traceback
            ),
            _printable_lines,
        ]
    return [
        structlog.processors.format_exc_info,
        _kubernetes_keys,
        structlog.processors.JSONRenderer(),
    ]


def _printable_values(_logger: Any, _method: str, line: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Escape line breaks as well: a value cannot begin a line of its own."""
    return {name: printable(value) if isinstance(value, str) else value for name, value in line.items()}


def _printable_lines(_logger: Any, _method: str, text: Any) -> str:
    """Escape what tracebacks quote in the text that ConsoleRenderer has made."""
    return "\n".join(map(printable, text.split("\n")))


def _kubernetes_keys(_logger: Any, _method: str, line: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    ordered: dict[str, Any] = {key: line.pop(key) for key in ("ts", "level", "logger") if key in line}
    ordered["msg"] = line.pop("event", "")
    if "exception" in line:
        line["err"] = line.pop("exception")
    return ordered | dict(line)
