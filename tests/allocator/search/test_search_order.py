"""The search visits what upstream's recursion visits, in the same order, and counts the same steps."""

import sys
from typing import Any

import pytest
from dra_extender.allocator.allocate import allocate
from dra_extender.allocator.state.reasons import Code
from dra_extender.model.allocation import Placement
from hypothesis import given
from hypothesis import strategies as st

from tests.support.allocator.building import (
    NODE,
    Held,
    ask,
    claim_of,
    counters_of,
    demand_of,
    either,
    every,
    exactly,
    picks,
    pools_of,
    reasons,
    slice_of,
)
from tests.support.allocator.reference_search import Demanded, Option, Reference, Request
from tests.support.examples import examples


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

LOCATIONS = 5
counts = st.one_of(st.integers(0, 3), st.just(20), st.just("all"))
options: st.SearchStrategy[Option] = st.tuples(counts, st.frozensets(st.integers(0, LOCATIONS - 1)))
requests: st.SearchStrategy[Request] = st.lists(options, min_size=1, max_size=3)
demands: st.SearchStrategy[Demanded] = st.lists(st.lists(requests, min_size=1, max_size=2), max_size=2)


def _request(name: str, request: Request) -> dict[str, Any]:
    bodies = []
    for count, matching in request:
        expression = f"device.attributes['gpu.example.com'].at in {sorted(matching)}"
        body = every(expression=expression) if count == "all" else exactly(int(count), expression=expression)
        bodies.append(body)
    if len(bodies) > 1:
        return either(*bodies, name=name)
    return {**bodies[0], "name": name}


@examples(150)
@given(
    demanded=demands,
    costs=st.lists(st.integers(0, 2), min_size=LOCATIONS, max_size=LOCATIONS),
    budget=st.integers(0, 6),
)
def test_same_picks_and_same_steps_as_the_recursive_reference(
    demanded: Demanded, costs: list[int], budget: int
) -> None:
    reference = Reference(demanded, costs, budget)
    found_there = reference.run()
    slices = [
        counters_of(set=budget),
        slice_of(
            *(
                {
                    "name": f"d{at}",
                    "attributes": {"at": {"int": at}},
                    "consumesCounters": [{"counterSet": "set", "counters": {"c": {"value": str(cost)}}}],
                }
                for at, cost in enumerate(costs)
            ),
            count=2,
        ),
    ]
    claims = [
        claim_of(*(_request(f"r{index}", each) for index, each in enumerate(claim)), name=f"claim-{number}")
        for number, claim in enumerate(demanded)
    ]
    demand = demand_or_none(claims)
    if demand is None:  # more than 32 devices for sure: refused before any search
        return
    found = allocate(demand, NODE, pools_of(slices), Held())
    assert isinstance(found, Placement) is found_there
    if found.steps <= UNPRUNED:
        assert found.steps == reference.steps
    if isinstance(found, Placement):
        expected = [[f"d{pick[3]}" for pick in reference.picks if pick[0] == claim] for claim in range(len(demanded))]
        assert picks(found) == expected


UNPRUNED = 64


def demand_or_none(claims: list[Any]) -> Any:
    too_many = any(
        sum(
            min(body.count for body in (request.first_available or (request.exactly,)) if body.count is not None)
            for request in claim.spec.devices.requests or ()
        )
        > 32
        for claim in claims
    )
    return None if too_many else demand_of(*claims)
