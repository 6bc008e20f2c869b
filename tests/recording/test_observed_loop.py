"""What a loop does for the use cases is observed, in asyncio's loop and in uvloop's, and nothing else is."""

import asyncio
from collections.abc import Callable

import pytest
from dra_extender.recording.observed_loop import ObservedLoop, TimerId, TimerNumbers
from dra_extender.recording.records import BACKGROUND, CURRENT_CALL
from dra_extender.runtime.installation import new_event_loop

LOOPS = pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, new_event_loop])


class Observer:
    """Writes down what it is told."""

    def __init__(self) -> None:
        self.steps = 0
        self.timers: list[TimerId] = []

    def step_begins(self) -> None:
        self.steps += 1

    def timer_fires(self, timer: TimerId) -> None:
        self.timers.append(timer)

    def loop_time(self, seconds: float) -> float:
        assert seconds > 0
        return 7.0


def observed(new_loop: Callable[[], asyncio.AbstractEventLoop], work: Callable[[], object]) -> Observer:
    """Run `work`, a coroutine function, under observation."""
    observer = Observer()

    async def main() -> None:
        loop = ObservedLoop(asyncio.get_running_loop(), observer)
        await work()  # type: ignore[misc]
        loop.release()
        before = observer.steps
        CURRENT_CALL.set(9)
        await asyncio.sleep(0)
        assert (observer.steps, asyncio.get_running_loop().time() != 7.0) == (before, True)

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(main())
    return observer


@LOOPS
def test_steps_of_use_cases_are_counted_and_those_of_others_are_not(
    new_loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    async def work() -> None:
        await asyncio.sleep(0)
        CURRENT_CALL.set(7)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        asyncio.get_running_loop().call_soon(lambda: None).cancel()
        CURRENT_CALL.set(-1)
        await asyncio.sleep(0)

    assert observed(new_loop, work).steps == 2


@LOOPS
def test_timers_of_calls_and_background_work_are_noted_and_those_of_others_are_not(
    new_loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    async def work() -> None:
        loop = asyncio.get_running_loop()
        ended = loop.create_future()
        loop.call_later(0.0, lambda: None)
        CURRENT_CALL.set(BACKGROUND)
        loop.call_later(0.0, lambda: None)
        CURRENT_CALL.set(7)
        loop.call_later(0.0, lambda: None)
        loop.call_at(0.0, ended.set_result, None)
        await ended

    assert sorted(observed(new_loop, work).timers) == [(BACKGROUND, "", 1), (7, "", 1), (7, "", 2)]


@LOOPS
def test_time_that_a_use_case_sees_is_that_of_the_observer(new_loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
    seen: list[bool] = []

    async def work() -> None:
        loop = asyncio.get_running_loop()
        seen.append(loop.time() == 7.0)
        CURRENT_CALL.set(7)
        seen.append(loop.time() == 7.0)
        CURRENT_CALL.set(-1)

    observed(new_loop, work)
    assert seen == [False, True]


async def test_timers_are_numbered_by_call_and_named_task() -> None:
    numbers = TimerNumbers()
    found: list[TimerId] = []

    async def sets(call: int) -> None:
        CURRENT_CALL.set(call)
        found.extend((numbers.next(), numbers.next()))

    await asyncio.create_task(sets(7))
    await asyncio.create_task(sets(BACKGROUND), name="wake-up")
    await asyncio.create_task(sets(7))
    assert found == [
        *(TimerId(7, "", 1), TimerId(7, "", 2)),
        *(TimerId(BACKGROUND, "wake-up", 1), TimerId(BACKGROUND, "wake-up", 2)),
        *(TimerId(7, "", 3), TimerId(7, "", 4)),
    ]


def test_timer_that_is_set_outside_a_loop_has_a_number_too() -> None:
    assert TimerNumbers().next().number == 1
