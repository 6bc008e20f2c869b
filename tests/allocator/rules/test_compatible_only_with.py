"""`compatibleOnlyWith`: neighbours on one counter set or physical device must agree in both directions, whoever came first."""

import dataclasses
from itertools import combinations
from typing import Any

import pytest
from dra_extender.allocator.overlay.policy import PolicyOverlay, PolicyRule
from dra_extender.allocator.rules.node_view import NodeView
from dra_extender.allocator.search_state import SearchState
from dra_extender.allocator.state.features import Features
from dra_extender.allocator.state.reasons import Code
from dra_extender.cel.program import compile_expression
from dra_extender.model.allocation import Placement
from dra_extender.model.device import CounterConsumption
from dra_extender.model.resource_slice import ResourceSlice
from hypothesis import given
from hypothesis import strategies as st

from tests.support.allocator.building import (
    NODE,
    Held,
    Json,
    ask,
    claim_of,
    consuming,
    counters_of,
    demand_of,
    every,
    exactly,
    held,
    picks,
    pools_of,
    reasons,
    slice_of,
)
from tests.support.examples import examples

MODE = 'device.attributes["gpu.example.com"].mode'
SET = (CounterConsumption(counter_set="set"),)


def among(*modes: str) -> str:
    return f"{MODE} in [{', '.join(repr(mode) for mode in modes)}]"


def part(name: str, mode: str | None, only: str | None = None, counter_set: str = "set") -> Json:
    """A partition in a mode, with its expression."""
    more: Json = {"attributes": {"mode": {"string": mode}}} if mode is not None else {}
    if only is not None:
        more["compatibleOnlyWith"] = {"expression": only}
    return consuming(name, counter_set=counter_set, amount=1, **more)


def pool(*devices: Json) -> list[ResourceSlice]:
    return [counters_of(set=100, other=100), slice_of(*devices, count=2)]


def wanting(mode: str, count: int = 1, name: str = "r") -> Json:
    return exactly(count, name, f'has({MODE}) && {MODE} == "{mode}"')


FOUR_MODES = {
    "None": among(),
    "GPUFractioning": among("GPUFractioning", "MPSSharing"),
    "MPSSharing": among("GPUFractioning", "MPSSharing"),
    "MIGSlicing": among("MIGSlicing"),
}
FOUR = [part(f"{mode.lower()}-{index}", mode, only) for mode, only in FOUR_MODES.items() for index in range(2)]


def four_modes() -> list[ResourceSlice]:
    raised = [
        {**each, "compatibleOnlyWith": {"expression": "false"}} if "none" in each["name"] else each for each in FOUR
    ]
    return pool(*raised)


@pytest.mark.parametrize("first", FOUR_MODES)
@pytest.mark.parametrize("second", FOUR_MODES)
@pytest.mark.parametrize("allocated", [True, False], ids=["allocated", "same pod"])
def test_the_four_modes_of_the_proposal(first: str, second: str, *, allocated: bool) -> None:
    """Exclusive with nothing, fractions with MPS, MIG with MIG; whether the first is allocated already or for the same pod."""
    if allocated:
        found = ask(four_modes(), claim_of(wanting(second)), usage=[held(f"{first.lower()}-0")])
    else:
        found = ask(four_modes(), claim_of(wanting(first, name="a"), wanting(second, name="b")))
    sharing = {"GPUFractioning", "MPSSharing"}
    are_compatible = {first, second} <= sharing or first == second == "MIGSlicing"
    if are_compatible:
        assert picks(found)[0]
    else:
        assert reasons(found).rejections[0].code is Code.NEIGHBOURS


@pytest.mark.parametrize("speaks", ["allocated", "candidate"])
def test_one_side_that_speaks_is_enough(speaks: str) -> None:
    mig, vgpu = among("mig"), None
    one = part("one", "mig", mig if speaks == "allocated" else vgpu)
    two = part("two", "vgpu", among("vgpu") if speaks == "candidate" else None)
    found = reasons(ask(pool(one, two), claim_of(wanting("vgpu")), usage=[held("one")]))
    (rejection,) = [each for each in found.rejections if each.code is Code.NEIGHBOURS]
    owner, other = ("one (in use)", "two") if speaks == "allocated" else ("two", "one (in use)")
    expression = mig if speaks == "allocated" else among("vgpu")
    assert rejection.detail == f"{owner} is compatible only with {expression!r}, which is false for {other}"


def test_devices_on_another_counter_set_are_no_neighbours() -> None:
    slices = pool(part("one", "mig", among("mig")), part("two", "vgpu", among("vgpu"), counter_set="other"))
    assert picks(ask(slices, claim_of(wanting("vgpu")), usage=[held("one")])) == [["two"]]


def test_devices_of_another_pool_are_no_neighbours() -> None:
    slices = [*pool(part("one", "mig", among("mig"))), counters_of(name="c2", pool="p2", set=9)]
    slices.append(slice_of(part("two", "vgpu", among("vgpu")), name="s2", pool="p2", count=2))
    assert picks(ask(slices, claim_of(wanting("vgpu")), usage=[held("one")])) == [["two"]]


