"""A pytest plugin that refuses tests which wait for the clock.

A wait counts if it lasts longer than a poll and ends because the time is over, not because something happened: `time.sleep`, a
timer of the event loop, the timeout of a condition.  The waits of one test add up to at most `LIMIT_SECONDS`, unless its mark
`real_time(reason=...)` says why the test needs more.  The event loop of a test with the mark `virtual_time` has a virtual clock.
"""

import asyncio
import selectors
import threading
import time
from collections.abc import Callable, Generator, Mapping
from typing import Any, Final

import pytest
from dra_extender.simulator.virtual_time import VirtualClockLoop

POLL_SECONDS: Final = 0.05
"""As `subprocess` polls a process."""
LIMIT_SECONDS: Final = 1.0
"""Servers of the tests end with a tick of 0.1 s; a test may start and stop a few."""
EXEMPT: Final = frozenset({"chart", "e2e", "nightly", "real_time", "verify"})
"""Marks of tests that wait for real programs, or that say why they wait."""


class Waits:
    """Adds up the waits of the process that the clock ended; `seconds` is set to 0 before each test."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def add(self, seconds: float | None) -> None:
        """Count a wait that ended because `seconds` were over."""
        if seconds is not None and seconds > POLL_SECONDS:
            self.seconds += seconds

    def sleep(self, original: Callable[[float], None]) -> Callable[[float], None]:
        """Return `time.sleep` that counts."""

        def counting(seconds: float, /) -> None:
            self.add(seconds)
            original(seconds)

        return counting

    def unless_true(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Return a method with a timeout that counts the timeout if the method returns nothing true."""

        def counting(this: object, timeout: float | None = None) -> Any:
            result = original(this, timeout)
            if not result:
                self.add(timeout)
            return result

        return counting


_WAITS: Final = Waits()


def pytest_configure(config: pytest.Config) -> None:
    """Replace what waits, in this process alone."""
    patch = pytest.MonkeyPatch()
    patch.setattr(time, "sleep", _WAITS.sleep(time.sleep))
    patch.setattr(threading.Condition, "wait", _WAITS.unless_true(threading.Condition.wait))
    selector = selectors.DefaultSelector
    patch.setattr(selector, "select", _WAITS.unless_true(selector.select))
    config.add_cleanup(patch.undo)


@pytest.hookimpl(optionalhook=True)
def pytest_asyncio_loop_factories(item: pytest.Item) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    if item.get_closest_marker("virtual_time") is not None:
        return {"virtual": VirtualClockLoop}
    return {"real": asyncio.new_event_loop}


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, object, object]:
    """Fail a test that waited too long; waits of fixtures, which tests share, do not count."""
    _WAITS.seconds = 0.0
    result = yield
    if _WAITS.seconds > LIMIT_SECONDS and not any(mark.name in EXEMPT for mark in pyfuncitem.iter_markers()):
        pytest.fail(
            f"the test waited {_WAITS.seconds:.2f} s for the clock, more than {LIMIT_SECONDS} s: move an injected clock, await a "
            "condition, or mark it real_time(reason=...)",
            pytrace=False,
        )
    return result
