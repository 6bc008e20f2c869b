"""Which tests run a line of the product, and how long each takes."""

import os
import shutil
import subprocess
import sys
from functools import cache
from itertools import accumulate, takewhile
from pathlib import Path
from xml.etree import ElementTree as ET

from coverage import CoverageData

from tests.mutants.mutations import ROOT


def make_map(path: Path, workers: int) -> int:
    """Run the tests of `make unit`, write which lines each test runs, and return make's exit status.

    Pytest's report with the duration of each test is copied beside the map.
    """
    pytest = f"PYTEST={sys.executable} -m pytest --cov --cov-context=test --cov-report="
    environment = {**os.environ, "COVERAGE_FILE": str(path)}
    command = ("make", "--no-print-directory", "unit", pytest, f"WORKERS={workers}")
    status = subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode
    shutil.copy(ROOT / ".test-reports" / "unit.xml", path.with_suffix(".xml"))
    return status


class LineMap:
    """Reads what `make_map` wrote."""

    def __init__(self, path: Path) -> None:
        data = CoverageData(str(path))
        data.read()
        self._data = data
        report = ET.parse(path.with_suffix(".xml"))  # noqa: S314 - `make_map` copied what pytest wrote
        self._seconds = {
            (case.get("classname", ""), case.get("name", "")): float(case.get("time", "0"))
            for case in report.iter("testcase")
        }

    @cache  # noqa: B019 - one map lives as long as the program
    def _tests_by_line(self, path: str) -> dict[int, frozenset[str]]:
        contexts = self._data.contexts_by_lineno(str(ROOT / path))
        return {line: frozenset(name.partition("|")[0] for name in names if name) for line, names in contexts.items()}

    def nearest_tests(self, path: str, line: int, seconds: float) -> list[str]:
        """Return the ids of tests that run this line of the file, or the file if only its import runs the line.

        Tests in the folder of the module's package come first, then the quickest.  Together they take at most this many seconds; a
        slower test comes alone.
        """
        by_line = self._tests_by_line(path)
        tests = by_line.get(line, frozenset()) or frozenset().union(*by_line.values()) if line in by_line else ()
        module = Path(path).relative_to("app/dra_extender")
        in_order = sorted(tests, key=lambda test: (-_common_parts(test, module), self._duration(test), test))
        ends = accumulate(map(self._duration, in_order))
        return [test for test, end in zip(in_order, ends, strict=True) if end <= seconds] or in_order[:1]

    def _duration(self, test: str) -> float:
        """Return the seconds that the test with this id took when the map was made."""
        module, _, name = test.removesuffix("]").partition("::")
        scopes, bracket, parameters = name.partition("[")
        *classes, function = scopes.split("::")
        class_name = ".".join((module.removesuffix(".py").replace("/", "."), *classes))
        return self._seconds[class_name, f"{function}{bracket}{parameters}{']' if bracket else ''}"]


def _common_parts(test: str, module: Path) -> int:
    """Return how many folders of the test are those of the module; one more if its file has the module's name."""
    file = Path(test.partition("::")[0]).relative_to("tests")
    common = sum(
        1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(file.parent.parts, module.parent.parts, strict=False))
    )
    return common + (module.stem in file.stem)
