"""KEP-5007, goal 3: of the devices of a pool those without binding conditions come first, and nothing else changes by it."""

import dataclasses
from typing import Any

import msgspec
import pytest
from dra_extender.allocator.allocate import NodeSearch
from dra_extender.allocator.state.features import OWN, UPSTREAM, Features
from dra_extender.allocator.state.reasons import Code, SearchPaused
from dra_extender.model.allocation import Placement
from hypothesis import given
from hypothesis import strategies as st

from tests.support.allocator.building import (
    NODE,
    Held,
    Json,
    allocate,
    ask,
    claim_of,
    demand_of,
    either,
    every,
    exactly,
    held,
    picks,
    pools_of,
    reasons,
    slice_of,
)
from tests.support.allocator.generated import claims, nodes, usages
from tests.support.examples import examples

AS_UPSTREAM = dataclasses.replace(OWN, ready_devices_first=False)
KIND = 'device.attributes["gpu.example.com"].kind'


def waiting(name: str, kind: str | None = None) -> Json:
    attributes = {"attributes": {"kind": {"string": kind}}} if kind else {}
    return {"name": name, "bindingConditions": ["attached"], "bindingFailureConditions": ["broken"], **attributes}


def kind(name: str, value: str) -> Json:
    return {"name": name, "attributes": {"kind": {"string": value}}}


def test_a_device_that_is_ready_is_preferred_within_a_pool() -> None:
    slices = [slice_of(waiting("w0"), "r1", waiting("w2"), "r3")]
    assert picks(ask(slices, claim_of(exactly()))) == [["r1"]]
    assert picks(ask(slices, claim_of(exactly(3)))) == [["r1", "r3", "w0"]]
    assert picks(ask(slices, claim_of(exactly()), release=AS_UPSTREAM)) == [["w0"]]
    assert picks(ask(slices, claim_of(exactly(3)), release=UPSTREAM)) == [["w0", "r1", "w2"]]


def test_the_preference_reaches_over_the_slices_of_a_pool_and_over_several_requests() -> None:
    slices = [slice_of(waiting("w0"), name="s1", count=2), slice_of(waiting("w1"), "r2", name="s2", count=2)]
    assert picks(ask(slices, claim_of(exactly(name="a"), exactly(name="b")))) == [["r2", "w0"]]


def test_the_order_of_pools_stays() -> None:
    """A pool with conditions is behind the others already; among those, its devices do not come before another's."""
    slices = [
        slice_of(waiting("w0"), pool="a", name="s1"),
        slice_of(waiting("w1"), "r1", pool="b", name="s2"),
        slice_of("r2", pool="c", name="s3"),
    ]
    assert picks(ask(slices, claim_of(exactly(4)))) == [["r2", "w0", "r1", "w1"]]


def test_mode_all_keeps_its_order() -> None:
    slices = [slice_of(waiting("w0"), "r1")]
    assert picks(ask(slices, claim_of(every()))) == [["w0", "r1"]]


def test_the_first_alternative_stays_the_first() -> None:
    slices = [slice_of(waiting("w0", "x"), kind("r1", "y"))]
    wanted = either(exactly(expression=f'{KIND} == "x"'), exactly(expression=f'{KIND} == "y"'))
    assert picks(ask(slices, claim_of(wanted))) == [["w0"]]


def test_no_alternative_is_given_up_for_a_device_that_is_ready() -> None:
    """With the preference alone, `any` would take r1, and the second request its last choice."""
    slices = [slice_of(waiting("w0", "x"), kind("r1", "y"), kind("r2", "z"))]
    second = either(exactly(expression=f'{KIND} == "y"'), exactly(expression=f'{KIND} == "z"'), name="second")
    assert picks(ask(slices, claim_of(exactly(name="any"), second))) == [["w0", "r1"]]


def test_a_selector_that_fails_on_a_device_that_is_ready_spoils_nothing() -> None:
    slices = [slice_of(waiting("w0", "x"), "r1")]
    assert picks(ask(slices, claim_of(exactly(expression=f'{KIND} == "x"')))) == [["w0"]]


def hard() -> tuple[list[Any], Any]:
    """A question that is easy in upstream's order: with r-devices first, thousands of their combinations fail before."""
    wide = [{"name": f"r{index:02}", "attributes": {"k": {"int": index}}} for index in range(40)]
    same = [{**waiting(f"w{index}"), "attributes": {"k": {"int": 99}}} for index in range(6)]
    return [slice_of(*same, *wide)], claim_of(
        exactly(6, "six"), constraints=[{"matchAttribute": "gpu.example.com/k", "requests": ["six"]}]
    )


