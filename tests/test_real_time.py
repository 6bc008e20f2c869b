"""What the plugin in `tests/support/real_time.py` refuses."""

import pytest

from tests.support import real_time

WAITS_OF_EACH_KIND = """
import asyncio, threading, time, pytest

WAITS = [time.sleep, lambda seconds: asyncio.run(asyncio.sleep(seconds)), lambda seconds: threading.Event().wait(seconds)]

@pytest.mark.parametrize("wait", WAITS)
def test_fails(wait):
    wait(0.25)

@pytest.mark.real_time(reason="a reason")
@pytest.mark.parametrize("wait", WAITS)
def test_is_marked(wait):
    wait(0.25)

def test_that_follows_starts_at_nothing():
    time.sleep(0.08)
"""


@pytest.mark.real_time(reason="tests inside it really wait")
def test_a_test_that_waits_for_the_clock_fails_unless_it_is_marked(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(real_time, "LIMIT_SECONDS", 0.2)
    pytester.makepyfile(WAITS_OF_EACH_KIND)
    done = pytester.runpytest_inprocess("-p", "no:asyncio", "-p", "tests.support.real_time", "-p", "no:cacheprovider")
    done.assert_outcomes(passed=4, failed=3)
