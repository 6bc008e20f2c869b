"""What is written for a claim: results, configuration, node selector."""

import dataclasses
import json
from typing import Any

import msgspec
import pytest
from dra_extender.allocator.allocate import allocate
from dra_extender.allocator.demand.demand import Demand, NamedClaim
from dra_extender.allocator.demand.validate import prepare
from dra_extender.allocator.state.features import Features
from dra_extender.allocator.state.reasons import Code
from dra_extender.cel.program import ProgramCache
from dra_extender.model.allocation import AllocationResult, Placement
from dra_extender.model.device_class import device_class_from
from dra_extender.model.node_selector import NodeSelector

from tests.support.allocator.building import (
    DRIVER,
    NODE,
    Held,
    ask,
    claim_of,
    either,
    every,
    exactly,
    held,
    picks,
    pools_of,
    reasons,
    slice_of,
)


def placed(found: Any, claim: int = 0) -> AllocationResult:
    assert isinstance(found, Placement), found
    allocation: AllocationResult = found.claims[claim].allocation
    return allocation


def requirement(key: str, *values: str) -> dict[str, Any]:
    return {"key": key, "operator": "In", "values": list(values)}


def selector(*requirements: dict[str, Any]) -> dict[str, Any]:
    return {"nodeSelectorTerms": [{"matchExpressions": list(requirements)}]}


