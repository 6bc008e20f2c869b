"""A loop of virtual time: nothing waits, and steps and timers of the use cases run when the feed says so."""

import asyncio
from collections.abc import Callable

from dra_extender.recording.observed_loop import TimerId
from dra_extender.recording.records import CURRENT_CALL
from dra_extender.recording.replay_loop import ReplayLoop


class Scripted:
    """Has so many steps run before each of these calls; and then all."""

    def __init__(self, *calls: tuple[int, Callable[[], object]]) -> None:
        self.loop = ReplayLoop(self)
        self.steps = 0
        self.calls = list(calls)

    def turn(self) -> None:
        if self.calls and (self.calls[0][0] <= self.steps or not self.loop.has_steps):
            _, call = self.calls.pop(0)
            self.loop.call_soon(call)
        else:
            self.loop.run_step()

    def step_begins(self) -> None:
        self.steps += 1

    def loop_time(self) -> float:
        return 100.0


def test_what_comes_from_outside_comes_between_the_same_steps() -> None:
    seen: list[str] = []
    scripted = Scripted((2, lambda: seen.append("outside")))

    async def use_case() -> None:
        CURRENT_CALL.set(1)
        for number in range(4):
            seen.append(f"step {number}")
            await asyncio.sleep(0)

    scripted.loop.run_until_complete(use_case())
    scripted.loop.close()
    # The first one ran before any step: what ran it does not belong to the use cases.
    assert seen == ["step 0", "step 1", "step 2", "outside", "step 3"]


def test_step_that_was_cancelled_is_none() -> None:
    scripted = Scripted()
    seen: list[int] = []

    async def use_case() -> None:
        CURRENT_CALL.set(1)
        loop = asyncio.get_running_loop()
        handles = [loop.call_soon(seen.append, number) for number in range(3)]
        handles[1].cancel()
        await asyncio.sleep(0)

    scripted.loop.run_until_complete(use_case())
    scripted.loop.close()
    assert seen == [0, 2]
    assert scripted.steps == 3


def test_timer_of_a_use_case_runs_when_it_is_fired_and_not_by_the_clock() -> None:
    fired: list[bool] = []
    timer = TimerId(3, "", 1)
    scripted = Scripted()

    async def sets_a_timer() -> str:
        CURRENT_CALL.set(3)
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[str] = loop.create_future()
        loop.call_later(3600.0, ended.set_result, "fired")
        return await ended

    def passes_and_fires() -> None:
        scripted.loop.pass_to(1.25)
        fired.append(scripted.loop.fire(timer))
        fired.append(scripted.loop.fire(timer))

    scripted.calls.append((0, passes_and_fires))
    assert scripted.loop.run_until_complete(sets_a_timer()) == "fired"
    scripted.loop.close()
    assert (fired, scripted.loop.now) == ([True, False], 1.25)


def test_timers_that_nobody_fires_are_overdue_after_their_time() -> None:
    found: list[list[TimerId]] = []
    scripted = Scripted()

    async def sets_timers() -> None:
        CURRENT_CALL.set(3)
        loop = asyncio.get_running_loop()
        loop.call_later(2.0, found.clear)
        loop.call_at(loop.time() + 1.0, found.clear)
        loop.call_later(1.5, found.clear).cancel()
        for seconds in (1.0, 3.5, 4.0):
            scripted.loop.pass_to(seconds)
            found.append(scripted.loop.overdue(2.0))

    scripted.loop.run_until_complete(sets_timers())
    scripted.loop.close()
    first, second = TimerId(3, "", 2), TimerId(3, "", 1)
    assert found == [[], [first], [first, second]]


def test_use_cases_see_the_clock_of_the_feed_and_others_virtual_time() -> None:
    scripted = Scripted()

    async def reads() -> tuple[float, float]:
        loop = asyncio.get_running_loop()
        before = loop.time()
        CURRENT_CALL.set(3)
        return before, loop.time()

    assert scripted.loop.run_until_complete(reads()) == (0.0, 100.0)
    scripted.loop.close()
