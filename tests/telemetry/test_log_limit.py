"""Whoever can cause log lines at will does not fill the disk, and hides nobody else's."""

import io
import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest
import structlog
from dra_extender.telemetry.logging import (
    BURST,
    MOST_KINDS,
    PER_SECOND,
    REPORT_SECONDS,
    LogFormat,
    LogLevel,
    LogLimit,
    configure_logging,
)

from tests.support.clocks import SettableTime
from tests.support.restored_logging import restored_logging


@pytest.fixture
def time() -> SettableTime:
    return SettableTime(0.0)


@pytest.fixture
def stream(monkeypatch: pytest.MonkeyPatch, time: SettableTime) -> Iterator[io.StringIO]:
    """What is written, by a limit with a clock of its own."""
    written = io.StringIO()
    monkeypatch.setattr("dra_extender.telemetry.logging.LogLimit", lambda: LogLimit(time))
    with restored_logging():
        configure_logging(LogFormat.JSON, LogLevel.INFO, written)
        yield written


def lines(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


@pytest.mark.parametrize("ours", [True, False])
def test_lines_of_one_kind_are_bounded_whatever_they_are_about(
    stream: io.StringIO, time: SettableTime, ours: bool
) -> None:
    seconds, per_second = 60, 100
    for number in range(seconds * per_second):
        time.now = number / per_second
        if ours:
            structlog.get_logger("dra_extender.x").warning("malformed request", problem=f"{number}")
        else:
            logging.getLogger("uvicorn.error").warning("Invalid HTTP request received: %s", number)
    assert len(lines(stream)) <= BURST + PER_SECOND * seconds + 1


def test_what_was_left_out_is_counted_in_a_later_line(stream: io.StringIO, time: SettableTime) -> None:
    log = structlog.get_logger("dra_extender.x")
    for number in range(BURST + 50):
        log.warning("malformed request", problem=str(number))
    assert len(lines(stream)) == BURST
    time.now += REPORT_SECONDS
    log.warning("malformed request", problem="last")
    assert (lines(stream)[-1]["problem"], lines(stream)[-1]["left_out"]) == ("last", 50)
    log.warning("malformed request", problem="after")
    assert "left_out" not in lines(stream)[-1]


def test_lines_of_libraries_tell_what_was_left_out_too(stream: io.StringIO, time: SettableTime) -> None:
    log = logging.getLogger("uvicorn.error")
    for _ in range(BURST + 7):
        log.warning("Invalid HTTP request received.")
    time.now += REPORT_SECONDS
    log.warning("Invalid HTTP request received.")
    assert lines(stream)[-1]["msg"] == "Invalid HTTP request received. (left_out=7)"


def test_a_flood_of_one_kind_hides_no_other(stream: io.StringIO) -> None:
    for _ in range(BURST * 10):
        structlog.get_logger("dra_extender.x").warning("malformed request", problem="x")
    structlog.get_logger("dra_extender.x").error("malformed request", problem="worse")
    structlog.get_logger("dra_extender.y").warning("malformed request", problem="elsewhere")
    structlog.get_logger("dra_extender.x").warning("another sentence")
    assert [line.get("problem") for line in lines(stream)[-3:]] == ["worse", "elsewhere", None]


def test_sentences_that_differ_each_time_are_bounded_too(stream: io.StringIO) -> None:
    """No line of ours has what it is about in its sentence, but a library's may."""
    for number in range(MOST_KINDS + BURST * 10):
        logging.getLogger("library").warning(f"problem {number}")  # noqa: G004 - as a library may
    assert len(lines(stream)) == MOST_KINDS + BURST