@pytest.mark.parametrize("most", [9, 10, 20, 48])
def test_the_preference_never_turns_a_fit_into_a_limit(most: int) -> None:
    slices, claim = hard()
    demand, pools = demand_of(claim), pools_of(slices)
    plain = allocate(demand, NODE, dataclasses.replace(pools, release=AS_UPSTREAM), Held(), max_steps=most)
    assert isinstance(plain, Placement)
    assert picks(allocate(demand, NODE, pools, Held(), max_steps=most)) == picks(plain)


def test_a_search_that_ends_at_its_limit_in_both_orders_says_so() -> None:
    slices, claim = hard()
    found = reasons(allocate(demand_of(claim), NODE, pools_of(slices), Held(), max_steps=3))
    assert found.rejections[0].code is Code.SEARCH_LIMIT
    assert found.at_step_limit


def test_pauses_change_nothing() -> None:
    slices, claim = hard()
    demand, pools = demand_of(claim), pools_of(slices)
    straight = allocate(demand, NODE, pools, Held(), max_steps=48)
    search, turns = NodeSearch(demand, NODE, pools, Held(), max_steps=48), 0

    def pausing() -> bool:
        nonlocal turns
        turns += 1
        if turns % 2:
            raise SearchPaused
        return False

    while True:
        try:
            found = search.decide(pausing)
            break
        except SearchPaused:
            continue
    assert found == straight
    assert turns > 2


@pytest.mark.parametrize("amount", [1, 2, 3])
def test_a_pool_without_conditions_or_with_nothing_else_has_no_order_of_its_own(amount: int) -> None:
    """So that a cluster without them pays nothing."""
    assert pools_of([slice_of(*(f"d{index}" for index in range(amount)))]).ready_first is None
    assert pools_of([slice_of(*(waiting(f"d{index}") for index in range(amount)))]).ready_first is None
    assert pools_of([slice_of("a", waiting("b"))]).ready_first is None
    assert pools_of([slice_of(waiting("a"), "b")]).ready_first is not None


def test_with_the_feature_off_there_is_nothing_to_prefer() -> None:
    off = dataclasses.replace(Features(), device_binding_and_status=False)
    assert picks(ask([slice_of(waiting("w0"), "r1")], claim_of(exactly()), features=off)) == [["w0"]]


def test_a_device_that_binds_to_its_node_does_not_while_the_feature_is_off() -> None:
    off = dataclasses.replace(Features(), device_binding_and_status=False)
    slices = [slice_of({**waiting("w0"), "bindsToNode": True}, allNodes=True)]
    for features, bound in ((None, True), (off, False)):
        found = ask(slices, claim_of(exactly()), features=features)
        assert isinstance(found, Placement)
        assert (found.claims[0].allocation.node_selector is not None) is bound


def test_a_device_in_use_is_left_for_the_next() -> None:
    slices = [slice_of(waiting("w0"), "r1", "r2")]
    assert picks(ask(slices, claim_of(exactly(2)), usage=[held("r1")])) == [["r2", "w0"]]


@examples(120)
@given(
    slices=nodes,
    wanted=st.lists(claims, min_size=1, max_size=2),
    usage=usages,
    waits=st.sets(st.integers(0, 5)),
    lists=st.booleans(),
)
def test_what_fits_fits_in_either_order(
    slices: list[Any], wanted: list[Any], usage: list[Any], waits: set[int], lists: bool
) -> None:
    """The same verdict for every node and claim, the same alternatives or better ones, and never more devices to wait for."""
    features = dataclasses.replace(Features(), list_type_attributes=lists)
    pools = pools_of([_with_conditions(each, waits) for each in slices], features=features)
    demand = demand_of(*wanted, features=features)
    ours = allocate(demand, NODE, pools, Held(*usage))
    plain = allocate(demand, NODE, dataclasses.replace(pools, release=AS_UPSTREAM), Held(*usage))
    if isinstance(plain, Placement):
        assert isinstance(ours, Placement)
        assert _alternatives(ours) <= _alternatives(plain)
    elif plain.verdict == "no":
        assert not isinstance(ours, Placement)


def _with_conditions(published: Any, waits: set[int]) -> Any:
    return msgspec.structs.replace(
        published,
        devices=tuple(
            msgspec.structs.replace(each, binding_conditions=("attached",)) if int(each.name[1:]) in waits else each
            for each in published.devices
        ),
    )


def _alternatives(found: Placement) -> list[str]:
    return [
        name
        for claim in found.claims
        for name in dict.fromkeys(result.request for result in claim.allocation.devices.results)
        if "/" in name
    ]
