"""`compatibleOnlyWith` between devices told apart by attributes alone: who is a neighbour, up to how many, and who pays."""

from itertools import combinations
from typing import Any
from unittest.mock import patch

import msgspec
import pytest
from dra_extender.allocator.overlay.policy import PolicyOverlay, PolicyRule
from dra_extender.allocator.rules.compatible_only_with import MAX_NEIGHBOURS
from dra_extender.allocator.rules.node_view import NodeView
from dra_extender.allocator.search_state import SearchState
from dra_extender.allocator.state.features import Features
from dra_extender.allocator.state.reasons import Code
from dra_extender.cel.budget import COMPILE_LIMIT, Budget
from dra_extender.cel.program import ProgramCache, compile_expression
from dra_extender.model.resource_slice import ResourceSlice
from dra_extender.scheduling.evaluation.backoff import BackoffUsage
from hypothesis import given
from hypothesis import strategies as st

from tests.support.allocator.building import (
    NODE,
    Held,
    Json,
    allocate,
    ask,
    claim_of,
    consuming,
    counters_of,
    demand_of,
    exactly,
    held,
    picks,
    pools_of,
    reasons,
    slice_of,
)
from tests.support.examples import examples

ATTRIBUTES = 'device.attributes["gpu.example.com"]'
PATTERN_1 = f'{ATTRIBUTES}.physicalDevice != "dev-0"'
PATTERN_2 = f'{ATTRIBUTES}.mode == "hardware-partitioned"'


def device(name: str, physical: str, mode: str | None = None, only: str | None = None, **more: Any) -> Json:
    attributes = {"id": {"string": name}, "physicalDevice": {"string": physical}}
    if mode is not None:
        attributes["mode"] = {"string": mode}
    rule = {} if only is None else {"compatibleOnlyWith": {"expression": only}}
    return {"name": name, "attributes": attributes, **rule, **more}


def named(name: str) -> Json:
    """A request for the device of this name, which is an attribute here."""
    return exactly(expression=f'{ATTRIBUTES}.id == "{name}"')


PROPOSAL = slice_of(
    device("device-full", "dev-0", only=PATTERN_1),
    device("dev-0-partition-1", "dev-0", "hardware-partitioned", PATTERN_2),
    device("dev-0-partition-2", "dev-0", "hardware-partitioned", PATTERN_2),
    device("dev-1-software", "dev-1", "software"),
)


@pytest.mark.parametrize(
    ("allocated", "free"),
    [
        ((), ["device-full", "dev-0-partition-1", "dev-0-partition-2", "dev-1-software"]),
        (("device-full",), ["dev-1-software"]),
        (("dev-0-partition-1",), ["dev-0-partition-2"]),
        (("dev-1-software",), ["device-full"]),
    ],
)
def test_patterns_1_and_2_of_the_proposal_as_written(allocated: tuple[str, ...], free: list[str]) -> None:
    """The devices have neither counters nor a physical device of the policy: all of the pool are neighbours."""
    usage = [held(name) for name in allocated]
    for each in PROPOSAL.devices:
        if each.name not in allocated:
            found = ask([PROPOSAL], claim_of(named(each.name)), usage=usage)
            if each.name in free:
                assert picks(found) == [[each.name]]
            else:
                assert reasons(found).rejections[0].code is Code.NEIGHBOURS


def test_devices_chosen_for_the_same_pod_are_neighbours_too() -> None:
    assert picks(ask([PROPOSAL], claim_of(exactly(2)))) == [["device-full", "dev-1-software"]]
    first = exactly(2, expression=f'{ATTRIBUTES}.physicalDevice == "dev-0"')
    assert picks(ask([PROPOSAL], claim_of(first))) == [["dev-0-partition-1", "dev-0-partition-2"]]


RULE = f'{ATTRIBUTES}.?mode.orValue("") == "a"'


def on(scope: str, **more: Any) -> PolicyOverlay:
    """A rule for devices in mode a: others on the pool or node have to be in that mode."""
    return PolicyOverlay(
        [PolicyRule(name="r", devices=compile_expression(RULE), compatible_only_with=RULE, neighbours_on=scope, **more)]
    )


def overlaid(policy: PolicyOverlay, *slices: ResourceSlice) -> list[ResourceSlice]:
    return [policy.apply(each).effective for each in slices]


def two_pools(**second: Any) -> list[ResourceSlice]:
    return [
        slice_of(device("a1", "x", "a"), device("b1", "x", "b"), name="s1", pool="p1"),
        slice_of(device("b2", "x", "b"), name="s2", pool="p2", **second),
    ]


