"""Clocks that a test sets or steps."""

from collections.abc import Callable


class SettableTime:
    """The time as a function without arguments, which returns `now` (seconds)."""

    def __init__(self, now: float = 100.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


class SteppedClock:
    """Time passes by a step at each look at it, and by as much as is slept; `on_sleep` is called after each sleep."""

    def __init__(self, step: float = 0.0, on_sleep: Callable[[], None] = lambda: None) -> None:
        self.time = 0.0
        self.step = step
        self.slept: list[float] = []
        self.on_sleep = on_sleep

    def monotonic(self) -> float:
        self.time += self.step
        return self.time

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.time += seconds
        self.on_sleep()
