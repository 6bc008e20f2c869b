"""Seeds in which nothing may be wrong, and a few planted faults that must be found; `make nightly` runs more of both."""

import pytest

from tests.simulation import planted_document
from tests.simulation.__main__ import described
from tests.simulation.course import run, shrink
from tests.simulation.planted import PLANTED

SEEDS = 200
_PART = 10
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
