import logging
import sys
from collections.abc import MutableMapping
from enum import StrEnum
from typing import Any, Final, TextIO

import structlog
from structlog.typing import Processor

from dra_extender.model.api_json import printable
from dra_extender.telemetry.log_limit import LogLimit

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
