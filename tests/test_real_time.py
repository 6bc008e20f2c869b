"""What the plugin in `tests/support/real_time.py` refuses."""

import pytest

from tests.support.real_time import LIMIT_SECONDS, POLL_SECONDS, Waits


def test_a_sleep_counts_and_a_poll_does_not() -> None:
    waits = Waits()
    slept: list[float] = []
    sleep = waits.sleep(slept.append)
    for seconds in (0.0, POLL_SECONDS, 3.0, 4.0):
        sleep(seconds)
    assert (waits.seconds, slept) == (7.0, [0.0, POLL_SECONDS, 3.0, 4.0])


def test_a_timeout_counts_if_nothing_happened() -> None:
    waits = Waits()
    found: list[str] = []
    select = waits.unless_true(lambda _, timeout: found)
    select(None, 3.0)
    select(None, None)
    select(None)
    found.append("an event")
    select(None, 5.0)
    assert waits.seconds == 3.0


BODIES = {
    "sleep": "time.sleep({seconds})",
    "timer": "asyncio.run(asyncio.sleep({seconds}))",
    "condition": "threading.Event().wait({seconds})",
}


@pytest.mark.real_time(reason="a test inside it really waits")
@pytest.mark.parametrize("how", BODIES)
@pytest.mark.parametrize("mark", ["", "@pytest.mark.real_time(reason='a reason')"])
def test_a_test_that_waits_for_the_clock_fails_unless_it_is_marked(
    pytester: pytest.Pytester, how: str, mark: str
) -> None:
    pytester.makepyfile(
        "import asyncio, threading, time, pytest\n"
        f"{mark}\ndef test_waits():\n    {BODIES[how].format(seconds=LIMIT_SECONDS + 0.05)}\n"
        "def test_that_follows_starts_at_nothing():\n    time.sleep(0.1)\n"
    )
    done = pytester.runpytest_inprocess("-p", "no:asyncio", "-p", "tests.support.real_time", "-p", "no:cacheprovider")
    done.assert_outcomes(passed=2 if mark else 1, failed=0 if mark else 1)
