"""Seeds in which nothing may be wrong, and a few planted faults that must be found; `make nightly` runs more of both."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.simulation import planted_document
from tests.simulation.__main__ import described
from tests.simulation.course import run, shrink
from tests.simulation.planted import PLANTED

SEEDS = 200
_PART = 5
QUICK = (
    "the Binding comes before the claims",
    "the allocation is written without its reservation",
    "a lease is taken before it has run out",
    "the leader is not published",
)


@pytest.mark.parametrize("first", range(0, SEEDS, _PART))
def test_nothing_is_wrong_in_any_world(first: int) -> None:
    for seed in range(first, first + _PART):
        result = run(seed)
        assert not result.wrong, "\n".join(described(result))


@pytest.mark.parametrize("name", QUICK)
def test_planted_faults_that_show_at_once_are_found(name: str) -> None:
    assert any(run(seed, planted=PLANTED[name]).wrong for seed in range(10))


def test_the_document_has_each_planted_fault() -> None:
    assert list(planted_document.rows()) == list(PLANTED)


def test_a_planted_fault_is_found_and_its_seed_shrinks() -> None:
    """The output names the step, the object and the writer."""
    planted = PLANTED["the finalizer is not written"]
    result = next(each for each in (run(seed, planted=planted) for seed in range(20)) if each.wrong)
    smaller, without = shrink(result, planted=planted)
    assert len(smaller.actions) < len(result.actions)
    assert "step " in smaller.wrong[0]
    assert "allocation without finalizer" in smaller.wrong[0]
    assert "after a write of ResourceClaim default/" in smaller.wrong[0]
    assert "by replica-" in smaller.wrong[0]
    assert run(result.seed, without=without, planted=planted).wrong == smaller.wrong
    assert not run(result.seed, without=without).wrong


ROOT = Path(__file__).parents[2]
SEED = 7


def test_a_seed_replays_exactly_and_another_does_not() -> None:
    assert run(SEED).digest == run(SEED).digest != run(SEED + 1).digest


def test_a_seed_replays_exactly_in_another_process_with_another_order_of_sets() -> None:
    hash_seed = "2" if os.environ.get("PYTHONHASHSEED") == "1" else "1"
    shown = subprocess.run(
        [sys.executable, "-m", "tests.simulation", "--seed", str(SEED)],
        cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": f"{ROOT / 'app'}{os.pathsep}{ROOT}"},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    found = re.search(r"digest (\w+)", shown)
    assert found is not None
    assert found.group(1) == run(SEED).digest