def test_devices_without_counters_have_neighbours_by_their_physical_device() -> None:
    devices = [
        {"name": name, "attributes": {"mode": {"string": mode}, "gpu": {"string": gpu}}}
        for name, mode, gpu in (("one", "mig", "0"), ("two", "vgpu", "0"), ("three", "vgpu", "1"))
    ]
    rule = PolicyRule(
        name="r",
        physical_device=compile_expression('device.attributes["gpu.example.com"].gpu', derived=True),
        compatible_only_with=among("mig"),
    )
    slices = [PolicyOverlay([rule]).apply(slice_of(*devices)).effective]
    assert picks(ask(slices, claim_of(exactly()), usage=[held("one")])) == [["three"]]


def test_the_search_goes_back_when_an_early_pick_would_not_bear_a_later_one() -> None:
    slices = pool(part("a", "mig", among("mig")), part("b", "vgpu", among("vgpu")), part("c", "vgpu", among("vgpu")))
    assert picks(ask(slices, claim_of(exactly(name="any"), wanting("vgpu", name="vgpu")))) == [["b", "c"]]
    assert picks(ask(slices, claim_of(exactly(2)))) == [["b", "c"]]


def test_a_long_search_does_not_take_devices_in_different_modes_for_interchangeable() -> None:
    modes = [f"m{index}" for index in range(40) for _ in range(2)] + ["z"] * 4
    slices = pool(*(part(f"d{index}", mode, among(mode)) for index, mode in enumerate(modes)))
    assert picks(ask(slices, claim_of(exactly(4)))) == [["d80", "d81", "d82", "d83"]]


def test_mode_all_takes_all_or_fails() -> None:
    same_groups = pool(part("a", "mig", among("mig")), part("b", "mig", among("mig")))
    assert picks(ask(same_groups, claim_of(every()))) == [["a", "b"]]
    mixed = pool(part("a", "mig", among("mig")), part("b", "vgpu"))
    assert reasons(ask(mixed, claim_of(every()))).rejections[0].code is Code.NEIGHBOURS


def test_a_refused_or_undone_device_leaves_no_trace() -> None:
    demand, pools = demand_of(claim_of(exactly())), pools_of(pool(part("a", "mig", among("mig")), part("b", "vgpu")))
    state = SearchState(demand, NodeView(NODE, pools, Held(), None))
    wanted = demand.claims[0].requests[0].options[0]
    mark = state.trail.mark()
    assert state.try_pick(0, wanted, 0) is None
    assert state.try_pick(0, wanted, 1) is Code.NEIGHBOURS
    assert state.try_pick(0, wanted, 1) is Code.NEIGHBOURS
    state.trail.undo_to(mark)
    assert state.try_pick(0, wanted, 1) is None
    assert state.try_pick(0, wanted, 0) is Code.NEIGHBOURS


def test_what_was_frozen_at_allocation_counts_and_not_what_the_slice_says_now() -> None:
    slices = pool(part("one", "mig", "true"), part("two", "vgpu"))
    strict = held("one", consumption=SET, compatible_only_with=among("mig"))
    assert reasons(ask(slices, claim_of(wanting("vgpu")), usage=[strict])).rejections[0].code is Code.NEIGHBOURS
    slices = pool(part("one", "mig", among("mig")), part("two", "vgpu"))
    assert picks(ask(slices, claim_of(wanting("vgpu")), usage=[held("one", consumption=SET)])) == [["two"]]


def test_a_vanished_neighbour_keeps_its_expression_and_nobody_else_can_judge_it() -> None:
    gone = held("gone", consumption=SET, compatible_only_with=among("mig"))
    slices = pool(part("mig", "mig"), part("vgpu", "vgpu"))
    assert picks(ask(slices, claim_of(exactly()), usage=[gone])) == [["mig"]]
    silent = held("gone", consumption=SET)
    found = reasons(ask(pool(part("one", "mig", "true")), claim_of(exactly()), usage=[silent]))
    assert found.rejections[0].detail.endswith("which cannot be judged for gone (in use): it is not published any more")


@pytest.mark.parametrize(
    ("expression", "problem"),
    [("device.nonsense", "device.nonsense"), (f'{MODE} == "mig"', "no such key"), (f"{MODE} == 5", "")],
)
def test_an_expression_without_value_is_not_true(expression: str, problem: str) -> None:
    """One that does not compile, one that fails on the neighbour, and one that compares what cannot be equal."""
    slices = pool(part("one", None), part("two", "vgpu", expression))
    found = reasons(ask(slices, claim_of(wanting("vgpu")), usage=[held("one")]))
    rejection = next(each for each in found.rejections if each.code is Code.NEIGHBOURS)
    assert problem in rejection.detail
    assert "Traceback" not in rejection.detail


def test_an_expression_that_nobody_has_to_agree_to_is_not_evaluated() -> None:
    assert picks(ask(pool(part("one", "mig", "device.nonsense")), claim_of(exactly()))) == [["one"]]


