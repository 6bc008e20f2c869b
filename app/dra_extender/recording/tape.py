"""The records of a recording in order: what comes from outside, and between two such causes what the steps of the use cases did."""

from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

from dra_extender.recording.clock_readings import ReadingsPlayed
from dra_extender.recording.recorder import STOPPED
from dra_extender.recording.records import (
    Answered,
    Asked,
    Called,
    ClocksRead,
    Delivered,
    FactsLearned,
    Given,
    PolicyTaken,
    Record,
    RecordingEnded,
    TermBegan,
    TermEnded,
    TimerFired,
)

Cause = Called | Delivered | Given | PolicyTaken | TermBegan | TermEnded | TimerFired


class Stretch(NamedTuple):
    """What followed from a cause, until the next one.

    `steps` began in it; number 0 stands for what the cause itself set off.  `readings` and `facts` are by the number of the step.
    Below 0 steps: the recording does not have all of what the cause set off, so that it cannot be played.
    """

    steps: int
    asked: list[Asked]
    given: list[Given]
    answered: list[Answered]
    readings: dict[int, deque[tuple[int, float, int]]]
    facts: dict[int, FactsLearned]


class Tape:
    """Causes as they came, each with what followed from it.

    `upcoming` is the cause after that of the stretch, None at the end; `passed` counts records, `at` is the time of the last one.

    What clocks showed in a step is recorded after it.  Of a recording that does not end with the process, the last step is left out
    therefore, unless its readings are there; `cut_off` counts the answers that were given in it.
    """

    def __init__(self, records: Iterator[Record], readings: ReadingsPlayed) -> None:
        self._records = records
        self._readings = readings
        self._base = 0
        self.upcoming: Cause | None = None
        self.passed = 0
        self.at = 0.0
        self.ended: str | None = None
        self.cut_off = 0

    def advance(self) -> Stretch:
        """Read on to the cause after the upcoming one; what follows from the latter.

        Raises:
            RecordingFileError: the file cannot be read any further.
        """
        if self.upcoming is not None:
            self._base = self.upcoming.step
        self.upcoming = None
        stretch = Stretch(0, [], [], [], {}, {})
        last = self._base
        for record in self._records:
            self.passed += 1
            self.at, last = record.at, record.step
            if self._is_cause(record, stretch):
                return stretch._replace(steps=last - self._base)
        steps = last - self._base
        if self.ended == STOPPED or steps in stretch.readings:
            return stretch._replace(steps=steps)
        self.cut_off = sum(each.step == last for each in stretch.answered)
        return stretch._replace(
            steps=steps - 1,
            asked=[each for each in stretch.asked if each.step < last],
            given=[each for each in stretch.given if each.step < last],
            answered=[each for each in stretch.answered if each.step < last],
        )

    def _is_cause(self, record: Record, stretch: Stretch) -> bool:
        """Whether the next stretch begins; otherwise the record is put into this one."""
        number = record.step - self._base
        match record:
            case Asked():
                stretch.asked.append(record)
            case Answered():
                stretch.answered.append(record)
            case ClocksRead():
                stretch.readings[number] = self._readings.decoded(record.readings)
            case FactsLearned():
                stretch.facts[number] = record
            case RecordingEnded():
                self.ended = record.reason
            case Given(at_once=True):
                stretch.given.append(record)
            case _:
                self.upcoming = record
                return True
        return False
