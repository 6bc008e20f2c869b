"""Each optional part of DRA, on and off, with the semantics that the gate of that name has in released schedulers."""

import dataclasses
from typing import Any

import pytest
from dra_extender.allocator.state.features import UPSTREAM, Features
from dra_extender.allocator.state.reasons import Code, NoFit
from dra_extender.model.allocation import Placement
from dra_extender.model.node import NODE_OPERATIONS_FEATURE, Node

from tests.support.allocator.building import (
    Json,
    ask,
    claim_of,
    consuming,
    counters_of,
    either,
    every,
    exactly,
    held,
    picks,
    reasons,
    refusal,
    slice_of,
)

Answer = Placement | NoFit

TAINTED = {"name": "t", "taints": [{"key": "broken", "effect": "NoSchedule"}]}
WAITING = {"name": "w", "bindingConditions": ["ready"], "bindingFailureConditions": ["failed"]}
SHAREABLE: Json = {"allowMultipleAllocations": True, "capacity": {"m": {"value": "4"}}}
KEY = "gpu.example.com/k"


def ranged(step: str) -> Json:
    policy = {"default": "1", "validRange": {"min": "500m", "step": step}}
    return {"name": "a", "allowMultipleAllocations": True, "capacity": {"m": {"value": "4", "requestPolicy": policy}}}


def consumed(answer: Answer) -> list[Any]:
    assert isinstance(answer, Placement)
    return [each.consumed_capacity for claim in answer.claims for each in claim.allocation.devices.results]


def without(feature: str) -> Features:
    return dataclasses.replace(Features(), **{feature: False})


@pytest.mark.parametrize(
    ("feature", "request_"),
    [
        ("admin_access", exactly(adminAccess=True)),
        ("admin_access", exactly(adminAccess=False)),
        ("prioritized_list", either(exactly())),
        ("consumable_capacity", exactly(capacity={"requests": {"m": "1"}})),
        ("consumable_capacity", exactly(capacity={})),
        ("derived_attributes", exactly(derivedAttributes=[{"name": KEY, "expression": "1"}])),
    ],
)
def test_request_that_mentions_a_part_that_is_off_is_refused_everywhere(feature: str, request_: Json) -> None:
    """Even where the field says the default: its presence counts."""
    assert refusal(claim_of(request_), features=without(feature)).code is Code.REQUEST_UNSUPPORTED
    slices = [slice_of({"name": "a", **SHAREABLE})]
    assert picks(ask(slices, claim_of(request_))) == [["a"]]


@pytest.mark.parametrize("feature", ["admin_access", "prioritized_list", "consumable_capacity", "derived_attributes"])
def test_request_that_does_not_mention_it_is_served_as_before(feature: str) -> None:
    assert picks(ask([slice_of("a")], claim_of(exactly()), features=without(feature))) == [["a"]]


def test_partitionable_devices() -> None:
    """Off: slices with counters or per-device node selection vanish, devices that consume are refused, others not."""
    off = without("partitionable_devices")
    slices = [counters_of(set=9), slice_of(consuming("a"), "b", count=2)]
    assert picks(ask(slices, claim_of(exactly(2)))) == [["a", "b"]]
    assert picks(ask(slices, claim_of(exactly()), features=off)) == [["b"]]
    assert reasons(ask(slices, claim_of(exactly(2)), features=off)).verdict == "no"
    chosen = slice_of({"name": "c", "nodeName": "node-1"}, perDeviceNodeSelection=True)
    assert picks(ask([chosen], claim_of(exactly()))) == [["c"]]
    assert reasons(ask([chosen], claim_of(exactly()), features=off)).rejections[0].code is Code.NO_DEVICES


def test_device_taints() -> None:
    """Off: taints are ignored, tolerations are copied all the same."""
    tolerant = exactly(tolerations=[{"key": "other", "operator": "Exists"}])
    assert reasons(ask([slice_of(TAINTED)], claim_of(tolerant))).rejections[0].code is Code.TAINTED
    found = ask([slice_of(TAINTED)], claim_of(tolerant), features=without("device_taints"))
    assert isinstance(found, Placement)
    assert found.claims[0].allocation.devices.results[0].tolerations[0].key == "other"


