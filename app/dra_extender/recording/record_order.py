"""The rules for the order of records: a file that breaks one was edited, or put together from several."""

from math import isfinite

from dra_extender.recording.records import Answered, Asked, Called, Given, Record, RecordingEnded


class DisorderError(ValueError):
    """A record that cannot follow those before it."""


class RecordOrder:
    """Checks one record after the other.

    * Times and steps do not go back.
    * Calls and requests are numbered without gaps.
    * Each of them is answered once at most, after it was made.
    * Nothing follows the end.
    """

    def __init__(self) -> None:
        self._at = 0.0
        self._step = 0
        self._calls = self._requests = 0
        self._open_calls: set[int] = set()
        self._open_requests: set[int] = set()
        self._ended = False

    def check(self, record: Record) -> None:
        """Take the next record.  Raises DisorderError."""
        if self._ended:
            raise DisorderError("a record after the end of the recording")
        if not isfinite(record.at) or record.at < self._at:
            raise DisorderError(f"expected a time from {self._at} s on, found {record.at} s")
        if record.step < self._step:
            raise DisorderError(f"expected step {self._step} or a later one, found step {record.step}")
        self._at, self._step = record.at, record.step
        match record:
            case Called():
                self._calls = _next("call", record.number, self._calls, self._open_calls)
            case Asked():
                self._requests = _next("request", record.number, self._requests, self._open_requests)
            case Answered():
                _close("call", record.number, self._open_calls)
            case Given():
                _close("request", record.number, self._open_requests)
            case RecordingEnded():
                self._ended = True


def _next(what: str, number: int, expected: int, are_open: set[int]) -> int:
    if number != expected:
        raise DisorderError(f"expected {what} {expected}, found {what} {number}")
    are_open.add(number)
    return number + 1


def _close(what: str, number: int, are_open: set[int]) -> None:
    if number not in are_open:
        raise DisorderError(f"{what} {number} is answered, which was not made or has its answer")
    are_open.remove(number)
