"""What is written for a claim: results, configuration, node selector."""

import dataclasses
from typing import Any

import msgspec
import pytest
from dra_extender.allocator.state.features import Features
from dra_extender.allocator.state.reasons import Code
from dra_extender.model.allocation import AllocationResult, Placement
from dra_extender.model.node_selector import NodeSelector

from tests.support.allocator.building import (
    DRIVER,
    NODE,
    ask,
    claim_of,
    every,
    exactly,
    held,
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


def opaque(mark: str) -> dict[str, Any]:
    return {"opaque": {"driver": DRIVER, "parameters": mark}}


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
