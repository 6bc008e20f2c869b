"""The order of things: steps of the use cases are counted, and what comes from outside has its place among them."""

import asyncio
from collections.abc import Awaitable, Callable, Generator
from types import coroutine
from typing import Any, TypeVar

import msgspec

from dra_extender.recording.clock_readings import ClockKind, ReadingsNoted
from dra_extender.recording.observed_loop import ObservedLoop, TimerId
from dra_extender.recording.recorder import Recorder
from dra_extender.recording.records import (
    CURRENT_CALL,
    NO_CALL,
    Asked,
    ClocksRead,
    Given,
    Record,
    TimerFired,
    working_for,
)
from dra_extender.scheduling.ports import cluster as ports

T = TypeVar("T")


class StepRecorder:
    """Notes records with the step to which they belong.

    A step is a callback that the use cases have put into the event loop.  `cause` notes what comes from outside: a call, a
    delivery, a timer that was due, an answer that was waited for.  Between two causes, nothing but steps runs for the use cases, in
    the order in which they were put into the loop.  `within` notes what happens in a step.
    """

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._readings = ReadingsNoted()
        self._asked = 0
        self._loop: ObservedLoop | None = None

    @property
    def ended(self) -> str | None:
        """See Recorder."""
        return self._recorder.ended

    def cause(self, make: Callable[[float], Record]) -> None:
        """Note what comes from outside; the first one begins to observe the running loop, the first after the end ends that."""
        if self._recorder.ended is not None:
            self.release()
        elif self._loop is None:
            self._loop = ObservedLoop(asyncio.get_running_loop(), self)
        self._note_readings()
        self.within(make)

    def within(self, make: Callable[[float], Record]) -> None:
        """Note what happens in the present step, or in what a cause has set off."""
        self._recorder.note(make)

    def release(self) -> None:
        """The last step has begun."""
        self._note_readings()
        if self._loop is not None:
            self._loop.release()

    def reading(self, clock: ClockKind, seconds: float) -> float:
        """Note what a clock showed to the use cases; what they are to see."""
        return seconds if self._recorder.ended is not None else self._readings.note(clock, seconds)

    async def outside(
        self,
        awaitable: Awaitable[T],
        asked: Callable[[], tuple[str, str, list[Any]]],
        plain: Callable[[T], Any],
    ) -> T:
        """Await something outside for the use cases.

        Args:
            awaitable: What is awaited; it runs as no work of the use cases.
            asked: Port, method and arguments for the record.
            plain: The result for the record.
        """
        number, call = self._asked, CURRENT_CALL.get()
        if self._recorder.ended is None:
            self._asked += 1
            port, method, arguments = asked()
            self.within(
                lambda at: Asked(at=at, number=number, port=port, method=method, arguments=arguments, call=call)  # type: ignore[arg-type]
            )
        suspended = False

        def suspends() -> None:
            nonlocal suspended
            suspended = True

        def given(make: Callable[[float], Given]) -> None:
            if suspended:
                self.cause(make)
            else:
                self.within(lambda at: msgspec.structs.replace(make(at), at_once=True))

        try:
            with working_for(NO_CALL):
                value = await _noticed(awaitable, suspends)
        except GeneratorExit:
            raise
        except BaseException as problem:
            error = _error(problem)
            given(lambda at: Given(at=at, number=number, error=error))
            raise
        given(lambda at: Given(at=at, number=number, value=plain(value)))
        return value

    def step_begins(self) -> None:
        """See LoopObserver."""
        self._note_readings()
        self._recorder.step += 1

    def timer_fires(self, timer: TimerId) -> None:
        """See LoopObserver."""
        self.cause(lambda at: TimerFired(at=at, call=timer.call, task=timer.task, number=timer.number))

    def loop_time(self, seconds: float) -> float:
        """See LoopObserver."""
        return self.reading(ClockKind.LOOP, seconds)

    def _note_readings(self) -> None:
        readings = self._readings.take()
        if readings:
            self.within(lambda at: ClocksRead(at=at, readings=readings))


def _error(problem: BaseException) -> tuple[str, str]:
    """Class and message; of an error of the ports the class that they name."""
    for base in type(problem).__mro__:
        if base.__module__ == ports.__name__:
            return base.__name__, str(problem)
    return type(problem).__name__, str(problem)


@coroutine
def _noticed(awaitable: Awaitable[T], suspends: Callable[[], None]) -> Generator[Any, Any, T]:
    """Await; `suspends` is called if that does not end at once."""
    steps = awaitable.__await__()
    try:
        waited_for = next(steps)
    except StopIteration as ended:
        return ended.value  # type: ignore[no-any-return]
    suspends()
    while True:
        try:
            try:
                sent = yield waited_for
            except BaseException as problem:  # noqa: BLE001 - it is passed on
                waited_for = steps.throw(problem)
            else:
                waited_for = steps.send(sent)
        except StopIteration as ended:
            return ended.value  # type: ignore[no-any-return]
