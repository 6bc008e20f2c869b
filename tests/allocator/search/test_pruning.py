"""A search with many dead ends analyses the whole node and skips what cannot succeed, without changing any answer."""

from itertools import chain, repeat
from typing import Any
from unittest.mock import patch

import pytest
from dra_extender.allocator.rules.counter_sets import CounterTable
from dra_extender.allocator.search.feasibility import Bounds
from dra_extender.allocator.search.pruning import locations
from dra_extender.allocator.state.reasons import Code
from dra_extender.model.allocation import Placement
from dra_extender.model.device import CounterConsumption
from hypothesis import given
from hypothesis import strategies as st

from tests.support.allocator.building import (
    NODE,
    Held,
    allocate,
    ask,
    claim_of,
    consuming,
    counters_of,
    demand_of,
    every,
    exactly,
    picks,
    pools_of,
    reasons,
    slice_of,
    typed,
)
from tests.support.allocator.generated import claims, nodes, usages
from tests.support.examples import examples

POLL = "dra_extender.allocator.search.search._POLL"
POLL_DEVICES = "dra_extender.allocator.rules.node_view._POLL_DEVICES"
THRESHOLD = "dra_extender.allocator.search.search._DEAD_ENDS_BEFORE_PRUNING"
FEW = 1000


@examples(200)
@given(slices=nodes, wanted=st.lists(claims, min_size=1, max_size=3), usage=usages)
def test_pruning_never_changes_an_answer(slices: list[Any], wanted: list[Any], usage: list[Any]) -> None:
    """Unless the search without it ends at its limit of steps, and has no answer."""
    demand, pools = demand_of(*wanted), pools_of(slices)
    with patch(THRESHOLD, 10**9):
        plain = allocate(demand, NODE, pools, Held(*usage))
    with patch(THRESHOLD, 1):
        pruned = allocate(demand, NODE, pools, Held(*usage))
    if isinstance(plain, Placement):
        assert isinstance(pruned, Placement)
        assert pruned.claims == plain.claims
    elif not plain.at_step_limit:
        assert reasons(pruned).verdict == plain.verdict
    assert pruned.steps <= plain.steps


def test_time_that_is_up_at_any_moment_is_never_taken_for_devices_that_lack() -> None:
    """The first device goes with no other one, so that the search looks at the whole node before it finds the pair."""
    demand = demand_of(claim_of(exactly(2), constraints=[{"matchAttribute": "gpu.example.com/k"}]))
    answers, moments = list[str](), 40
    for moment in range(moments):
        up = chain(repeat(False, moment), repeat(True))
        with patch(THRESHOLD, 1), patch(POLL, 0), patch(POLL_DEVICES, 1):
            found = allocate(demand, NODE, pools_of(_numbered(0, 1, 1)), Held(), deadline=up.__next__)
        answers.append("found" if isinstance(found, Placement) else found.rejections[0].code)
    ended = answers.index("found")
    assert 0 < ended < moments
    assert answers == [Code.SEARCH_LIMIT] * ended + ["found"] * (moments - ended)


def test_one_more_than_there_are_ends_soon() -> None:
    slices = [slice_of(*(f"d{index:02}" for index in range(30)))]
    found = reasons(ask(slices, claim_of(exactly(31))))
    assert found.verdict == "no"
    assert found.steps < FEW


def test_several_claims_that_want_more_than_there_are_end_soon() -> None:
    slices = [slice_of(*(f"d{index:02}" for index in range(16)))]
    found = reasons(ask(slices, *(claim_of(exactly(6)) for _ in range(3))))
    assert (found.verdict, found.steps < FEW) == ("no", True)


def test_more_partitions_than_the_counters_allow_end_soon() -> None:
    slices = [counters_of(set=20), slice_of(*(consuming(f"d{index:02}") for index in range(40)), count=2)]
    assert len(picks(ask(slices, claim_of(exactly(20))))[0]) == 20
    found = reasons(ask(slices, claim_of(exactly(21))))
    assert (found.verdict, found.steps < FEW) == ("no", True)


def test_more_of_one_group_than_there_are_end_soon() -> None:
    """Ten and ten do not go together, so eleven cannot be had."""
    mixed = [consuming(f"d{index:02}", "mig" if index % 2 else "vgpu") for index in range(20)]
    slices = [counters_of(set=99), slice_of(*mixed, count=2)]
    assert len(picks(ask(slices, claim_of(exactly(10))))[0]) == 10
    found = reasons(ask(slices, claim_of(exactly(11))))
    assert (found.verdict, found.steps < FEW) == ("no", True)


