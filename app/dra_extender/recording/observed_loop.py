"""An event loop whose steps, timers and clock are noted, as far as the use cases have to do with them.

An event loop runs callbacks in the order in which they were put into it.  So a recording needs to have only how many callbacks of
the use cases had begun when something came from outside: the order of everything else follows.
"""

import asyncio
from collections import Counter
from collections.abc import Callable
from contextvars import Context
from typing import Any, Final, NamedTuple, Protocol

from dra_extender.recording.records import CURRENT_CALL, is_use_case

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

    def next(self) -> TimerId:
        """The ID of a timer that a use case sets now."""
        call = CURRENT_CALL.get()
        try:
            task = asyncio.current_task()
        except RuntimeError:
            task = None
        name = "" if task is None or task.get_name().startswith(_UNNAMED) else task.get_name()
        self._set[call, name] += 1
        return TimerId(call, name, self._set[call, name])


class LoopObserver(Protocol):
    """Learns what an event loop does for the use cases."""

    def step_begins(self) -> None:
        """A callback is about to run."""
        ...

    def timer_fires(self, timer: TimerId) -> None:
        """A timer was due, and its callback is about to run."""
        ...

    def loop_time(self, seconds: float) -> float:
        """The clock of the loop was read; what the reader is to see."""
        ...


class ObservedLoop:
    """Observes a loop, asyncio's own or uvloop's, until `release`: it takes the place of some of its methods."""

    def __init__(self, loop: asyncio.AbstractEventLoop, observer: LoopObserver) -> None:
        self._loop = loop
        self._observer = observer
        self._numbers = TimerNumbers()
        self._call_soon: Callable[..., asyncio.Handle] = loop.call_soon
        self._call_at: Callable[..., asyncio.TimerHandle] = loop.call_at
        self._call_later: Callable[..., asyncio.TimerHandle] = loop.call_later
        self._time: Callable[[], float] = loop.time
        # asyncio's `call_later` goes through `call_at`, uvloop's `call_at` through `call_later`.
        self._is_asyncio = isinstance(loop, asyncio.BaseEventLoop)
        for name in ("call_soon", "call_at", "call_later", "time"):
            setattr(loop, name, getattr(self, name))

    def release(self) -> None:
        """Let the loop go on unobserved."""
        for name in ("call_soon", "call_at", "call_later", "time"):
            if getattr(self._loop, name) == getattr(self, name):
                delattr(self._loop, name)

    def time(self) -> float:
        """See AbstractEventLoop."""
        seconds = self._time()
        return self._observer.loop_time(seconds) if is_use_case() else seconds

    def call_soon(self, callback: Callable[..., object], *args: Any, context: Context | None = None) -> asyncio.Handle:
        """See AbstractEventLoop."""
        if not is_use_case(context):
            return self._call_soon(callback, *args, context=context)
        return self._call_soon(self._step, callback, args, context=context)

    def call_later(
        self, delay: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """See AbstractEventLoop."""
        return self.call_at(self._time() + delay, callback, *args, context=context)

    def call_at(
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """See AbstractEventLoop."""
        if is_use_case():
            callback, args = self._fire, (self._numbers.next(), callback, args)
        if self._is_asyncio:
            return self._call_at(when, callback, *args, context=context)
        return self._call_later(when - self._time(), callback, *args, context=context)

    def _step(self, callback: Callable[..., object], args: tuple[Any, ...]) -> None:
        self._observer.step_begins()
        callback(*args)

    def _fire(self, timer: TimerId, callback: Callable[..., object], args: tuple[Any, ...]) -> None:
        self._observer.timer_fires(timer)
        callback(*args)
