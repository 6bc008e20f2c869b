"""What becomes of each mutant: first alone with the nearest tests, then all survivors together with all tests."""

import gc
import shlex
import subprocess
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from enum import Enum
from functools import partial
from itertools import accumulate, takewhile
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

from tests.mutants.forked import Child, FinishedTest, ForkedTests, Send, in_parallel
from tests.mutants.mutations import ROOT, Mutation
from tests.mutants.switches import Switches

NEAREST_SECONDS: Final = 20.0
"""A mutant alone meets the nearest of the tests that reach it, which together take at most so long, or the first of them."""
TEST_SECONDS: Final = 60
"""For a test without a mutant, or with one that is active from the import on."""
LEAST_LIMIT_SECONDS: Final = 5.0
LIMIT_FACTOR: Final = 10.0
"""With mutants, a test that takes longer than so many times what it takes without, and 5 s, hangs: the mutant is killed."""
IMPORT_SECONDS: Final = 300.0
CHUNK: Final = 200
"""Tests that run one after the other in one child with all survivors."""
_OPTIONS: Final = ("-q", "-s", "-p", "no:cacheprovider", f"--timeout={TEST_SECONDS}")
_WITHOUT_PROGRAMS: Final = "not e2e and not chart and not verify and not nightly"


class Status(Enum):
    """What became of a mutant."""

    KILLED = "killed"
    SURVIVED = "survived"
    NOT_RUN = "run by no test"


class Outcome(NamedTuple):
    """What became of the mutant with this number, and the id of the test that killed it."""

    number: int
    status: Status
    killer: str = ""


def tried(mutations: Sequence[Mutation], switches: Switches, workers: int) -> Iterator[Outcome | str]:
    """Yield what becomes of each mutant, and lines of progress; the product must not be imported yet.

    A mutant that is reached by an import meets the tests of its package only, in a process of its own.
    """
    trials = _Trials(mutations, switches, workers)
    at_import: list[int] = []
    for result in in_parallel([trials.collect_and_try]):
        if isinstance(result, frozenset):
            at_import = sorted(result)
        else:
            yield result
    parts = [at_import[first::workers] for first in range(workers)]
    yield from in_parallel([partial(_try_imported, mutations, switches, part) for part in parts])


class _Trials:
    """Takes the place of pytest's loop over the tests that it collected."""

    def __init__(self, mutations: Sequence[Mutation], switches: Switches, workers: int) -> None:
        self._mutations = mutations
        self._switches = switches
        self._workers = workers

    def collect_and_try(self, send: Send) -> None:
        """Send outcomes and progress; first the numbers of the mutants that an import reaches."""
        self._send = send
        status = pytest.main([*_unit_tests(), *_OPTIONS], [self])
        if status:
            send(f"pytest: {status!r}")

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Take the place of pytest's loop over the tests."""
        self._items = session.items
        self._ids = [item.nodeid for item in session.items]
        self._tests = ForkedTests(session.items, self._switches)
        session.config.pluginmanager.register(self._tests)
        at_import = frozenset(self._switches.reached)
        self._send(at_import)
        gc.freeze()
        runs = self._without_mutants()
        by_mutant: dict[int, list[FinishedTest]] = defaultdict(list)
        for run in runs:
            for number in run.reached - at_import:
                by_mutant[number].append(run)
        for number in frozenset(range(len(self._mutations))) - by_mutant.keys() - at_import:
            self._send(Outcome(number, Status.NOT_RUN))
        survivors = self._each_alone(by_mutant)
        self._all_together([run.number for run in runs], survivors)
        return True

    def _in_parallel(self, values: Sequence[Any], function: Callable[[Sequence[Any], Send], None]) -> Iterator[Any]:
        parts = [values[first :: self._workers] for first in range(self._workers)]
        return in_parallel([partial(function, part) for part in parts])

    def _without_mutants(self) -> list[FinishedTest]:
        """Return each test that passes, with the mutants that it reaches."""

        def run_all(numbers: Sequence[int], send: Send) -> None:
            self._tests.run_here(numbers, frozenset(), send)

        runs: list[FinishedTest] = []
        for run in self._in_parallel(range(len(self._ids)), run_all):
            if run.failed:
                self._send(f"fails without a mutant: {self._ids[run.number]}")
            else:
                runs.append(run)
        for run in runs:
            limit = pytest.mark.timeout(LEAST_LIMIT_SECONDS + LIMIT_FACTOR * run.seconds)
            self._items[run.number].add_marker(limit, append=False)
        self._send(f"{len(runs)} tests in {sum(run.seconds for run in runs):.0f} s")
        return sorted(runs)

    def _each_alone(self, by_mutant: Mapping[int, Sequence[FinishedTest]]) -> list[int]:
        """Return the mutants that survive their nearest tests."""

        def try_each(numbers: Sequence[int], send: Send) -> None:
            for number in numbers:
                nearest = _nearest(by_mutant[number], Path(self._mutations[number].path), self._ids)
                last = self._tests.run(nearest, frozenset({number}), NEAREST_SECONDS + TEST_SECONDS)[-1]
                send(self._outcome(number, last))

        survivors = []
        for outcome in self._in_parallel(sorted(by_mutant), try_each):
            if outcome.status is Status.SURVIVED:
                survivors.append(outcome.number)
            else:
                self._send(outcome)
        self._send(f"{len(survivors)} survive the nearest tests")
        return sorted(survivors)

    def _outcome(self, number: int, last: FinishedTest) -> Outcome:
        if last.failed:
            return Outcome(number, Status.KILLED, self._ids[last.number])
        return Outcome(number, Status.SURVIVED)

    def _all_together(self, tests: Sequence[int], survivors: Sequence[int]) -> None:
        """Run these tests with all survivors at once, and send what becomes of each survivor."""

        def run_chunks(chunks: Sequence[Sequence[int]], send: Send) -> None:
            active = list(survivors)
            for chunk in chunks:
                left = chunk
                while left:
                    last = self._tests.run(left, frozenset(active), TEST_SECONDS * len(left))[-1]
                    left = left[left.index(last.number) :] if last.failed else []
                    if not last.failed:
                        break
                    killed = self._killed_by(last.number, active)
                    if killed is None:
                        send(f"fails only with several mutants: {self._ids[last.number]}")
                        left = left[1:]
                    else:
                        active.remove(killed)
                        send(self._outcome(killed, last))

        chunks = [tests[first : first + CHUNK] for first in range(0, len(tests), CHUNK)]
        killed: set[int] = set()
        for result in self._in_parallel(chunks, run_chunks):
            if isinstance(result, Outcome):
                killed.add(result.number)
            self._send(result)
        for number in survivors:
            if number not in killed:
                self._send(Outcome(number, Status.SURVIVED))

    def _killed_by(self, test: int, active: Sequence[int]) -> int | None:
        """Return one of these mutants that the test kills alone; None if it needs several of them."""
        suspects = active
        while len(suspects) > 1:
            half = len(suspects) // 2
            for part in (suspects[:half], suspects[half:]):
                if self._tests.run([test], frozenset(part), TEST_SECONDS)[-1].failed:
                    suspects = part
                    break
            else:
                return None
        return suspects[0] if self._tests.run([test], frozenset(suspects), TEST_SECONDS)[-1].failed else None


