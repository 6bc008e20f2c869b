"""Every process collects the same tests: workers of pytest-xdist that collect different ones run none."""

import itertools
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.verify

REPOSITORY = Path(__file__).parents[1]
LONGEST_ID = 250


@pytest.fixture(scope="module")
def collected(tmp_path_factory: pytest.TempPathFactory) -> list[list[str]]:
    """Return the ids of all tests as two processes collect them, which differ in hash seed, clock and temporary folder."""
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", "pytest", "-p", shift, "tests", "--collect-only", "-q", "-p", "no:cacheprovider"],
            cwd=REPOSITORY,
            env={
                **{name: value for name, value in os.environ.items() if not name.startswith(("COV_", "PYTEST_"))},
                "PYTHONHASHSEED": seed,
                "TMPDIR": str(tmp_path_factory.mktemp("other")),
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for seed, shift in [("1", "no:cacheprovider"), ("2", "tests.support.shifted_clock")]
    ]
    outputs = [process.communicate()[0] for process in processes]
    assert [process.returncode for process in processes] == [0, 0], "\n".join(outputs)[-4000:]
    return [[line for line in output.splitlines() if "::" in line] for output in outputs]


def test_processes_with_other_hash_seeds_and_clocks_collect_the_same_tests_in_the_same_order(
    collected: list[list[str]],
) -> None:
    first, second = collected
    assert first, "no test was collected"
    assert [pair for pair in itertools.zip_longest(first, second) if pair[0] != pair[1]] == []


def test_ids_are_short_and_printable(collected: list[list[str]]) -> None:
    assert [test for test in collected[0] if len(test) > LONGEST_ID or not test.isprintable()] == []
