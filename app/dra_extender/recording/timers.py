"""Timers of the use cases: a recording has when each of them was due and ran, and a replay runs them then."""

import asyncio
from collections import Counter
from collections.abc import Callable
from contextvars import Context
from typing import Any, Final, NamedTuple

from dra_extender.recording.records import CURRENT_CALL, NO_CALL, TimerFired

_UNNAMED: Final = "Task-"


class TimerId(NamedTuple):
    """A timer: for which call it was set, in which kind of task, and how many were set there before."""

    call: int
    task: str
    number: int


class TimerNumbers:
    """Gives timers their IDs as they are set."""

    def __init__(self) -> None:
        self._set: Counter[tuple[int, str]] = Counter()

    def next(self) -> TimerId | None:
        """The ID of a timer that is being set now; None if no use case sets it."""
        call = CURRENT_CALL.get()
        if call == NO_CALL:
            return None
        try:
            task = asyncio.current_task()
        except RuntimeError:
            task = None
        name = "" if task is None or task.get_name().startswith(_UNNAMED) else task.get_name()
        self._set[call, name] += 1
        return TimerId(call, name, self._set[call, name])


Note = Callable[[Callable[[float], TimerFired]], None]


def record_timers(loop: asyncio.AbstractEventLoop, note: Note) -> None:
    """Have `note` called for each timer of the use cases that this loop runs from now on."""
    numbers = TimerNumbers()
    # In asyncio's own loops everything else ends in `call_at`, in uvloop's in `call_later`.
    method = "call_at" if isinstance(loop, asyncio.BaseEventLoop) else "call_later"
    original: Callable[..., asyncio.TimerHandle] = getattr(loop, method)

    def recorded(
        when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        timer = numbers.next()
        if timer is None:
            return original(when, callback, *args, context=context)

        def fired() -> None:
            note(lambda at: TimerFired(at=at, call=timer.call, task=timer.task, number=timer.number))
            callback(*args)

        return original(when, fired, context=context)

    setattr(loop, method, recorded)
