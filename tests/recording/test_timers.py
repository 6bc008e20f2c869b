"""Timers of use cases are recorded when they run, and run in a replay when they did, however late that was."""

import asyncio
from collections.abc import Callable

from dra_extender.recording.records import BACKGROUND, CURRENT_CALL, TimerFired
from dra_extender.recording.timers import TimerId, record_timers
from dra_extender.recording.virtual_time import VirtualTimeLoop


def test_timers_of_calls_and_background_work_are_noted_and_those_of_others_are_not() -> None:
    noted: list[TimerFired] = []

    async def sets_timers() -> None:
        loop = asyncio.get_running_loop()
        record_timers(loop, lambda make: noted.append(make(0.0)))
        ended = loop.create_future()
        loop.call_later(0.0, lambda: None)
        CURRENT_CALL.set(BACKGROUND)
        loop.call_later(0.0, lambda: None)
        CURRENT_CALL.set(7)
        loop.call_later(0.0, lambda: None)
        loop.call_at(loop.time() + 0.001, ended.set_result, None)
        await ended

    asyncio.run(sets_timers())
    assert [(each.call, each.number) for each in noted] == [(BACKGROUND, 1), (7, 1), (7, 2)]


class FiringAfter:
    """Fires a timer at a time of its own."""

    def __init__(self, at: float, timer: TimerId) -> None:
        self.loop = VirtualTimeLoop(self)
        self._at = at
        self._timer: TimerId | None = timer

    def before_turn(self, *, idle: bool, timer: float | None) -> None:
        if not idle:
            return
        if self._timer is not None and (timer is None or self._at < timer):
            self.loop.pass_to(self._at)
            self.loop.fire(self._timer)
            self._timer = None
        elif timer is not None:
            self.loop.pass_to(timer)


def ran_at(firing: FiringAfter, set_it: Callable[[asyncio.AbstractEventLoop, Callable[[], None]], object]) -> float:
    async def sets_a_timer() -> float:
        CURRENT_CALL.set(3)
        ended: asyncio.Future[float] = firing.loop.create_future()
        set_it(firing.loop, lambda: ended.set_result(firing.loop.time()))
        return await ended

    with asyncio.Runner(loop_factory=lambda: firing.loop) as runner:
        return runner.run(sets_a_timer())


def test_timer_runs_in_a_replay_when_it_ran_in_the_recording() -> None:
    firing = FiringAfter(1.25, TimerId(3, "", 1))
    assert ran_at(firing, lambda loop, run: loop.call_later(1.0, run)) == 1.25


def test_timer_that_the_recording_does_not_have_runs_all_the_same() -> None:
    firing = FiringAfter(1.25, TimerId(3, "", 9))
    assert ran_at(firing, lambda loop, run: loop.call_later(1.0, run)) == 3.0
