"""Pauses between tries."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

SHORTEST = 0.2
LONGEST = 30.0


@dataclass(frozen=True, slots=True)
class SleepAndJitter:
    """Sleeping, and random numbers in [0, 1): injected by tests."""

    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    number: Callable[[], float] = random.random


class Backoff:
    """Seconds to wait before trying again: doubles with each failure in a row, between 0.2 and 30 s, with jitter.

    The jitter takes away up to half, so that many clients that failed together do not come back together.
    """

    def __init__(self, chance: Callable[[], float] = random.random) -> None:
        self._chance = chance
        self.failures = 0

    def next(self, at_least: float = 0.0) -> float:
        """Count a failure, and return the seconds to wait; never less than the server asked for (`Retry-After`)."""
        # The exponent is bounded because a float overflows after about a thousand failures.
        full = min(LONGEST, SHORTEST * 2.0 ** min(self.failures, 20))
        self.failures += 1
        return max(at_least, SHORTEST, full * (1.0 - self._chance() / 2.0))

    def reset(self) -> None:
        """Begin with the shortest pause again."""
        self.failures = 0