def test_admin_access_takes_nothing_and_has_no_neighbours() -> None:
    slices = pool(part("one", "mig", among("mig")), part("two", "vgpu"))
    assert picks(ask(slices, claim_of(wanting("vgpu")), usage=[held("one", admin=True)])) == [["two"]]
    admin = claim_of(exactly(expression=f'{MODE} == "vgpu"', adminAccess=True))
    assert picks(ask(slices, admin, usage=[held("one")])) == [["two"]]
    assert picks(ask(slices, admin, claim_of(wanting("mig")))) == [["two"], ["one"]]


def test_with_compatibility_groups_off_nobody_is_asked() -> None:
    off = dataclasses.replace(Features(), compatibility_groups=False)
    slices = pool(part("one", "mig", among("mig")), part("two", "vgpu", "false"))
    assert picks(ask(slices, claim_of(wanting("vgpu")), usage=[held("one")], features=off)) == [["two"]]


def test_a_search_with_little_time_is_stopped_and_says_so() -> None:
    slow = "[1,2,3,4,5,6,7,8,9,10].all(a, [1,2,3,4,5,6,7,8,9,10].all(b, [1,2,3,4,5].all(c, a + b + c > 0)))"
    asked = 0

    def deadline() -> bool:
        nonlocal asked
        asked += 1
        return True

    slices = pool(part("one", "mig"), part("two", "vgpu", slow))
    found = reasons(ask(slices, claim_of(wanting("vgpu")), usage=[held("one")], deadline=deadline))
    assert found.rejections[0].code is Code.SEARCH_LIMIT
    assert asked > 0


def test_allocations_freeze_the_expression_and_its_source() -> None:
    rule = PolicyRule(name="modes", compatible_only_with=among("mig"))
    slices = [PolicyOverlay([rule]).apply(each).effective for each in pool(part("one", "mig"))]
    found = ask(slices, claim_of(exactly()))
    assert isinstance(found, Placement)
    (holding,) = found.claims[0].holdings
    assert holding.compatible_only_with == among("mig")
    assert holding.sources == (("compatibleOnlyWith", "modes"),)


DEVICE = st.tuples(
    st.sampled_from("ab"), st.none() | st.sets(st.sampled_from("ab")), st.sampled_from(["set", "set", "other"])
)


def meets(left: tuple[str, Any, str], right: tuple[str, Any, str]) -> bool:
    (mode, only, where), (other_mode, other_only, elsewhere) = left, right
    if where != elsewhere:
        return True
    return (only is None or other_mode in only) and (other_only is None or mode in other_only)


@examples(100)
@given(
    found=st.lists(DEVICE, min_size=1, max_size=7),
    counts=st.tuples(st.integers(1, 3), st.integers(0, 2)),
    taken=st.sets(st.integers(0, 6), max_size=2),
)
def test_the_first_solution_is_that_of_trying_everything(
    found: list[tuple[str, Any, str]], counts: tuple[int, int], taken: set[int]
) -> None:
    devices = [
        part(f"d{index}", mode, None if only is None else f"{MODE} in [{','.join(map(repr, sorted(only)))}]", where)
        for index, (mode, only, where) in enumerate(found)
    ]
    taken = {each for each in taken if each < len(found)}
    free = [index for index in range(len(found)) if index not in taken]
    expected = next(
        (
            [f"d{index}" for index in (*first, *second)]
            for first in combinations(free, counts[0])
            for second in combinations([index for index in free if index not in first], counts[1])
            if all(
                meets(found[left], found[right])
                for left, right in combinations((*taken, *first, *second), 2)
                if not {left, right} <= taken
            )
        ),
        None,
    )
    requests = [exactly(count, f"r{index}") for index, count in enumerate(counts) if count]
    answer = ask(pool(*devices), claim_of(*requests), usage=[held(f"d{index}") for index in taken])
    if expected is None:
        reasons(answer)
    else:
        assert picks(answer) == [expected]


@examples(50)
@given(found=st.lists(DEVICE, min_size=2, max_size=6), order=st.lists(st.integers(0, 5), max_size=12))
def test_members_come_back_exactly_after_any_refusal_or_undo(
    found: list[tuple[str, Any, str]], order: list[int]
) -> None:
    devices = [
        part(f"d{index}", mode, None if only is None else among(*sorted(only)), where)
        for index, (mode, only, where) in enumerate(found)
    ]
    demand, pools = demand_of(claim_of(exactly())), pools_of(pool(*devices))
    state = SearchState(demand, NodeView(NODE, pools, Held(held("d0")), None))
    wanted = demand.claims[0].requests[0].options[0]

    def members() -> list[Any]:
        return [] if state.neighbours is None else list(state.neighbours.members(pools.pools[0]).all)

    undone = []
    for location in order:
        before, mark = members(), state.trail.mark()
        if location < len(devices) and state.try_pick(0, wanted, location) is None:
            undone.append((mark, before))
        else:
            assert members() == before
    for mark, before in reversed(undone):
        state.trail.undo_to(mark)
        assert members() == before