def test_the_scope_of_a_rule_is_its_pool_or_its_node() -> None:
    usage = [held("a1", pool="p1")]
    assert picks(ask(overlaid(on("pool"), *two_pools()), claim_of(exactly()), usage=usage)) == [["b2"]]
    refused = reasons(ask(overlaid(on("node"), *two_pools()), claim_of(exactly()), usage=usage))
    assert refused.rejections[0].code is Code.NEIGHBOURS
    assert "a1 (in use) is compatible only with" in refused.rejections[0].detail


def test_the_node_counts_whichever_side_has_the_rule_and_whoever_came_first() -> None:
    slices = overlaid(on("node"), *two_pools())
    found = ask(slices, claim_of(exactly(expression=RULE)), usage=[held("b2", pool="p2")])
    assert reasons(found).rejections[0].code is Code.NEIGHBOURS
    mode_b = f'{ATTRIBUTES}.mode == "b"'
    both = ask(slices, claim_of(exactly(name="x", expression=RULE), exactly(name="y", expression=mode_b)))
    assert reasons(both).rejections[0].code is Code.NEIGHBOURS


def test_a_device_that_several_nodes_can_use_is_on_no_node() -> None:
    slices = overlaid(on("node"), *two_pools(allNodes=True))
    assert picks(ask(slices, claim_of(exactly(expression=RULE)), usage=[held("b2", pool="p2")])) == [["a1"]]


def test_a_rule_about_the_pool_counts_for_devices_on_other_counter_sets() -> None:
    one = consuming("one", counter_set="set", attributes={"mode": {"string": "a"}})
    two = consuming("two", counter_set="other", attributes={"mode": {"string": "b"}})
    pool = [counters_of(set=9, other=9), slice_of(one, two, count=2)]
    for scope, refused in (("", False), ("pool", True)):
        found = ask(overlaid(on(scope), *pool), claim_of(exactly()), usage=[held("one")])
        if refused:
            assert reasons(found).rejections[0].code is Code.NEIGHBOURS
        else:
            assert picks(found) == [["two"]]


def test_the_scope_is_frozen_with_the_rule() -> None:
    """The policy is gone by now; what was allocated under it keeps its neighbours."""
    bare = two_pools()
    frozen = held("a1", pool="p1", consumption=(), compatible_only_with=RULE, neighbours_on="node")
    assert reasons(ask(bare, claim_of(exactly()), usage=[frozen])).rejections[0].code is Code.NEIGHBOURS
    frozen = held("a1", pool="p1", consumption=(), compatible_only_with=RULE, neighbours_on="pool")
    assert picks(ask(bare, claim_of(exactly()), usage=[frozen])) == [["b2"]]


def test_a_device_that_is_published_no_more_is_on_the_node_of_its_pool() -> None:
    gone = held("gone", pool="p1", consumption=(), compatible_only_with=RULE, neighbours_on="node")
    refused = reasons(ask(two_pools(), claim_of(exactly()), usage=[gone, held("a1", pool="p1")]))
    assert refused.rejections[0].code is Code.NEIGHBOURS
    on_any_node = [slice_of(device("a1", "x", "a"), name="s1", pool="p1", allNodes=True), two_pools()[1]]
    assert picks(ask(on_any_node, claim_of(exactly()), usage=[gone, held("a1", pool="p1")])) == [["b2"]]


def test_a_device_that_is_only_left_alone_for_a_while_is_nobodys_neighbour() -> None:
    slices = overlaid(on("pool"), slice_of(device("a1", "x", "a"), device("b1", "x", "b")))
    usage = BackoffUsage(Held(), [("gpu.example.com", "pool", "a1")])
    assert picks(allocate(demand_of(claim_of(exactly())), NODE, pools_of(slices), usage)) == [["b1"]]


def test_a_device_with_more_neighbours_than_the_limit_is_refused_in_words() -> None:
    crowd = [device(f"d{index}", "x", "a") for index in range(MAX_NEIGHBOURS + 2)]
    slices = overlaid(on("pool"), slice_of(*crowd))
    usage = [held(f"d{index}") for index in range(MAX_NEIGHBOURS)]
    assert picks(ask(slices, claim_of(exactly()), usage=usage)) == [[f"d{MAX_NEIGHBOURS}"]]
    found = reasons(ask(slices, claim_of(exactly()), usage=[*usage, held(f"d{MAX_NEIGHBOURS}")]))
    assert found.rejections[0].code is Code.NEIGHBOURS
    assert f"has {MAX_NEIGHBOURS + 1} neighbours with compatibleOnlyWith, at most {MAX_NEIGHBOURS} are compared" in (
        found.rejections[0].detail
    )


