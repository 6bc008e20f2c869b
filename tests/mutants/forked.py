"""Forked children of a process that has collected all tests: nothing is imported twice, and nothing is left behind."""

import ctypes
import os
import resource
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from typing import Any, Final, NamedTuple

import pytest

from tests.mutants.switches import Switches

MEMORY_BYTES: Final = 6 << 30
"""A mutant that allocates without end fails at this limit."""

_END_WITH_PARENT: Final = 1
"""`PR_SET_PDEATHSIG` of Linux."""

Send = Callable[[Any], None]


class Child:
    """A forked process that calls the function with a way to send results, and ends then."""

    def __init__(self, function: Callable[[Send], None]) -> None:
        self.results, sender = Pipe(duplex=False)
        self._folder = tempfile.mkdtemp(prefix="mutants-")
        self._pid = os.fork()
        if self._pid == 0:
            self._be_child(function, sender)
        with suppress(PermissionError):
            os.setpgid(self._pid, self._pid)
        sender.close()

    def _be_child(self, function: Callable[[Send], None], sender: Connection) -> None:
        try:
            os.setpgid(0, 0)
            if sys.platform == "linux":
                ctypes.CDLL(None).prctl(_END_WITH_PARENT, signal.SIGKILL)
            resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
            os.environ["PYTEST_DEBUG_TEMPROOT"] = self._folder
            nowhere = os.open(os.devnull, os.O_RDWR)
            for standard in range(3):
                os.dup2(nowhere, standard)
            function(sender.send)
        finally:
            os._exit(0)

    def end(self) -> None:
        """Kill the process with all that it started, and remove its temporary files."""
        self.results.close()
        os.killpg(self._pid, signal.SIGKILL)
        os.waitpid(self._pid, 0)
        shutil.rmtree(self._folder, ignore_errors=True)


def in_parallel(functions: Sequence[Callable[[Send], None]]) -> Iterator[Any]:
    """Yield what the functions send, each in a child, as it comes."""
    children = {child.results: child for child in map(Child, functions)}
    while children:
        for results in wait(list(children)):
            assert isinstance(results, Connection)
            try:
                yield results.recv()
            except EOFError:
                children.pop(results).end()


class FinishedTest(NamedTuple):
    """One test, by its number in the collection; `reached` are the mutants whose switch the test asked."""

    number: int
    failed: bool
    seconds: float
    reached: frozenset[int]


class ForkedTests:
    """Runs collected tests in children. Registered with pytest as a plugin, because pytest reports failures by a hook."""

    def __init__(self, items: Sequence[pytest.Item], switches: Switches) -> None:
        self._items = items
        self._switches = switches
        self._failed = False

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note a failure of the test that is run."""
        self._failed |= report.failed

    def run(self, numbers: Sequence[int], active: frozenset[int], seconds: float) -> list[FinishedTest]:
        """Return the tests that ran with these mutants, until the first that failed.

        A child that dies, or takes longer than these seconds, fails in the test that it was at.
        """
        runs: list[FinishedTest] = []
        deadline = time.monotonic() + seconds
        child = Child(lambda send: self.run_here(numbers, active, send, until_failure=True))
        with suppress(EOFError):
            while child.results.poll(max(0.0, deadline - time.monotonic())):
                runs.append(child.results.recv())
        child.end()
        if len(runs) < len(numbers) and not (runs and runs[-1].failed):
            runs.append(FinishedTest(numbers[len(runs)], True, seconds, active))
        return runs

    def run_here(
        self, numbers: Sequence[int], active: frozenset[int], send: Send, *, until_failure: bool = False
    ) -> None:
        """Send what becomes of each test with these mutants, in this process."""
        self._switches.active = active
        for number, following in zip(numbers, [*numbers[1:], None], strict=True):
            self._failed = False
            self._switches.reached.clear()
            item, began = self._items[number], time.monotonic()
            following_item = None if following is None else self._items[following]
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following_item)
            send(FinishedTest(number, self._failed, time.monotonic() - began, frozenset(self._switches.reached)))
            if self._failed and until_failure:
                return
