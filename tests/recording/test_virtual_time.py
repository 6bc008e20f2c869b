"""A loop of virtual time: nothing waits, timers are in order, and what comes from outside comes in its turn."""

import asyncio
from collections.abc import Callable

from dra_extender.recording.virtual_time import VirtualTimeLoop


class Scripted:
    """Calls each of these at its time, when nothing else is left to do before."""

    def __init__(self, *calls: tuple[float, Callable[[], None]]) -> None:
        self.loop = VirtualTimeLoop(self)
        self._calls = list(calls)

    def before_turn(self, *, idle: bool, timer: float | None) -> None:
        if not idle:
            return
        if self._calls and (timer is None or self._calls[0][0] < timer):
            at, call = self._calls.pop(0)
            self.loop.pass_to(at)
            self.loop.call_soon(call)
        elif timer is not None:
            self.loop.pass_to(timer)


def test_hours_pass_at_once_and_timers_are_in_order_with_what_comes_from_outside() -> None:
    seen: list[tuple[str, float]] = []
    scripted = Scripted((5.0, lambda: seen.append(("outside", scripted.loop.time()))))

    async def both() -> None:
        ended = scripted.loop.create_future()

        def late() -> None:
            seen.append(("late", scripted.loop.time()))
            ended.set_result(None)

        scripted.loop.call_later(7200.0, late)
        scripted.loop.call_later(1.0, lambda: seen.append(("early", scripted.loop.time())))
        await ended

    with asyncio.Runner(loop_factory=lambda: scripted.loop) as runner:
        runner.run(both())
    assert [name for name, _ in seen] == ["early", "outside", "late"]
    assert [round(at, 6) for _, at in seen] == [1.0, 5.0, 7200.0]


def test_time_stands_still_while_something_is_left_to_do() -> None:
    scripted = Scripted()

    async def busy() -> float:
        for _ in range(1000):
            await asyncio.sleep(0)
        return scripted.loop.time()

    with asyncio.Runner(loop_factory=lambda: scripted.loop) as runner:
        assert runner.run(busy()) == 0.0
