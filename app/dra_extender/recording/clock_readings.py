"""What clocks showed, as a recording has it: in ticks, equal readings in a row counted, differences instead of times.

A search looks at the clock thousands of times a second.  So that a recording can have every reading, the clocks of a service
that records go in ticks of 61 microseconds.
"""

from collections import deque
from collections.abc import Callable
from enum import IntEnum
from typing import Final

from dra_extender.recording.records import is_use_case

TICKS_PER_SECOND: Final = 2**14
"""A power of two: whole ticks are exact as floats."""
_OF_A_RUN: Final = 3
_MOST_TICKS: Final = 2**53
"""More than any clock shows; up to here, ticks are exact as floats."""


class ClockKind(IntEnum):
    """Which clock is read."""

    MONOTONIC = 0
    WALL = 1
    LOOP = 2


_NAMES: Final = {ClockKind.MONOTONIC: "steady clock", ClockKind.WALL: "wall clock", ClockKind.LOOP: "clock of the loop"}


class ReadingsNoted:
    """Readings since the last `take`: (clock, ticks since the reading of this clock before, how often), one after the other."""

    def __init__(self) -> None:
        self._ticks = [0] * len(ClockKind)
        self._runs: list[int] = []

    def note(self, clock: ClockKind, seconds: float) -> float:
        """Note a reading; what the reader is to see, rounded down to whole ticks."""
        ticks = int(seconds * TICKS_PER_SECOND)
        passed = ticks - self._ticks[clock]
        runs = self._runs
        if runs and not passed and runs[-_OF_A_RUN] == clock:
            runs[-1] += 1
        else:
            self._ticks[clock] = ticks
            runs += (clock, passed, 1)
        return ticks / TICKS_PER_SECOND

    def take(self) -> list[int]:
        """The readings so far, once; empty if there were none."""
        runs, self._runs = self._runs, []
        return runs


class ReadingsPlayed:
    """Hands out noted readings in their order: `use` those of a step, `next` one of them."""

    def __init__(self) -> None:
        self._ticks = [0] * len(ClockKind)
        self._runs: deque[tuple[int, float, int]] = deque()
        self._left = 0

    def decoded(self, readings: list[int]) -> "deque[tuple[int, float, int]]":
        """The readings of a step: (clock, seconds, how often).  Raises ValueError: they cannot be such."""
        if len(readings) % _OF_A_RUN:
            raise ValueError(f"expected three numbers for each reading, found {len(readings)} numbers")
        found: deque[tuple[int, float, int]] = deque()
        for at in range(0, len(readings), _OF_A_RUN):
            clock, passed, times = readings[at : at + _OF_A_RUN]
            if not 0 <= clock < len(ClockKind) or times < 1:
                raise ValueError(f"expected a clock below {len(ClockKind)} and a count, found {clock} and {times}")
            if abs(passed) > _MOST_TICKS:
                raise ValueError(f"expected no more than {_MOST_TICKS} ticks between two readings")
            self._ticks[clock] += passed
            found.append((clock, self._ticks[clock] / TICKS_PER_SECOND, times))
        return found

    def use(self, runs: "deque[tuple[int, float, int]] | None") -> int:
        """Hand these out from now on; returns how many of those before were left."""
        left = self._left + sum(times for _, _, times in list(self._runs)[1:]) if self._runs else 0
        self._runs = runs or deque()
        self._left = self._runs[0][2] if self._runs else 0
        return left

    def next(self, clock: ClockKind) -> float | None:
        """The next reading; None if there is none of this clock."""
        if not self._runs or self._runs[0][0] != clock:
            return None
        seconds = self._runs[0][1]
        self._left -= 1
        if not self._left:
            self._runs.popleft()
            self._left = self._runs[0][2] if self._runs else 0
        return seconds


class ReplayedTime:
    """Implements Clock.  A reading that the recording does not have follows from the one before and the time that has passed."""

    def __init__(self, readings: ReadingsPlayed, passed: Callable[[], float], departs: Callable[[str], None]) -> None:
        """`passed`: virtual seconds; `departs` reports a reading that is missing or left."""
        self._readings = readings
        self._passed = passed
        self._departs = departs
        self._last = dict.fromkeys(ClockKind, (0.0, 0.0))

    def use(self, readings: deque[tuple[int, float, int]] | None) -> None:
        """A step begins that read the clocks so."""
        left = self._readings.use(readings)
        if left:
            self._departs(f"clocks are read {left} times less often")

    def now(self) -> float:
        """See Clock."""
        return self.read(ClockKind.WALL)

    def monotonic(self) -> float:
        """See Clock."""
        return self.read(ClockKind.MONOTONIC)

    def read(self, clock: ClockKind) -> float:
        """What a clock shows."""
        passed, found = self._passed(), self._readings.next(clock) if is_use_case() else None
        if found is None:
            if is_use_case():
                self._departs(f"the {_NAMES[clock]} is read once more")
            seconds, at = self._last[clock]
            return seconds + passed - at
        self._last[clock] = (found, passed)
        return found
