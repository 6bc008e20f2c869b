"""What a replay found: which answers are equal, which are not compared and why, and where it did something else."""

from collections import Counter
from typing import Final, NamedTuple

from dra_extender.allocator.state.rejection import Code
from dra_extender.recording.records import Answered
from dra_extender.recording.replayed_cluster import WriteDifference
from dra_extender.scheduling.ports.errors import SHARE_USED_UP

_TIME_STOPS: Final = (SHARE_USED_UP, Code.SEARCH_LIMIT.value)
_COMPARED: Final = ("ok", "again")
CUT_OFF: Final = "cut off"
"""Counts answers that were given in the last step of a recording that does not have all of it."""


class AnswerDifference(NamedTuple):
    """An answer that was another one; the texts of outcome and answer, at seconds since the recording began."""

    at: float
    number: int
    verb: str
    recorded: str
    replayed: str


class ReplayReport(NamedTuple):
    """What a replay found.

    `equal` counts equal answers by verb, and `time_stops` those of them in which a search was ended by its time.  `excepted` counts
    the answers that are not compared, by why: see `exception_for`.  `departure` is where the replay first did something else than
    the recording, empty if it never did.  `ended` is why the recording ended, None if its file ends without saying so.
    """

    records: int
    equal: Counter[str]
    time_stops: int
    different: tuple[AnswerDifference, ...]
    excepted: Counter[str]
    requests: int
    other_requests: tuple[WriteDifference, ...]
    departure: str
    seconds: float
    ended: str | None

    @property
    def is_equal(self) -> bool:
        """Whether every compared answer is the recorded one, byte by byte."""
        return not self.different


class AnsweredCall(NamedTuple):
    """A call: when it came (seconds since the recording began), its number and its verb."""

    at: float
    number: int
    verb: str


class AnswerComparison:
    """Compares answers, one after the other; the attributes are those of ReplayReport."""

    def __init__(self) -> None:
        self.equal: Counter[str] = Counter()
        self.excepted: Counter[str] = Counter()
        self.different: list[AnswerDifference] = []
        self.time_stops = 0

    def compare(self, call: AnsweredCall, recorded: Answered, replayed: tuple[str, str]) -> None:
        """Compare the recorded answer to a call with that of the replay: its outcome and text."""
        why = exception_for(recorded, replayed)
        if why:
            self.excepted[why] += 1
        elif (recorded.outcome, recorded.answer) == replayed:
            self.equal[call.verb] += 1
            self.time_stops += _is_time_stop(recorded.answer)
        else:
            texts = (f"{recorded.outcome}: {recorded.answer}", ": ".join(replayed))
            self.different.append(AnswerDifference(*call, *texts))


def exception_for(recorded: Answered, replayed: tuple[str, str]) -> str:
    """Why two answers (outcome and text) are not compared; empty if they are.

    An answer is excepted if a fault of the call or of the process made it, or if the two differ and one of them says that a search
    was ended by its time.
    """
    if recorded.outcome not in _COMPARED:
        return recorded.outcome
    if (recorded.outcome, recorded.answer) != replayed and any(map(_is_time_stop, (recorded.answer, replayed[1]))):
        return "ended by time"
    return ""


def _is_time_stop(answer: str) -> bool:
    return any(text in answer for text in _TIME_STOPS)
