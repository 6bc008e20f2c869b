"""The records of a recording in order, and the wall clock that it shows."""

from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from typing import Final

from dra_extender.recording.records import CURRENT_CALL, Record, TimeRead

_AHEAD_SECONDS: Final = 1.0
"""How much earlier than in the recording something may ask for the time in a replay."""


class Tape:
    """Records as they come, without the readings of the wall clock: `readings` has those that were passed, by call."""

    def __init__(self, records: Iterator[Record]) -> None:
        self._records = records
        self._ahead: deque[Record] = deque()
        self.readings: dict[int, deque[TimeRead]] = defaultdict(deque)
        self.passed = 0
        self.at = 0.0
        self.latest = TimeRead(at=0.0, now=0.0)

    def __iter__(self) -> Iterator[Record]:
        """The records, once."""
        while self._ahead or self._read():
            record = self._ahead.popleft()
            self.passed += 1
            self.at = record.at
            yield record

    def read_ahead(self, call: int, until: float) -> None:
        """Read on to the next reading of the clock by a call, if there is one by that time."""
        while not self.readings[call] and (self._ahead[-1].at if self._ahead else self.at) <= until:
            if not self._read_one():
                return

    def _read(self) -> bool:
        """Read on to the next record that is no reading; whether there is one."""
        while not self._ahead:
            if not self._read_one():
                return False
        return True

    def _read_one(self) -> bool:
        record = next(self._records, None)
        if isinstance(record, TimeRead):
            self.latest = record
            if record.call >= 0:
                self.readings[record.call].append(record)
        elif record is not None:
            self._ahead.append(record)
        return record is not None


class RecordedTime:
    """The clocks of a replay: the one that never goes back is virtual, the wall clock shows what it showed.

    What works for a call reads what it read in the recording, in order.  Other work reads what follows from the latest reading.
    """

    def __init__(self, tape: Tape, monotonic: Callable[[], float]) -> None:
        self.monotonic = monotonic
        self._tape = tape

    def now(self) -> float:
        """See Clock."""
        tape, call, at = self._tape, CURRENT_CALL.get(), self.monotonic()
        if call >= 0:
            tape.read_ahead(call, at + _AHEAD_SECONDS)
            if tape.readings[call]:
                return tape.readings[call].popleft().now
        return tape.latest.now + at - tape.latest.at