WEST, EARTH = requirement("region", "west"), requirement("planet", "earth")
PINNED = {"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["node-1"]}]}]}


@pytest.mark.parametrize(
    ("slices", "expected"),
    [
        ([slice_of("a")], PINNED),
        ([slice_of("a", allNodes=True)], None),
        ([slice_of({"name": "a", "bindsToNode": True}, allNodes=True)], PINNED),
        ([slice_of("a", nodeSelector=selector(WEST))], selector(WEST)),
        (
            [slice_of("a", nodeSelector=selector(WEST)), slice_of("b", pool="p2", nodeSelector=selector(WEST, EARTH))],
            selector(WEST, EARTH),
        ),
        ([slice_of("a", nodeSelector=selector(WEST)), slice_of("b", pool="p2")], PINNED),
        (
            [slice_of({"name": "a", "nodeSelector": selector(WEST)}, perDeviceNodeSelection=True)],
            selector(WEST),
        ),
    ],
)
def test_node_selector_joins_what_the_devices_need(slices: list[Any], expected: Any) -> None:
    node = type(NODE)(name="node-1", labels={"region": "west", "planet": "earth"})
    found = placed(ask(slices, claim_of(every()), node=node))
    assert found.node_selector == (msgspec.convert(expected, NodeSelector) if expected else None)


def test_selector_with_several_terms_cannot_be_used() -> None:
    terms = {"nodeSelectorTerms": [{"matchExpressions": [WEST]}, {"matchExpressions": [EARTH]}]}
    found = reasons(ask([slice_of("a", nodeSelector=terms)], claim_of(exactly())))
    assert (found.verdict, found.rejections[0].code) == ("fatal", Code.REQUEST_UNSUPPORTED)


def test_binding_conditions_are_copied_unless_they_are_switched_off() -> None:
    waiting = {"name": "w", "bindingConditions": ["attached"], "bindingFailureConditions": ["broken"]}
    slices = [slice_of(waiting), slice_of("plain", pool="z")]
    results = placed(ask(slices, claim_of(every()))).devices.results
    assert [each.device for each in results] == ["plain", "w"]
    assert results[1].binding_conditions == ("attached",)
    assert results[1].binding_failure_conditions == ("broken",)
    off = dataclasses.replace(Features(), device_binding_and_status=False)
    results = placed(ask(slices, claim_of(every()), features=off)).devices.results
    assert [(each.device, each.binding_conditions, each.binding_failure_conditions) for each in results] == [
        ("plain", None, None),
        ("w", None, None),
    ]


def test_admin_access_is_marked_sees_taken_devices_and_is_held_as_admin() -> None:
    found = ask([slice_of("d")], claim_of(exactly(adminAccess=True)), usage=[held("d")])
    assert placed(found).devices.results[0].admin_access is True
    assert isinstance(found, Placement)
    assert found.claims[0].holdings == (held("d", admin=True, consumption=()),)


@pytest.mark.parametrize(
    ("first", "second", "both"), [(True, False, False), (False, True, True), (True, True, True), (False, False, False)]
)
def test_admin_pick_blocks_ordinary_claims_of_the_same_pod(first: bool, second: bool, both: bool) -> None:
    claims = [claim_of(exactly(adminAccess=True) if admin else exactly()) for admin in (first, second)]
    assert isinstance(ask([slice_of("d")], *claims), Placement) is both


def test_one_claim_never_gets_a_device_twice() -> None:
    both = claim_of(exactly(name="a", adminAccess=True), exactly(name="b", adminAccess=True))
    assert reasons(ask([slice_of("d")], both)).verdict == "no"
    assert picks(ask([slice_of("d", "e")], both)) == [["d", "e"]]


def opaque(mark: str) -> dict[str, Any]:
    return {"opaque": {"driver": DRIVER, "parameters": mark}}


def configured(*requests: dict[str, Any], config: list[dict[str, Any]]) -> list[tuple[str, tuple[str, ...], Any]]:
    classes = {
        name: device_class_from({"metadata": {"name": name}, "spec": {"config": [opaque(name)]}}) for name in ("x", "y")
    } | {"any": device_class_from({"metadata": {"name": "any"}, "spec": {}})}
    demand = prepare([NamedClaim("c", claim_of(*requests, config=config))], classes, ProgramCache(), Features())
    assert isinstance(demand, Demand)
    found = placed(allocate(demand, NODE, pools_of([slice_of("a", "b", "c")]), Held()))
    return [
        (each.source, each.requests, each.opaque and json.loads(bytes(each.opaque.parameters)))
        for each in found.devices.config
    ]


def test_class_configuration_comes_once_per_class_with_the_requests_that_use_it() -> None:
    requests = [exactly(name=name, deviceClassName=kind) for name, kind in (("1", "x"), ("2", "y"), ("3", "x"))]
    assert configured(*requests, config=[]) == [("FromClass", ("1", "3"), "x"), ("FromClass", ("2",), "y")]


def test_class_configuration_names_the_chosen_alternative() -> None:
    alternatives = either(exactly(9, deviceClassName="x"), exactly(deviceClassName="y"), name="1")
    assert configured(alternatives, exactly(name="2"), config=[]) == [("FromClass", ("1/a1",), "y")]


@pytest.mark.parametrize("number", [64, 65])
def test_more_configuration_than_an_api_server_stores_is_refused_before_it_is_written(number: int) -> None:
    config = [opaque(str(each)) for each in range(number)]
    found = ask([slice_of("a")], claim_of(exactly(), config=config))
    if number == 64:
        assert len(placed(found).devices.config) == 64
    else:
        refused = reasons(found)
        assert (refused.verdict, refused.rejections[0].code) == ("fatal", Code.REQUEST_UNSUPPORTED)
        assert "configure it 65 times, an API server stores 64 at most" in refused.rejections[0].text


def test_claim_configuration_is_kept_where_it_concerns_somebody() -> None:
    config = [
        {**opaque("all")},
        {**opaque("main"), "requests": ["1"]},
        {**opaque("chosen"), "requests": ["1/a1", "1/a0"]},
        {**opaque("lost"), "requests": ["1/a0"]},
        {**opaque("other"), "requests": ["3"]},
        {**opaque("everybody"), "requests": ["2", "1/a1"]},
    ]
    assert configured(either(exactly(9), exactly(), name="1"), exactly(name="2"), config=config) == [
        ("FromClaim", (), "all"),
        ("FromClaim", ("1",), "main"),
        ("FromClaim", ("1/a1", "1/a0"), "chosen"),
        ("FromClaim", (), "everybody"),
    ]
