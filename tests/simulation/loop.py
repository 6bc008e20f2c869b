"""An event loop for several simulated processes, on one virtual clock and one seeded scheduler.

Each process has a queue of ready callbacks of its own, as if it had its own event loop: callbacks of one process run in the
order in which they became ready, which is what asyncio promises.  Which process runs next is up to the seed.  Time passes only
while no process has anything to do.  A callback belongs to the process in whose context it was scheduled.
"""

import asyncio
import hashlib
import heapq
import random
import signal
from collections import deque
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor
from contextvars import Context, ContextVar, copy_context
from typing import Any, Final, TypeVar

T = TypeVar("T")
Timers = list[tuple[float, asyncio.TimerHandle]]

PROCESS: Final[ContextVar["Process"]] = ContextVar("PROCESS")
_FREE_READINGS: Final = 1_000
_READING_SECONDS: Final = 1e-5
"""Work that reads the clock until its time is up comes to an end: after so many readings in one callback each takes so long.  The
first are free, because their number depends on what is cached from runs before.
"""
_MOST_CALLBACKS: Final = 8
"""Callbacks of one process that run before another process may have its turn."""
_THREAD_SECONDS: Final = 0.002
_PRUNE: Final = 256
_TRACE_BYTES: Final = 4096


class Process:
    """One simulated process: its callbacks, timers and tasks.

    `wall_offset`, `suspended` and `stood` are seconds: how far its wall clock is off, how long its machine has slept, and how long
    it has not run.
    """

    def __init__(self, loop: "SimulationLoop", name: str, address: str, number: int) -> None:
        self.name = name
        self.address = address
        self.number = number
        self.alive = True
        self.paused = False
        self.wall_offset = 0.0
        self.suspended = 0.0
        self.stood = 0.0
        self.steps = 0
        self.ready: deque[asyncio.Handle] = deque()
        self._tasks: list[asyncio.Task[Any]] = []
        self._most_tasks = _PRUNE
        self.at_end: list[Callable[[], None]] = []
        self.on_signal: dict[int, Callable[[], object]] = {}
        self.on_problem: Callable[[asyncio.AbstractEventLoop, dict[str, Any]], object] | None = None
        self.context = copy_context()
        self.context.run(PROCESS.set, self)
        self._loop = loop
        self._at_step: tuple[int, Callable[[], None]] | None = None
        self._stands: tuple[float, Timers | None] | None = None

    def start(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        return self.context.run(lambda: self._loop.create_task(work, name=self.name))

    def keep(self, task: asyncio.Task[Any]) -> None:
        """Keep the task alive, as long as it runs: what is collected in a killed process would still run its `finally`."""
        self._tasks.append(task)
        if len(self._tasks) > self._most_tasks:
            self._tasks = [each for each in self._tasks if not each.done()]
            self._most_tasks = max(_PRUNE, 2 * len(self._tasks))

    def at_step(self, steps: int, call: Callable[[], None]) -> None:
        """Call this before the callback after so many further ones."""
        self._at_step = (self.steps + steps, call)

    def step(self) -> bool:
        """Run the next callback; False if what was to happen before it has ended or paused the process."""
        if self._at_step is not None and self.steps >= self._at_step[0]:
            _, call = self._at_step
            self._at_step = None
            call()
            if not self.alive or self.paused:
                return False
        handle = self.ready.popleft()
        self.steps += 1
        if not handle._cancelled:
            handle._run()
        return True

    def pause(self, *, machine: bool = False) -> None:
        """Let it stand still until `resume`; `machine`: its whole machine sleeps."""
        if not self.paused:
            self.paused = True
            self._stands = (self._loop.time(), self._loop.take_timers(self) if machine else None)

    def resume(self) -> None:
        """Let it go on, if it stands still."""
        self.paused = False
        if self._stands is not None:
            since, timers = self._stands
            self._stands = None
            seconds = self._loop.time() - since
            self.stood += seconds
            if timers is not None:
                # Timers count the time of a clock that stands still meanwhile.
                self.suspended += seconds
                self._loop.put_timers(self, timers, seconds)

    def awake(self) -> float:
        """Return for how many seconds of the loop's time it has not stood still."""
        return self._loop.time() - self.stood

    def kill(self) -> None:
        """End it at once: no callback or timer of it runs any more."""
        if self.alive:
            self.alive = False
            self.ready.clear()
            self._loop.processes.remove(self)
            self._loop.drop_ended_timers()
            for call in self.at_end:
                call()

    def signal(self, number: signal.Signals) -> None:
        """Deliver a signal; without a handler it ends the process."""
        handler = self.on_signal.get(number)
        if handler is None:
            self.kill()
        else:
            self.context.run(self._loop.call_soon, handler)


class NothingLeftError(Exception):
    """No process has anything to do, now or later."""


class SimulationLoop(asyncio.BaseEventLoop):
    """Runs processes.  `random` decides about everything that happens; `digest` tells whether two runs were the same."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.random = random.Random(f"loop {seed}")
        self.processes: list[Process] = []
        self.problems: list[str] = []
        self.steps = 0
        self.ended = False
        self._now = 0.0
        self._made = 0
        self._numbers = 0
        self._timers: list[tuple[float, int, asyncio.TimerHandle, Process]] = []
        self._cancelled = 0
        self._readings = 0
        self._hash = hashlib.blake2b(digest_size=16)
        self._order = bytearray()
        self.main = self.process("world", "192.0.2.1")
        self._current = self.main
        self.set_task_factory(_task)

    def process(self, name: str, address: str) -> Process:
        process = Process(self, name, address, self._made)
        self._made += 1
        self.processes.append(process)
        return process

    @property
    def current(self) -> Process:
        """The process of the context that runs."""
        return PROCESS.get(self._current)

    def note(self, data: bytes) -> None:
        """Add something that happened to the digest."""
        self._hash.update(b"%r %d " % (self._now, len(data)))
        self._hash.update(data)

    def digest(self) -> str:
        """A hash over everything that was noted, and over the order of all callbacks."""
        self._hash.update(self._order)
        self._order.clear()
        return self._hash.hexdigest()

    # asyncio asks for every callback; this is False without a frame of Python.
    get_debug = staticmethod(bool)

    @property
    def timers(self) -> int:
        """How many timers are kept, cancelled ones included."""
        return len(self._timers)

    def abandon(self) -> None:
        """Let go of everything that was still to be done."""
        self.ended = True
        for process in self.processes:
            process.ready.clear()
        self._timers.clear()
        self.close()

    def number(self) -> int:
        """A number that nothing else of this loop has."""
        self._numbers += 1
        return self._numbers

    def time(self) -> float:
        """Return virtual seconds since the loop was made."""
        return self._now

    def read_clock(self) -> float:
        """Return the time; only within a callback that reads it very often it goes on."""
        self._readings += 1
        if self._readings <= _FREE_READINGS:
            return self._now
        return self._now + (self._readings - _FREE_READINGS) * _READING_SECONDS

    def call_soon(  # type: ignore[override]  # typeshed spells the arguments with TypeVarTuple
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        context = context or copy_context()
        handle = asyncio.Handle(callback, args, self, context)
        process = context.get(PROCESS) or PROCESS.get(self._current)
        if process.alive and not self.ended:
            process.ready.append(handle)
        return handle

    def call_soon_threadsafe(  # type: ignore[override]  # typeshed spells the arguments with TypeVarTuple
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        return self.call_soon(callback, *args, context=context)

    def call_later(  # type: ignore[override]  # typeshed spells the arguments with TypeVarTuple
        self, delay: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self._now + delay, callback, *args, context=context)

    def call_at(  # type: ignore[override]  # typeshed spells the arguments with TypeVarTuple
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        context = context or copy_context()
        timer = asyncio.TimerHandle(when, callback, args, self, context)
        timer._scheduled = True  # type: ignore[attr-defined]
        process = context.get(PROCESS) or PROCESS.get(self._current)
        if process.alive and not self.ended:
            self._numbers += 1
            heapq.heappush(self._timers, (when, self._numbers, timer, process))
        return timer

    def take_timers(self, process: Process) -> Timers:
        """Take the timers of a process away, in their order, each with its time."""
        found = sorted(each for each in self._timers if each[3] is process)
        self._timers = [each for each in self._timers if each[3] is not process]
        heapq.heapify(self._timers)
        return [(when, timer) for when, _, timer, _ in found]

    def put_timers(self, process: Process, timers: Timers, seconds: float) -> None:
        """Have timers that were taken away end so many seconds later than they were to."""
        for when, timer in timers:
            if process.alive and not timer.cancelled():
                heapq.heappush(self._timers, (when + seconds, self.number(), timer, process))

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        self._cancelled += 1
        if self._cancelled > _PRUNE and self._cancelled * 2 > len(self._timers):
            self.drop_ended_timers()

    def drop_ended_timers(self) -> None:
        """Let go of timers that are cancelled, and of those of processes that have ended."""
        self._timers = [each for each in self._timers if not each[2]._cancelled and each[3].alive]
        heapq.heapify(self._timers)
        self._cancelled = 0

    def create_future(self) -> asyncio.Future[Any]:
        return NumberedFuture(loop=self)

    def run_in_executor(  # type: ignore[override]  # typeshed spells the arguments with TypeVarTuple
        self, executor: Executor | None, func: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        """Run the function in a callback, some time later, as threads end in any order."""
        future = self.create_future()

        def run() -> None:
            if future.cancelled():
                return
            try:
                future.set_result(func(*args))
            except Exception as problem:  # noqa: BLE001 - it goes to who waits
                future.set_exception(problem)

        self.call_later(self.random.random() * _THREAD_SECONDS, run)
        return future

    def add_signal_handler(self, sig: int, callback: Callable[..., object], *args: Any) -> None:  # type: ignore[override]
        self.current.on_signal[sig] = lambda: callback(*args)

    def remove_signal_handler(self, sig: int) -> bool:
        return self.current.on_signal.pop(sig, None) is not None

    def _run_once(self) -> None:
        while not (ready := [each for each in self.processes if each.ready and not each.paused]):
            self._skip()
        draw = self.random.random
        process = ready[int(draw() * len(ready))] if len(ready) > 1 else ready[0]
        self._current = process
        waiting, order, number = process.ready, self._order, process.number & 0xFF
        for _ in range(int(draw() * _MOST_CALLBACKS) + 1):
            self._readings = 0
            if not process.step():
                break
            self.steps += 1
            order.append(number)
            if not waiting or process.paused or self._stopping:  # type: ignore[attr-defined]  # BaseEventLoop's, set by `stop`
                break
        self._current = self.main
        if len(order) > _TRACE_BYTES:
            self._hash.update(order)
            order.clear()

    def _skip(self) -> None:
        """Go to the moment of the next timer."""
        timers = self._timers
        while timers and (timers[0][2]._cancelled or not timers[0][3].alive):
            heapq.heappop(timers)
        if not timers:
            raise NothingLeftError
        self._now = max(self._now, timers[0][0])
        while timers and timers[0][0] <= self._now:
            _, _, timer, process = heapq.heappop(timers)
            timer._scheduled = False  # type: ignore[attr-defined]
            if process.alive and not timer._cancelled:
                process.ready.append(timer)

    def _process_events(self, event_list: Any) -> None:
        """There is no selector."""

    def _write_to_self(self) -> None:
        """Nobody sleeps in a selector."""

    def set_exception_handler(self, handler: Any) -> None:
        self.current.on_problem = handler

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        if self.ended or not self.current.alive:
            return
        self.problems.append(f"{self.current.name}: {context.get('message')}: {context.get('exception')!r}")
        if self.current.on_problem is not None:
            self.current.on_problem(self, context)


class NumberedFuture(asyncio.Future[Any]):
    """A future whose place in a set does not depend on where it is in memory."""

    def __init__(self, *, loop: SimulationLoop) -> None:
        super().__init__(loop=loop)
        self._number = loop.number()

    def __hash__(self) -> int:
        return self._number


class NumberedTask(asyncio.Task[Any]):
    """A task whose place in a set does not depend on where it is in memory."""

    def __init__(self, work: Any, *, loop: SimulationLoop, **more: Any) -> None:
        self._number = loop.number()
        super().__init__(work, loop=loop, **more)

    def __hash__(self) -> int:
        return self._number


def _task(loop: asyncio.AbstractEventLoop, work: Any, **more: Any) -> asyncio.Task[Any]:
    assert isinstance(loop, SimulationLoop)
    task = NumberedTask(work, loop=loop, **more)
    loop.current.keep(task)
    return task
