"""Clocks, and how long work in the background goes on without a pause."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Final

# Unlike CLOCK_MONOTONIC it goes on while the machine sleeps: other holders see the lease expire in that time.
_STEADY: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class SystemClock:
    """The clocks of this machine."""

    def now(self) -> float:
        """Return the wall clock, seconds since the epoch."""
        return time.time()

    def monotonic(self) -> float:
        """Return a clock that never goes back and does not stop while the machine sleeps, seconds."""
        return time.clock_gettime(_STEADY)


TURN_SECONDS: Final = 0.005
"""So long background work goes on without a pause."""
PAUSE_SECONDS: Final = 0.02
"""So long it pauses, so that it takes a fifth of the time at most while it works."""


class Turns:
    """Divides long work into turns of TURN_SECONDS with pauses between them, in which calls are served.

        turns = Turns()
        for step in steps:
            ...
            if turns.over:
                await turns.pause()

    `worked` is the work so far without the pauses, in seconds.
    """

    __slots__ = ("_began", "_monotonic", "_sleep", "_worked")

    def __init__(
        self,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._sleep = sleep
        self._monotonic = monotonic
        self._worked = 0.0
        self._began = monotonic()

    @property
    def over(self) -> bool:
        """Return whether this turn has taken its time."""
        return self._monotonic() - self._began >= TURN_SECONDS

    @property
    def worked(self) -> float:
        return self._worked + self._monotonic() - self._began

    async def pause(self) -> None:
        """End the turn; the next one begins after the pause."""
        self._worked = self.worked
        await self._sleep(PAUSE_SECONDS)
        self._began = self._monotonic()
