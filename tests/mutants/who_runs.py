"""Which tests run a line of the product."""

import os
import subprocess
import sys
from functools import cache
from pathlib import Path

from coverage import CoverageData

from tests.mutants.mutations import ROOT


def make_map(path: Path, workers: int) -> int:
    """Run the tests of `make unit` and write which lines each test runs; return make's exit status."""
    pytest = f"PYTEST={sys.executable} -m pytest --cov --cov-context=test --cov-report="
    environment = {**os.environ, "COVERAGE_FILE": str(path)}
    command = ("make", "--no-print-directory", "unit", pytest, f"WORKERS={workers}")
    return subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode


class LineMap:
    """Reads what `make_map` wrote."""

    def __init__(self, path: Path) -> None:
        data = CoverageData(str(path))
        data.read()
        self._data = data

    @cache  # noqa: B019 - one map lives as long as the program
    def _tests_by_line(self, path: str) -> dict[int, frozenset[str]]:
        contexts = self._data.contexts_by_lineno(str(ROOT / path))
        return {line: frozenset(name.partition("|")[0] for name in names if name) for line, names in contexts.items()}

    def tests(self, path: str, line: int) -> frozenset[str]:
        """Return the ids of the tests that run this line of the file; if only its import does, those that run the file at all."""
        by_line = self._tests_by_line(path)
        found = by_line.get(line, frozenset())
        return found or frozenset().union(*by_line.values()) if line in by_line else frozenset()