def _try_imported(mutations: Sequence[Mutation], switches: Switches, numbers: Sequence[int], send: Send) -> None:
    """Send what the tests of its package make of each mutant that an import reaches."""
    for number in numbers:
        tests = f"tests/{Path(mutations[number].path).parts[2]}"
        switches.active = frozenset({number})
        child = Child(partial(_run_until_failure, tests))
        killer = "died"
        with suppress(EOFError):
            killer = child.results.recv() if child.results.poll(IMPORT_SECONDS) else "no end"
        child.end()
        send(Outcome(number, Status.KILLED if killer else Status.SURVIVED, killer))


def _run_until_failure(tests: str, send: Send) -> None:
    """Send the id of the first test that fails, pytest's exit status if it is not a test that fails, nothing if all pass."""
    failures: list[str] = []

    class Failures:
        @staticmethod
        def pytest_runtest_logreport(report: pytest.TestReport) -> None:
            if report.failed:
                failures.append(report.nodeid)

    status = pytest.main([tests, "-x", "-m", _WITHOUT_PROGRAMS, *_OPTIONS], [Failures])
    send(failures[0] if failures else "" if status == pytest.ExitCode.OK else str(status))


def _unit_tests() -> list[str]:
    """Return pytest's arguments of `make unit`, without those for its workers and its report."""
    command = ("make", "--silent", "--dry-run", "--assume-old=.venv/.ready", "unit", "PYTEST=PYTEST")
    shown = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    arguments = shlex.split(shown.partition("PYTEST ")[2])
    return arguments[: arguments.index("-n")]


def _nearest(runs: Iterable[FinishedTest], path: Path, ids: Sequence[str]) -> list[int]:
    """Return the tests in the folder of the module's package, then the quickest, within `NEAREST_SECONDS`."""
    module = path.relative_to("app/dra_extender")
    ordered = sorted(runs, key=lambda run: (-_common_parts(ids[run.number], module), run.seconds, run.number))
    ends = accumulate(run.seconds for run in ordered)
    return [run.number for run, end in zip(ordered, ends, strict=True) if end <= NEAREST_SECONDS] or [ordered[0].number]


def _common_parts(test: str, module: Path) -> int:
    """Return how many folders of the test are those of the module; one more if its file has the module's name."""
    file = Path(test.partition("::")[0]).relative_to("tests")
    common = sum(
        1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(file.parent.parts, module.parent.parts, strict=False))
    )
    return common + (module.stem in file.stem)
