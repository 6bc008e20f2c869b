"""A clock for tasks that look at the time and sleep."""

from collections.abc import Callable


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
