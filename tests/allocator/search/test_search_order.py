"""What the search tries, in which order, and how many steps it counts."""

import sys
from typing import Any

import pytest
from dra_extender.allocator.state.reasons import Code
from hypothesis import strategies as st

from tests.support.allocator.building import (
    NODE,
    Held,
    allocate,
    ask,
    claim_of,
    demand_of,
    either,
    every,
    exactly,
    picks,
    pools_of,
    reasons,
    slice_of,
)


def numbered(count: int, prefix: str = "d") -> list[str]:
    return [f"{prefix}{index:02}" for index in range(count)]


@pytest.mark.parametrize(
    "slices",
    [
        pytest.param([slice_of(*numbered(4))], id="one slice"),
        pytest.param([slice_of("a", "b", name="s1", count=2), slice_of("c", "d", name="s2", count=2)], id="two slices"),
        pytest.param([slice_of("a", "b", pool="p1"), slice_of("c", "d", pool="p2")], id="two pools"),
        pytest.param([slice_of("a", pool=name) for name in ("p1", "p2", "p3", "p4")], id="four pools"),
    ],
)
def test_one_more_than_there_are_tries_combinations_not_permutations(slices: list[Any]) -> None:
    assert reasons(ask(slices, claim_of(exactly(5)))).steps == 16


def test_alternatives_that_are_too_large_are_cut_at_once() -> None:
    slices = [slice_of(*numbered(64))]
    found = ask(slices, claim_of(*(either(exactly(32), exactly(16), name=name) for name in ("r1", "r2"))))
    assert [len(claim) for claim in picks(found)] == [32]
    assert found.steps == 75


def test_mode_all_that_leaves_no_room_gives_way_to_the_next_alternative() -> None:
    slices = [slice_of(*numbered(31), pool="p1"), slice_of("b1", "b2", pool="p2", driver="other.example.com")]
    mine, other = "device.driver == 'gpu.example.com'", "device.driver == 'other.example.com'"
    first = either(every(expression=mine), exactly(2, expression=mine), name="r1")
    found = ask(slices, claim_of(first, exactly(2, name="r2", expression=other)))
    assert picks(found) == [["d00", "d01", "b1", "b2"]]
    assert found.steps == 42


def test_too_many_devices_skip_the_device_loops_of_earlier_requests() -> None:
    """20 and 20 are too many; no other 20 of the 24 devices are tried before the next alternative, which matches nothing."""
    first = either(exactly(20), exactly(1, expression="false"), name="r1")
    found = reasons(ask([slice_of(*numbered(24))], claim_of(first, exactly(20, name="r2"))))
    assert (found.verdict, found.rejections[0].code) == ("no", Code.TOO_MANY_DEVICES)
    assert found.steps == 24


def test_demands_deeper_than_the_interpreter_can_recurse_are_searched() -> None:
    slices = [slice_of(*numbered(32, prefix=f"p{pool}-"), pool=f"p{pool:02}") for pool in range(40)]
    found = ask(slices, *(claim_of(exactly(32), name=f"claim-{index}") for index in range(40)))
    assert sum(map(len, picks(found))) == 1280 > sys.getrecursionlimit()


def test_search_that_hits_its_step_limit_never_says_does_not_fit() -> None:
    demand, pools = demand_of(claim_of(exactly(5))), pools_of([slice_of(*numbered(4))])
    found = reasons(allocate(demand, NODE, pools, Held(), max_steps=15))
    assert (found.verdict, found.rejections[0].code) == ("fatal", Code.SEARCH_LIMIT)
    assert reasons(allocate(demand, NODE, pools, Held(), max_steps=16)).verdict == "no"


@pytest.mark.parametrize("wanted", [exactly(), exactly(2), every(), exactly(9)])
def test_deadline_that_has_passed_before_ends_a_search_of_any_length(wanted: dict[str, Any]) -> None:
    slices, demand = [slice_of(*numbered(2))], demand_of(claim_of(wanted))
    asked = iter([True])
    found = reasons(allocate(demand, NODE, pools_of(slices), Held(), deadline=lambda: next(asked)))
    assert [each.code for each in found.rejections] == [Code.SEARCH_LIMIT]
    assert found.steps == 1


def test_deadline_that_has_passed_ends_a_search_without_claims_and_one_without_devices() -> None:
    for slices, claims in (([slice_of("a")], ()), ([], (claim_of(exactly()),))):
        found = reasons(ask(slices, *claims, deadline=lambda: True))
        assert [each.code for each in found.rejections] == [Code.SEARCH_LIMIT]


# ---- against the recursive reference

counts = st.one_of(st.integers(0, 3), st.just(20), st.just("all"))