def test_device_binding_and_status() -> None:
    """Off: the fields are ignored; by upstream's rule devices with conditions cannot be selected. The order of pools stays."""
    slices = [slice_of(WAITING, name="s1", pool="a"), slice_of("x", name="s2", pool="b")]
    off = without("device_binding_and_status")
    assert picks(ask(slices, claim_of(every()))) == [["x", "w"]]
    assert picks(ask(slices, claim_of(every()), features=off)) == [["x", "w"]]
    assert picks(ask(slices[:1], claim_of(exactly()), features=off)) == [["w"]]
    assert picks(ask(slices, claim_of(every()), features=off, release=UPSTREAM)) == [["x"]]
    refused = reasons(ask(slices[:1], claim_of(exactly()), features=off, release=UPSTREAM))
    assert refused.rejections[0].code is Code.REQUEST_UNSUPPORTED


def test_consumable_capacity() -> None:
    """Off: a shareable device is taken whole, without share id and amounts."""
    slices, two = [slice_of({"name": "a", **SHAREABLE})], [claim_of(exactly()), claim_of(exactly())]
    off = without("consumable_capacity")
    assert consumed(ask(slices, two[0])) == [{"m": "4"}]
    found = ask(slices, two[0], features=off)
    assert consumed(found) == [None]
    assert isinstance(found, Placement)
    assert found.claims[0].allocation.devices.results[0].share_id is None
    assert reasons(ask(slices, *two, features=off)).verdict == "no"


def test_list_type_attributes() -> None:
    """Off: constraints see scalars alone, so that a list agrees with nothing but as the first; selectors see lists all the same."""
    devices = [
        {"name": f"d{index}", "attributes": {"k": {"ints": each}}} for index, each in enumerate(([1, 2], [2, 3]))
    ]
    match = [{"matchAttribute": KEY}]
    includes = 'device.attributes["gpu.example.com"].k.includes(3)'
    off = without("list_type_attributes")
    assert picks(ask([slice_of(*devices)], claim_of(exactly(2), constraints=match))) == [["d0", "d1"]]
    assert reasons(ask([slice_of(*devices)], claim_of(exactly(2), constraints=match), features=off)).verdict == "no"
    assert picks(ask([slice_of(*devices)], claim_of(exactly(), constraints=match), features=off)) == [["d0"]]
    assert picks(ask([slice_of(*devices)], claim_of(exactly(expression=includes)), features=off)) == [["d1"]]


def test_fractional_capacity_range() -> None:
    """On: steps count in thousandths. Off: every operand is rounded up to whole units first."""
    asked = claim_of(exactly(capacity={"requests": {"m": "600m"}}))
    assert consumed(ask([slice_of(ranged("250m"))], asked)) == [{"m": "750m"}]
    assert consumed(ask([slice_of(ranged("250m"))], asked, features=without("fractional_capacity_range"))) == [
        {"m": "1"}
    ]


def test_optional_node_operations() -> None:
    """Slices that skip node operations need the feature, and a node that declares it."""
    slices = [slice_of("a", skipNodeOperations=["NodePrepareResources"])]
    able = Node(name="node-1", declared_features=(NODE_OPERATIONS_FEATURE,))
    assert picks(ask(slices, claim_of(exactly()), node=able)) == [["a"]]
    for node, features in ((Node(name="node-1"), Features()), (able, without("optional_node_operations"))):
        found = reasons(ask(slices, claim_of(exactly()), node=node, features=features))
        assert found.rejections[0].code is Code.NODE_OPERATIONS


def test_compatibility_groups() -> None:
    """Off: a slice that holds a device with groups counts for nothing; ungrouped slices serve."""
    slices = [counters_of(set=9), slice_of(consuming("a", "x"), consuming("b", "x"), count=2)]
    off = without("compatibility_groups")
    assert picks(ask(slices, claim_of(exactly(2)))) == [["a", "b"]]
    assert reasons(ask(slices, claim_of(exactly()), features=off)).rejections[0].code is Code.GROUPS_OFF
    plain = [counters_of(set=9), slice_of(consuming("a"), consuming("b"), count=2)]
    assert picks(ask(plain, claim_of(exactly()), usage=[held("a")], features=off)) == [["b"]]
