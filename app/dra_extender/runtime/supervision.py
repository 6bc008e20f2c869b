"""Background work that cannot die in silence.

All work beside the calls of kube-scheduler is started here.  A task that raises is logged with its exception, counted, and started
again after a pause that grows.  While it fails again and again, readiness fails with its name; in the end liveness fails, so that
Kubernetes restarts the process.  One bad object in a loop costs only that object (`sparing`).
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from enum import StrEnum
from typing import Any, Final, TypeVar

import structlog

T = TypeVar("T")

UNREADY_AFTER: Final = 3
"""So many failures in a row make the service unready."""
DEAD_AFTER: Final = 20
"""So many make it dead: about eight minutes of tries that all ended at once."""
STEADY_SECONDS: Final = 60.0
"""A task that ran so long before it failed does not fail in a row."""
CANCEL_AGAIN_SECONDS: Final = 1.0
"""So long a task has to end after each cancellation."""
_FIRST_PAUSE: Final = 0.5
_LONGEST_PAUSE: Final = 30.0

_LOG = structlog.get_logger(__name__)


class BackgroundTask(StrEnum):
    """The kinds of background work, by their names in logs, in metrics and on the readiness page."""

    WATCH = "watch"
    EVENTS = "events"
    CREDENTIALS = "credentials"
    WAKE_UP = "wake-up"
    RECLAIM = "reclaim"
    GROUP_CLAIMS = "group-claims"
    GROUP_TRIALS = "group-trials"
    FOREIGN_ALLOCATIONS = "foreign-allocations"
    GUARD_CLAIMS = "guard-claims"
    GUARD_RESERVATIONS = "guard-reservations"
    POLICY = "policy"
    CERTIFICATES = "certificates"
    AUDIT = "audit"
    DEVICE_COUNT = "device-count"
    COLLECTOR = "collector"
    LEASE = "lease"
    SERVICE_ROUTE = "service-route"
    BIND = "bind"
    RESERVATIONS = "reservations"
    CALLBACK = "callback"


class _Record:
    """The failures of a task."""

    __slots__ = ("in_a_row", "last")

    def __init__(self) -> None:
        self.in_a_row = 0
        self.last = ""


class Supervisor:
    """Starts background tasks, restarts those that fail, and reports which ones keep failing."""

    def __init__(
        self,
        failed: Callable[[str], None],
        *,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """`failed` counts: it is called with the name of whatever raised, and must not raise itself."""
        self._failed = failed
        self._sleep = sleep
        self._monotonic = monotonic
        self._records: dict[str, _Record] = {}
        self._last: dict[str, str] = {}

    def keep(
        self, kind: BackgroundTask, work: Callable[[], Coroutine[Any, Any, None]], instance: str = ""
    ) -> asyncio.Task[None]:
        """Call `work` until it returns or the task is cancelled, again after each failure.

        `instance` distinguishes tasks of one kind.
        """
        name = f"{kind}-{instance}" if instance else str(kind)
        return asyncio.create_task(self._restart_on_failure(name, work), name=name)

    def begin(
        self, kind: BackgroundTask, coroutine: Coroutine[Any, Any, T], expected: tuple[type[Exception], ...] = ()
    ) -> asyncio.Task[T]:
        """Run the coroutine.  Log and count a failure that is not `expected`, whether or not the task is awaited."""

        def observe(ended: asyncio.Task[T]) -> None:
            problem = None if ended.cancelled() else ended.exception()
            if problem is not None and not isinstance(problem, expected):
                self.report(str(kind), problem)

        task = asyncio.create_task(coroutine, name=str(kind))
        task.add_done_callback(observe)
        return task

    @contextmanager
    def sparing(self, kind: BackgroundTask, **what: object) -> Iterator[None]:
        """Log and count an exception of the block, with `what` it is about; it ends only the block."""
        try:
            yield
        except Exception as problem:  # noqa: BLE001 - whatever one object does must not cost the others
            self.report(str(kind), problem, **what)

    def report(self, name: str, problem: BaseException, **what: object) -> None:
        self._failed(name)
        self._last[name] = _shown(problem)
        _LOG.error("background work failed", task=name, problem=_shown(problem), exc_info=problem, **what)

    def watch_loop(self, loop: asyncio.AbstractEventLoop) -> None:
        """Count also what callbacks of the event loop raise, and failures of tasks that are never awaited."""

        def handler(_: asyncio.AbstractEventLoop, context: Mapping[str, Any]) -> None:
            problem = context.get("exception")
            # asyncio also reports connections that break while they close; those are no failures of the program.
            if isinstance(problem, Exception) and not isinstance(problem, OSError):
                self.report(str(BackgroundTask.CALLBACK), problem, said=context.get("message"))
            else:
                _LOG.warning("the event loop reports a problem", said=context.get("message"), problem=repr(problem))

        loop.set_exception_handler(handler)

    def failing(self) -> Mapping[str, str]:
        """Return a sentence for each task that is kept and has failed UNREADY_AFTER times in a row."""
        return self._failing(UNREADY_AFTER)

    def beyond_repair(self) -> Mapping[str, str]:
        """Return a sentence for each task that has failed DEAD_AFTER times in a row: the process should start anew."""
        return self._failing(DEAD_AFTER)

    def notes(self) -> Mapping[str, str]:
        """Return the last failure of each task that ever failed."""
        return {f"failed-{name}": text for name, text in self._last.items()}

    def _failing(self, limit: int) -> Mapping[str, str]:
        return {
            f"task-{name}": (
                f"the background task {name} has failed {record.in_a_row} times in a row, the last time with {record.last}"
            )
            for name, record in self._records.items()
            if record.in_a_row >= limit
        }

    async def _restart_on_failure(self, name: str, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        record = self._records[name] = _Record()
        try:
            while True:
                began = self._monotonic()
                try:
                    await work()
                except Exception as problem:  # noqa: BLE001 - this is where it is seen
                    steady = self._monotonic() - began >= STEADY_SECONDS
                    record.in_a_row = 1 if steady else record.in_a_row + 1
                    record.last = _shown(problem)
                    self.report(name, problem, in_a_row=record.in_a_row)
                else:
                    return
                await self._sleep(min(_FIRST_PAUSE * 2 ** min(record.in_a_row - 1, 10), _LONGEST_PAUSE))
        finally:
            if self._records.get(name) is record:
                del self._records[name]


async def cancel(task: asyncio.Task[Any]) -> None:
    """Cancel the task and return when it has ended; what it raised is raised."""
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


async def cancel_all(tasks: Iterable[asyncio.Task[Any]], again_seconds: float = CANCEL_AGAIN_SECONDS) -> None:
    """Cancel the tasks and return when all have ended; what they raised is dropped.

    A library may take a cancellation for a timeout of its own that ends at that moment.  So a task that goes on is cancelled again.
    """
    running = set(tasks)
    while running:
        for task in running:
            task.cancel()
        ended, running = await asyncio.wait(running, timeout=again_seconds)
        for task in ended:
            if not task.cancelled():
                task.exception()


async def is_set_within(event: asyncio.Event, seconds: float) -> bool:
    """Wait until the event is set, so many seconds at most, and return whether it is."""
    try:
        # Not `wait_for`, which loses a cancellation that comes together with the event.
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return False
    return True


@asynccontextmanager
async def running_task(work: Coroutine[Any, Any, object]) -> AsyncIterator[None]:
    """Run the work inside the block, and cancel it at the end; what it raised is raised there."""
    task = asyncio.create_task(work)
    try:
        yield
    finally:
        await cancel(task)


def _shown(problem: BaseException) -> str:
    text = f"{type(problem).__name__}: {problem}"
    return text if len(text) <= 256 else f"{text[:255]}…"  # noqa: PLR2004 - as long as other messages


class StoppableWork:
    """A loop that ends between two pieces of work; `stop` waits for the piece in progress."""

    def __init__(self) -> None:
        self._stopping = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()

    @property
    def is_stopping(self) -> bool:
        return self._stopping.is_set()

    def begin(self) -> None:
        """Let the loop run, also again after a `stop`."""
        self._stopping.clear()

    @contextmanager
    def piece(self) -> Iterator[None]:
        """Do a piece of work, to whose end `stop` waits."""
        self._idle.clear()
        try:
            yield
        finally:
            self._idle.set()

    async def stop(self) -> None:
        """End the loop; return when the piece in progress has ended."""
        self._stopping.set()
        await self._idle.wait()

    async def stopped_within(self, seconds: float) -> bool:
        """Wait for this time or the stop; return whether it was the stop."""
        return await is_set_within(self._stopping, seconds)