@pytest.mark.parametrize("scope", ["pool", "node"])
def test_a_search_that_knows_failed_states_again_minds_picks_with_rules_of_earlier_requests(scope: str) -> None:
    """The first two devices go with no device in mode b, the third does."""
    first = [device("a1", "x", "a"), device("a2", "x", "a"), device("c1", "x", "c")]
    last = device("b1", "x", "b")
    of_scope = {
        "pool": [slice_of(*first, last)],
        "node": [slice_of(*first, pool="p1"), slice_of(last, name="s2", pool="p2")],
    }
    not_b, only_b = (
        exactly(name="r1", expression=f'{ATTRIBUTES}.mode != "b"'),
        exactly(name="r2", expression=f'{ATTRIBUTES}.mode == "b"'),
    )
    with patch("dra_extender.allocator.search.search._DEAD_ENDS_BEFORE_PRUNING", 1):
        assert picks(ask(overlaid(on(scope), *of_scope[scope]), claim_of(not_b, only_b))) == [["c1", "b1"]]


def test_neighbours_are_paid_by_the_call() -> None:
    """Compiling and evaluating every expression, and looking at each neighbour."""
    crowd = [device(f"d{i}", "x", "a", only=f'{ATTRIBUTES}.mode == "a" && {i} == {i}') for i in range(60)]
    demand, pools = demand_of(claim_of(exactly()), programs=ProgramCache()), pools_of([slice_of(*crowd)])
    usage = Held(*(held(f"d{index}") for index in range(59)))
    rich = Budget()
    before = rich.remaining
    assert picks(allocate(demand, NODE, pools, usage, deadline=rich)) == [["d59"]]
    spent = before - rich.remaining
    assert spent > 60 * 100
    assert spent < 60 * COMPILE_LIMIT
    poor = demand_of(claim_of(exactly()), programs=ProgramCache())
    found = reasons(allocate(poor, NODE, pools, usage, deadline=Budget(spent // 2)))
    assert found.rejections[0].code is Code.SEARCH_LIMIT


def test_a_node_without_rules_looks_at_no_neighbour() -> None:
    demand, pools = demand_of(claim_of(exactly())), pools_of([slice_of("a", "b")])
    assert SearchState(demand, NodeView(NODE, pools, Held(held("a")), None)).neighbours is None
    off = Features(compatibility_groups=False)
    ruled = pools_of(overlaid(on("pool"), slice_of(device("a1", "x", "a"))), features=off)
    assert SearchState(demand, NodeView(NODE, ruled, Held(), None)).neighbours is None


MODES = st.sampled_from("ab")
DEVICES = st.lists(
    st.tuples(MODES, st.none() | st.sets(MODES), st.sampled_from(["", "pool", "node"]), st.sampled_from(["p1", "p2"])),
    min_size=1,
    max_size=7,
)


@examples(100)
@given(found=DEVICES, count=st.integers(1, 3), taken=st.sets(st.integers(0, 6), max_size=2), more=st.integers(0, 40))
def test_the_first_solution_is_that_of_trying_everything(
    found: list[tuple[str, Any, str, str]], count: int, taken: set[int], more: int
) -> None:
    """Devices without counters in two pools of a node, with rules about either; also in searches that look at the whole node."""
    found = sorted([*found, *found[:1] * min(more, 6)], key=lambda each: each[3])
    slices = []
    for pool in ("p1", "p2"):
        raw = [device(f"d{i}", "x", mode) for i, (mode, _, _, where) in enumerate(found) if where == pool]
        if not raw:
            continue
        published = slice_of(*raw, name=pool, pool=pool)
        ruled = []
        for each in published.devices:
            _, only, scope, _ = found[int(each.name[1:])]
            expression = None if only is None else f"{ATTRIBUTES}.mode in [{','.join(map(repr, sorted(only)))}]"
            ruled.append(msgspec.structs.replace(each, compatible_only_with=expression, neighbours_on=scope))
        slices.append(msgspec.structs.replace(published, devices=tuple(ruled)))
    taken = {each for each in taken if each < len(found)}

    def bears(one: int, other: int) -> bool:
        _, only, scope, where = found[one]
        mode, _, _, elsewhere = found[other]
        return only is None or (scope != "node" and where != elsewhere) or mode in only

    expected = next(
        (
            [f"d{index}" for index in chosen]
            for chosen in combinations([each for each in range(len(found)) if each not in taken], count)
            if all(
                bears(one, other) and bears(other, one)
                for one, other in combinations((*taken, *chosen), 2)
                if not {one, other} <= taken
            )
        ),
        None,
    )
    answer = ask(slices, claim_of(exactly(count)), usage=[held(f"d{i}", pool=found[i][3]) for i in taken])
    if expected is None:
        reasons(answer)
    else:
        assert picks(answer) == [expected]
