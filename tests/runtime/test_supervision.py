"""Work in the background starts again after whatever it raises, is counted and named, and is never started in any other way."""

import ast
import asyncio
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import dra_extender
import pytest
from dra_extender.runtime.supervision import (
    DEAD_AFTER,
    STEADY_SECONDS,
    UNREADY_AFTER,
    BackgroundTask,
    Supervisor,
    cancel_all,
)


class Site:
    """A supervisor with a clock of the test, and a task that fails a given number of times."""

    def __init__(self) -> None:
        self.counted: Counter[str] = Counter()
        self.pauses: list[float] = []
        self.now = 0.0
        self.lasts = 0.0
        self.runs = 0
        self.resume = asyncio.Event()
        self.supervisor = Supervisor(self.count, sleep=self.sleep, monotonic=lambda: self.now)

    def count(self, task: str) -> None:
        self.counted[task] += 1

    async def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        await asyncio.sleep(0)

    def failing(self, times: int, problem: type[BaseException] = RuntimeError) -> asyncio.Task[None]:
        async def run() -> None:
            self.runs += 1
            self.now += self.lasts
            if self.runs <= times:
                raise problem("no good")
            await self.resume.wait()

        return self.supervisor.keep(BackgroundTask.WAKE_UP, run)

    async def until_runs(self, count: int) -> None:
        async with asyncio.timeout(120):
            while self.runs < count:  # noqa: ASYNC110 - one turn at a time
                await asyncio.sleep(0)


@pytest.mark.parametrize("problem", [RuntimeError, RecursionError, MemoryError, KeyError, TimeoutError, OverflowError])
async def test_a_task_that_raises_is_counted_and_starts_again(problem: type[Exception]) -> None:
    site = Site()
    task = site.failing(2, problem)
    await site.until_runs(3)
    assert (site.counted, site.pauses) == ({"wake-up": 2}, [0.5, 1.0])
    assert problem.__name__ in site.supervisor.notes()["failed-wake-up"]
    site.resume.set()
    await task


async def test_failures_in_a_row_are_named_first_by_readiness_and_at_last_by_liveness() -> None:
    site = Site()
    task = site.failing(DEAD_AFTER)
    await site.until_runs(UNREADY_AFTER - 1)
    assert not site.supervisor.failing()
    await site.until_runs(UNREADY_AFTER)
    assert "wake-up has failed 3 times in a row, the last time with RuntimeError: no good" in str(
        site.supervisor.failing()
    )
    assert not site.supervisor.beyond_repair()
    await site.until_runs(DEAD_AFTER + 1)
    assert set(site.supervisor.beyond_repair()) == {"task-wake-up"}
    assert max(site.pauses) == 30
    task.cancel()
    await asyncio.wait((task,))
    assert not site.supervisor.failing()


async def test_a_task_that_ran_for_long_before_it_failed_does_not_fail_in_a_row() -> None:
    site = Site()
    site.lasts = STEADY_SECONDS
    task = site.failing(10)
    await site.until_runs(11)
    assert (site.counted["wake-up"], set(site.pauses), site.supervisor.failing()) == (10, {0.5}, {})
    task.cancel()


async def test_a_task_that_ends_or_is_cancelled_has_not_failed() -> None:
    site = Site()
    ended = site.failing(0)
    site.resume.set()
    await ended
    cancelled = site.supervisor.keep(BackgroundTask.WATCH, asyncio.Event().wait, "pods")  # type: ignore[arg-type]  # never ends
    await asyncio.sleep(0)
    cancelled.cancel()
    await asyncio.wait((cancelled,))
    assert not site.counted


async def test_the_failure_of_a_task_that_runs_once_is_counted_unless_it_is_expected() -> None:
    async def fail() -> None:
        raise LookupError("gone")

    site = Site()
    for expected in ((), (LookupError,)):
        with pytest.raises(LookupError):
            await site.supervisor.begin(BackgroundTask.BIND, fail(), expected)
    assert site.counted == {"bind": 1}


