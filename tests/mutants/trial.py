"""One mutant: the tests that run the changed line, against the changed module, in a process of their own."""

import os
import re
import subprocess
import sys
from enum import Enum
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import spec_from_file_location
from types import ModuleType
from typing import Final, NamedTuple

from tests.mutants.mutations import ROOT, Mutation
from tests.mutants.who_runs import LineMap

MOST_SECONDS: Final = 20.0
"""A mutant meets the nearest of the tests that run its line, which together take at most so long by the map."""
SECONDS: Final = 900.0
"""A single test that hangs fails long before, by `TEST_SECONDS`."""
TEST_SECONDS: Final = 120
_PASSED, _UNKNOWN_TEST, _NO_TESTS = 0, 4, 5
_FAILED: Final = re.compile(r"^(?:FAILED|ERROR) (.*?)(?: - .*)?$", re.MULTILINE)


class Status(Enum):
    """What became of a mutant."""

    KILLED = "killed"
    SURVIVED = "survived"
    TIMED_OUT = "timed out"
    NOT_RUN = "run by no test"


class Outcome(NamedTuple):
    """What became of a mutant, and the id of the test that killed it."""

    status: Status
    killer: str = ""


class Trials:
    """Tries mutants on the tests that run their lines."""

    def __init__(self, lines: LineMap) -> None:
        self._lines = lines

    def try_mutation(self, mutation: Mutation, killer: str = "") -> Outcome:
        """Return what becomes of the mutant; `killer` is the test to try first, for example the killer of an earlier trial."""
        if killer and (outcome := _run_tests(mutation, [killer])).status is Status.KILLED:
            return outcome
        tests = self._lines.nearest_tests(mutation.path, mutation.line, MOST_SECONDS)
        return _run_tests(mutation, tests) if tests else Outcome(Status.NOT_RUN)


def _run_tests(mutation: Mutation, tests: list[str]) -> Outcome:
    try:
        done = subprocess.run(
            (sys.executable, "-m", "tests.mutants.trial", mutation.path),
            cwd=ROOT,
            env={**os.environ, "HYPOTHESIS_DATABASE_FILE": os.devnull},
            input=b"\0".join((mutation.source(), *(test.encode() for test in tests))),
            capture_output=True,
            timeout=SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return Outcome(Status.TIMED_OUT)
    if done.returncode in {_PASSED, _UNKNOWN_TEST, _NO_TESTS}:
        return Outcome(Status.SURVIVED)
    failed = _FAILED.search(done.stdout.decode(errors="replace"))
    return Outcome(Status.KILLED, failed.group(1) if failed else "")


class _MutantFinder(MetaPathFinder):
    """Finds one module with another source."""

    def __init__(self, name: str, path: str, source: bytes) -> None:
        self._name = name
        self._loader = _MutantLoader(name, path, source)

    def find_spec(self, fullname: str, path: object = None, target: ModuleType | None = None) -> ModuleSpec | None:
        """Return the spec of the changed module; None for any other."""
        if fullname != self._name:
            return None
        return spec_from_file_location(fullname, self._loader.path, loader=self._loader)


class _MutantLoader(SourceFileLoader):
    def __init__(self, name: str, path: str, source: bytes) -> None:
        super().__init__(name, path)
        self._source = source

    def get_data(self, path: str) -> bytes:
        return self._source if path == self.path else super().get_data(path)

    def path_stats(self, path: str) -> dict[str, float]:
        """Refuse to say when the file was written, so that no compiled module is read or kept."""
        raise OSError(path)


def main() -> int:
    """Read source and tests from standard input, and return pytest's exit status."""
    path = ROOT / sys.argv[1]
    source, *tests = sys.stdin.buffer.read().split(b"\0")
    module = ".".join(path.relative_to(ROOT / "app").with_suffix("").parts).removesuffix(".__init__")
    sys.meta_path.insert(0, _MutantFinder(module, str(path), source))
    sys.path[:0] = [str(ROOT / "app")]
    import pytest  # noqa: PLC0415 - it must not be imported before the finder is there

    options = ("-x", "-q", "-p", "no:cacheprovider", f"--timeout={TEST_SECONDS}")
    return int(pytest.main([*options, *(test.decode() for test in tests)]))


if __name__ == "__main__":
    sys.exit(main())