def test_many_equal_requests_before_an_impossible_one_end_soon() -> None:
    """Ten devices for ten places, but the last request wants four of one value and there are three; no bound sees that."""
    devices = [{"name": f"d{index}", "attributes": {"k": {"int": index // 3}}} for index in range(10)]
    slices = [slice_of(*devices)]
    plain = [exactly(name=f"r{index}") for index in range(6)]
    last = [exactly(4, name="m")]
    constraints = [{"matchAttribute": "gpu.example.com/k", "requests": ["m"]}]
    found = ask(slices, claim_of(*plain, *last, constraints=constraints))
    assert reasons(found).verdict == "no"
    assert found.steps < FEW


def _numbered(*values: int) -> list[Any]:
    return [slice_of(*({"name": f"d{i:02}", "attributes": {"k": {"int": value}}} for i, value in enumerate(values)))]


def test_a_claim_that_cannot_be_met_behind_many_that_can_ends_soon() -> None:
    """Two devices of one value, but all values differ: no other claim needs to be looked at."""
    last = claim_of(exactly(2), constraints=[{"matchAttribute": "gpu.example.com/k"}])
    found = ask(_numbered(*range(14)), *(claim_of(exactly(2)) for _ in range(3)), last)
    assert (reasons(found).verdict, found.steps < FEW) == ("no", True)


def test_a_claim_that_others_leave_too_little_for_ends_soon() -> None:
    """The last claim minds but three of the devices, so what the others have of the rest makes no difference to it."""
    slices = _numbered(*range(10), 20, 20, 20)
    first = claim_of(exactly(2, expression="device.attributes['gpu.example.com'].k == 20"))
    others = [claim_of(exactly(3, expression="device.attributes['gpu.example.com'].k < 20")) for _ in range(2)]
    last = claim_of(exactly(2), constraints=[{"matchAttribute": "gpu.example.com/k"}])
    found = ask(slices, first, *others, last)
    assert (reasons(found).verdict, found.steps < FEW) == ("no", True)


def test_states_that_failed_are_known_again_although_the_search_may_end_with_an_error() -> None:
    """Six of eight devices leave too few for every third one; a constraint on mode All forbids other ways of skipping."""
    all_of = claim_of(
        every(expression="device.attributes['gpu.example.com'].k >= 5"),
        constraints=[{"distinctAttribute": "gpu.example.com/k"}],
    )
    found = ask(_numbered(*range(8)), claim_of(*(exactly(name=f"r{index}") for index in range(6))), all_of)
    assert reasons(found).verdict == "no"
    assert found.steps < 3 * FEW


def test_admin_access_before_a_claim_that_cannot_be_met_ends_soon() -> None:
    admin = [exactly(1, name=f"r{index}", adminAccess=True) for index in range(4)]
    last = claim_of(exactly(4), constraints=[{"matchAttribute": "gpu.example.com/k"}])
    found = ask(_numbered(*(index // 3 for index in range(12))), claim_of(*admin), last)
    assert (reasons(found).verdict, found.steps < FEW) == ("no", True)


def test_a_group_that_is_large_enough_behind_others_that_are_not_is_found_soon() -> None:
    """matchAttribute over sets: what the picks have in common tells how many devices can still join them."""
    sizes = (24, 24, 25)
    roots = [root for root, size in enumerate(sizes) for _ in range(size)]
    devices = [{"name": f"d{i:02}", "attributes": {"k": {"ints": [root, 100 + i]}}} for i, root in enumerate(roots)]
    claim = claim_of(exactly(25), constraints=[{"matchAttribute": "gpu.example.com/k"}])
    found = ask([slice_of(*devices)], claim)
    assert picks(found)[0] == [f"d{i:02}" for i in range(48, 73)]
    assert found.steps < FEW


def test_failing_selector_behind_an_infeasible_request_stays_fatal() -> None:
    """Upstream gets to the failing device while it tries combinations, so the answer is an error."""
    slices = [slice_of(*(typed(f"d{index:02}", "x") for index in range(12)), "bad")]
    expression = "device.attributes['gpu.example.com'].type == 'x'"
    found = reasons(ask(slices, claim_of(exactly(13, expression=expression))))
    assert (found.verdict, found.rejections[0].code) == ("fatal", Code.SELECTOR_FAILED)


@pytest.mark.parametrize(
    ("needs", "infeasible"),
    [
        ([(2, 0b11), (1, 0b100)], False),
        ([(2, 0b11), (1, 0b001)], True),
        ([(1, 0b01), (1, 0b10), (1, 0b11)], True),
        ([(1, 0b011), (1, 0b110), (1, 0b101)], False),
        ([(0, 0), (0, 0)], False),
        ([], False),
    ],
)
def test_requests_confined_to_too_few_devices_are_infeasible(needs: list[tuple[int, int]], infeasible: bool) -> None:
    class Free(Bounds):
        def __init__(self) -> None:
            """Know no node."""

        def upper_bound(self, mask: int, *, admin: bool = False) -> int:
            return mask.bit_count()

    assert Free().are_exceeded_by(needs) is infeasible


@given(st.integers(0, 2**70))
def test_locations_of_a_mask(mask: int) -> None:
    assert sum(1 << location for location in locations(mask)) == mask


@given(total=st.integers(-2, 8), amounts=st.lists(st.integers(-1, 4), min_size=1, max_size=5))
def test_bound_of_counters_is_never_too_low(total: int, amounts: list[int]) -> None:
    entries = [CounterConsumption(counter_set="set", counters=(("c", amount),)) for amount in amounts]
    best = max(
        (chosen.bit_count() for chosen in range(1, 1 << len(amounts)) if _sum(amounts, chosen) <= total), default=0
    )
    assert CounterTable({"set": {"c": total}}, []).most_that_fit(entries) == best


def _sum(amounts: list[int], chosen: int) -> int:
    return sum(amounts[location] for location in locations(chosen))