def test_a_failure_inside_costs_the_block_alone() -> None:
    site = Site()
    done = []
    for name in "abc":
        with site.supervisor.sparing(BackgroundTask.RECLAIM, claim=name):
            if name == "b":
                raise RecursionError
            done.append(name)
    assert (done, site.counted) == (["a", "c"], {"reclaim": 1})


async def test_callbacks_of_the_event_loop_that_raise_are_counted() -> None:
    site = Site()
    loop = asyncio.get_running_loop()
    site.supervisor.watch_loop(loop)
    try:
        loop.call_soon(int, "x")
        loop.call_later(0, int, "y")
        future = loop.create_future()
        future.add_done_callback(lambda _: int("x"))
        future.set_result(None)
        async with asyncio.timeout(120):
            while site.counted["callback"] < 3:  # noqa: ASYNC110 - the handler of a loop cannot be awaited
                await asyncio.sleep(0)
    finally:
        loop.set_exception_handler(None)


STARTS = {
    "create_task",
    "ensure_future",
    "TaskGroup",
    "Thread",
    "to_thread",
    "run_in_executor",
    "run_coroutine_threadsafe",
    "running_task",
}
# Where a task is started otherwise, and why nothing can be lost there.
ALLOWED = {
    ("runtime/supervision.py", "create_task"): "the supervisor itself",
    (
        "service/server.py",
        "create_task",
    ): "a server is awaited at the end; the failure of a handshake is one of the event loop's, which are counted",
    ("service/server.py", "running_task"): "the listener of TLS goes on whatever a connection does",
    ("api/scrape_access.py", "create_task"): "awaited at once",
    ("service/service.py", "create_task"): "waits for an event, and cannot fail",
    ("service/service.py", "ensure_future"): "awaited at once, and its failure ends the service",
    ("scheduling/binding/bind.py", "ensure_future"): "waits for an event, and cannot fail",
    ("kube/reflector.py", "to_thread"): "awaited at once",
    ("api/calls.py", "create_task"): "its failure is one of the event loop's, which are counted",
    ("cli/demo_stories.py", "create_task"): "a command that a person runs and sees end",
    ("service/policy_reloader.py", "to_thread"): "awaited at once",
    ("service/tracing.py", "to_thread"): "awaited at the end of the process, for some seconds at most",
    ("cli/answers.py", "Thread"): "writes to the terminal, and is joined at the end of the block",
    ("page/application.py", "run_in_executor"): "awaited at once",
    ("page/application.py", "create_task"): "awaited at once",
    (
        "page/server.py",
        "running_task",
    ): "awaited at the end; what it fails to read is on the page, with the age of the data",
    ("page/states.py", "to_thread"): "awaited at once",
    ("simulator/apiserver/cluster.py", "create_task"): "the demo's cluster, not the service's",
    ("simulator/virtual_time.py", "run_in_executor"): "the demo's event loop counts what its caller awaits",
}


def calls(names: set[str]) -> Iterator[tuple[str, str]]:
    root = Path(dra_extender.__file__).parent
    texts = {path: path.read_text() for path in sorted(root.rglob("*.py"))}
    for path, text in texts.items():
        for node in ast.walk(ast.parse(text)) if any(name in text for name in names) else ():
            if isinstance(node, ast.Attribute) and node.attr in names:
                yield str(path.relative_to(root)), node.attr
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in names:
                yield str(path.relative_to(root)), node.func.id


def test_tasks_are_started_by_the_supervisor_alone() -> None:
    assert set(calls(STARTS)) == set(ALLOWED)


async def test_a_task_that_loses_a_cancellation_is_cancelled_again() -> None:
    losses: list[asyncio.CancelledError] = []
    failed = RuntimeError("it failed while it was cancelled")

    async def loses_it_once() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError as cancellation:
            losses.append(cancellation)
        await asyncio.Event().wait()

    async def fails() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            raise failed

    tasks = [asyncio.create_task(each()) for each in (loses_it_once, fails)]
    await asyncio.sleep(0)
    await cancel_all(tasks, 0.01)
    assert (len(losses), tasks[0].cancelled(), tasks[1].exception()) == (1, True, failed)


async def test_where_there_is_no_task_to_cancel_it_returns() -> None:
    await cancel_all([])
