import io
import json
import logging
from collections.abc import Iterator

import pytest
import structlog
from dra_extender.telemetry.logging import LogFormat, LogLevel, configure_logging

from tests.support.restored_logging import restored_logging


@pytest.fixture(autouse=True)
def _restore() -> Iterator[None]:
    with restored_logging():
        yield


def lines(log_format: LogFormat, level: LogLevel = LogLevel.INFO) -> io.StringIO:
    stream = io.StringIO()
    configure_logging(log_format, level, stream)
    return stream


def test_json_lines_have_the_keys_of_kubernetes_components() -> None:
    stream = lines(LogFormat.JSON)
    structlog.get_logger("dra_extender.x").info("bound", pod="ns/p", node="n1", claim="ns/c")
    told = json.loads(stream.getvalue())
    assert list(told)[:4] == ["ts", "level", "logger", "msg"]
    del told["ts"]
    assert told == {
        "level": "info",
        "logger": "dra_extender.x",
        "msg": "bound",
        "pod": "ns/p",
        "node": "n1",
        "claim": "ns/c",
    }


def test_lines_of_libraries_have_the_same_form() -> None:
    stream = lines(LogFormat.JSON)
    logging.getLogger("uvicorn.error").warning("Invalid %s", "request")
    told = json.loads(stream.getvalue())
    assert (told["level"], told["logger"], told["msg"]) == ("warning", "uvicorn.error", "Invalid request")


def test_a_traceback_is_one_line_of_json() -> None:
    stream = lines(LogFormat.JSON)
    try:
        int("x")
    except ValueError:
        structlog.get_logger("dra_extender.x").exception("internal error", id="7")
    (line,) = stream.getvalue().splitlines()
    told = json.loads(line)
    assert told["id"] == "7"
    assert told["err"].endswith("ValueError: invalid literal for int() with base 10: 'x'")


@pytest.mark.parametrize("log_format", list(LogFormat))
def test_lines_below_the_level_are_left_out(log_format: LogFormat) -> None:
    stream = lines(log_format, LogLevel.WARNING)
    structlog.get_logger("dra_extender.x").info("quiet")
    logging.getLogger("some.library").info("quiet")
    structlog.get_logger("dra_extender.x").warning("loud")
    assert "quiet" not in stream.getvalue()
    assert "loud" in stream.getvalue()


def test_text_tracebacks_show_no_variables() -> None:
    """Variables may hold tokens."""
    stream = lines(LogFormat.TEXT)
    secret = "se-cret"  # noqa: S105 - the point of the test
    try:
        int(secret[:3] + "x")
    except ValueError:
        structlog.get_logger("dra_extender.x").exception("internal error", pod="ns/p")
    assert "pod=ns/p" in stream.getvalue()
    assert "ValueError: invalid literal" in stream.getvalue()
    assert secret not in stream.getvalue()


@pytest.mark.parametrize("log_format", list(LogFormat))
@pytest.mark.parametrize(
    "character",
    ["\x1b", "\x7f", "\x85", "\x9b", "\u2028", "\u202e", "\u2066", "\ud800"],
    ids=["escape", "delete", "c1", "csi", "line", "override", "isolate", "half"],
)
def test_lines_escape_what_a_terminal_or_a_reader_of_lines_would_obey(log_format: LogFormat, character: str) -> None:
    stream = lines(log_format)
    structlog.get_logger("dra_extender.x").info(f"no{character}de", pod=f"ns/{character}", names=[character])
    logging.getLogger("some.library").warning("no%s", character)
    try:
        int(character)
    except ValueError:
        structlog.get_logger("dra_extender.x").exception("failed")
    assert all(line.isprintable() for line in stream.getvalue().split("\n"))
    if log_format is LogFormat.JSON:
        first = json.loads(stream.getvalue().split("\n")[0])
        assert (first["msg"], first["pod"]) == (f"no{character}de", f"ns/{character}")


def test_value_begins_no_line_of_text() -> None:
    stream = lines(LogFormat.TEXT)
    structlog.get_logger("dra_extender.x").info("bound", pod="ns/p\n2026-01-01 [info] forged")
    assert stream.getvalue().count("\n") == 1
