"""What a node can use: generations, completeness, validity, order of preference."""

import dataclasses
from typing import Any

import pytest
from dra_extender.allocator.pools.pools import reaches
from dra_extender.allocator.state.features import OWN, UPSTREAM, Features, ReleaseBehaviour
from dra_extender.allocator.state.reasons import Code
from dra_extender.model.api_json import ModelError
from dra_extender.model.node import Node
from dra_extender.model.resource_slice import ResourceSlice

from tests.support.allocator.building import (
    NODE,
    ask,
    claim_of,
    consuming,
    counters_of,
    every,
    exactly,
    held,
    picks,
    pools_of,
    reasons,
    slice_of,
)

WEST = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "region", "operator": "In", "values": ["west"]}]}]}
EAST = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "region", "operator": "In", "values": ["east"]}]}]}
MALFORMED = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "region", "operator": "Near"}]}]}
NO_PARTITIONS = dataclasses.replace(Features(), partitionable_devices=False)


def devices(slices: list[ResourceSlice], **more: Any) -> list[str]:
    return [device.name for device in pools_of(slices, **more).devices]


def problems(slices: list[ResourceSlice]) -> list[Code | None]:
    return [pool.problem for pool in pools_of(slices).pools]


@pytest.mark.parametrize(
    ("where", "usable"),
    [
        ({"nodeName": "node-1"}, True),
        ({"nodeName": "node-2"}, False),
        ({"allNodes": True}, True),
        ({"nodeSelector": WEST}, True),
        ({"nodeSelector": EAST}, False),
        ({"allNodes": True, "nodeSelector": EAST}, True),
        ({"perDeviceNodeSelection": True}, False),
        ({"allNodes": False}, False),
    ],
)
def test_slice_is_usable_by_what_it_says_of_nodes(where: dict[str, Any], usable: bool) -> None:
    assert devices([slice_of("d", **where)]) == (["d"] if usable else [])


def test_per_device_selection_keeps_places_of_devices_that_other_nodes_use() -> None:
    mine, other, nowhere = {"name": "a", "nodeName": "node-2"}, {"name": "b", "nodeSelector": WEST}, {"name": "c"}
    published = slice_of(mine, other, nowhere, perDeviceNodeSelection=True)
    assert [reaches(device, NODE) for device in published.devices] == [False, True, False]
    assert picks(ask([published], claim_of(every()))) == [["b"]]
    assert devices([published], features=NO_PARTITIONS) == []


def test_malformed_selector_is_an_error_even_behind_one_that_matches() -> None:
    with pytest.raises(ModelError, match="Near"):
        pools_of([slice_of("a", allNodes=True), slice_of("b", nodeSelector=MALFORMED, pool="other")])


def test_malformed_selector_of_a_device_matters_only_if_the_search_gets_there() -> None:
    """The slice is known to be relevant from its first device."""
    first, second = {"name": "a", "allNodes": True}, {"name": "b", "nodeSelector": MALFORMED}
    slices = [slice_of(first, second, perDeviceNodeSelection=True)]
    assert picks(ask(slices, claim_of(exactly()))) == [["a"]]
    found = reasons(ask(slices, claim_of(exactly(2))))
    assert (found.verdict, found.rejections[0].code) == ("fatal", Code.POOL_INVALID)


def test_highest_generation_replaces_older_slices() -> None:
    slices = [slice_of("old", name="s1"), slice_of("new", name="s2", generation=2), slice_of("older", name="s3")]
    assert devices(slices) == ["new"]


@pytest.mark.parametrize(("published", "announced"), [(1, 2), (2, 1)])
def test_count_of_slices_must_be_exact(published: int, announced: int) -> None:
    slices = [slice_of(f"d{index}", name=f"s{index}", count=announced) for index in range(published)]
    assert problems(slices) == [Code.POOL_INCOMPLETE]
    assert reasons(ask(slices, claim_of(exactly()))).verdict == "no"
    found = reasons(ask(slices, claim_of(every())))
    assert (found.verdict, found.rejections[0].code) == ("fatal", Code.POOL_INCOMPLETE)
    assert found.rejections[0].detail == f"pool gpu.example.com/pool has {published} of {announced} slices"


def test_slices_of_other_nodes_complete_a_pool_without_offering_devices() -> None:
    slices = [slice_of("mine", name="s1", count=2), slice_of("theirs", name="s2", count=2, nodeName="node-2")]
    assert devices(slices) == ["mine"]


def test_old_generation_that_is_complete_here_is_used_although_others_have_a_newer_one() -> None:
    slices = [slice_of("mine"), slice_of("theirs", name="s2", generation=2, nodeName="node-2")]
    assert devices(slices) == ["mine"]


def test_old_generation_that_does_not_add_up_vanishes_once_a_newer_one_exists_anywhere() -> None:
    slices = [slice_of("mine", count=2), slice_of("theirs", name="s2", generation=2, nodeName="node-2")]
    assert pools_of(slices).pools == ()
    assert reasons(ask(slices, claim_of(every()))).verdict == "no"


@pytest.mark.parametrize(
    ("slices", "text"),
    [
        ([slice_of("d", "d")], "device d is published twice"),
        (
            [slice_of("d", name="s1", count=2), slice_of("d", name="s2", count=2)],
            "device d is published twice",
        ),
        (
            [counters_of(set=1, count=3), counters_of(name="again", set=1, count=3), slice_of("d", count=3)],
            "counter set set is declared twice",
        ),
        (
            [counters_of(other=1), slice_of(consuming("d"), count=2)],
            "device d draws on unknown counter set set",
        ),
        (
            [
                counters_of(set=1, count=3),
                slice_of("mine", count=3),
                slice_of(consuming("d", counter_set="x"), name="s3", count=3, nodeName="node-2"),
            ],
            "device d draws on unknown counter set x",
        ),
    ],
)
def test_contradictions_make_a_pool_invalid(slices: list[ResourceSlice], text: str) -> None:
    pools = pools_of(slices)
    assert pools.devices == ()
    assert [(pool.problem, pool.detail) for pool in pools.pools] == [
        (Code.POOL_INVALID, f"pool gpu.example.com/pool: {text}")
    ]


def test_unknown_counter_of_a_known_set_makes_a_pool_invalid() -> None:
    device = {"name": "d", "consumesCounters": [{"counterSet": "set", "counters": {"x": {"value": "1"}}}]}
    assert problems([counters_of(set=1), slice_of(device, count=2)]) == [Code.POOL_INVALID]


def test_invalid_pool_matters_only_when_the_valid_ones_are_not_enough() -> None:
    slices = [slice_of("d", "d"), slice_of("good", pool="valid")]
    assert picks(ask(slices, claim_of(exactly()))) == [["good"]]
    found = reasons(ask(slices, claim_of(exactly(2))))
    assert (found.verdict, found.rejections[0].code) == ("node", Code.POOL_INVALID)


def test_pools_go_by_driver_then_name_and_those_that_wait_for_binding_come_last() -> None:
    waiting = {"name": "waits", "bindingConditions": ["attached"]}
    slices = [
        slice_of("c", pool="b"),
        slice_of("d", pool="a", driver="nic.example.com"),
        slice_of(waiting, pool="0"),
        slice_of("b", pool="a"),
        slice_of({"name": "empty", "bindingConditions": []}, pool="00"),
    ]
    assert devices(slices) == ["b", "c", "d", "waits", "empty"]


def test_slices_of_a_pool_go_by_name_and_devices_as_published() -> None:
    slices = [slice_of("z", "a", name="s2", count=2), slice_of("m", name="s1", count=2)]
    assert devices(slices) == ["m", "z", "a"]


def test_counter_slice_offers_no_devices() -> None:
    both = slice_of("ignored", sharedCounters=[{"name": "set", "counters": {}}], name="counters", count=2)
    assert devices([both, slice_of("d", count=2)]) == ["d"]


def test_partitionable_off_drops_counter_slices_and_refuses_devices_that_draw() -> None:
    """The dropped slice still counts for completeness; mode All fails on the device that it may not use."""
    slices = [counters_of(set=9), slice_of(consuming("draws"), "plain", count=2)]
    assert picks(ask(slices, claim_of(exactly()), features=NO_PARTITIONS)) == [["plain"]]
    found = reasons(ask(slices, claim_of(every()), features=NO_PARTITIONS))
    assert (found.verdict, found.rejections[0].code) == ("no", Code.REQUEST_UNSUPPORTED)


def test_node_without_any_slice_has_no_devices() -> None:
    found = reasons(ask([slice_of("d", nodeName="node-2")], claim_of(exactly())))
    assert [each.code for each in found.rejections] == [Code.NO_DEVICES]


def test_skipped_node_operations_need_a_node_that_declares_support() -> None:
    slices = [slice_of("d", skipNodeOperations=["Prepare"])]
    supporting = Node(name="node-1", declared_features=("DRAOptionalNodeOperations",))
    found = ask(slices, claim_of(exactly()), node=supporting)
    assert found.claims[0].allocation.devices.results[0].skip_node_operations == ("Prepare",)  # type: ignore[union-attr]
    assert reasons(ask(slices, claim_of(exactly()))).rejections[0].code is Code.NODE_OPERATIONS
    off = dataclasses.replace(Features(), optional_node_operations=False)
    assert reasons(ask(slices, claim_of(exactly()), node=supporting, features=off)).verdict == "no"


SERVED = dataclasses.replace(OWN, devices_beside_counters=True)


def both(*devices: Any, sets: dict[str, int], **more: Any) -> ResourceSlice:
    shared = [{"name": name, "counters": {"c": {"value": str(total)}}} for name, total in sets.items()]
    return slice_of(*devices, sharedCounters=shared, **more)


@pytest.mark.parametrize("release", [OWN, UPSTREAM])
def test_such_a_slice_counts_for_its_counters_alone_in_later_releases(release: ReleaseBehaviour) -> None:
    slices = [both(consuming("a"), sets={"set": 2})]
    assert reasons(ask(slices, claim_of(exactly()), release=release)).rejections[0].code is Code.NO_DEVICES
    with_others = [both(consuming("a"), sets={"set": 2}, count=2), slice_of(consuming("b"), name="devices", count=2)]
    assert picks(ask(with_others, claim_of(every()), release=release)) == [["b"]]


def test_devices_draw_on_the_counters_beside_them() -> None:
    slices = [both(consuming("a", amount=2), consuming("b", amount=2), consuming("c"), sets={"set": 3})]
    assert picks(ask(slices, claim_of(exactly(2)), release=SERVED)) == [["a", "c"]]
    usage = [held("a", consumption=None), held("c")]
    found = reasons(ask(slices, claim_of(exactly()), usage=usage, release=SERVED))
    assert found.rejections[0].code is Code.COUNTERS


def test_groups_are_compared_on_counters_beside_the_devices() -> None:
    slices = [both(consuming("a", "mig"), consuming("b", "vgpu"), consuming("c", "mig"), sets={"set": 9})]
    assert picks(ask(slices, claim_of(exactly()), usage=[held("a")], release=SERVED)) == [["c"]]
    found = reasons(ask(slices, claim_of(exactly()), usage=[held("b")], release=SERVED))
    assert found.rejections[0].code is Code.GROUPS


def test_several_slices_of_a_pool_each_have_counters_and_devices() -> None:
    slices = [
        both(
            *(consuming(f"{name}-{index}", counter_set=name) for index in range(2)), sets={name: 1}, name=name, count=3
        )
        for name in ("gpu-0", "gpu-1")
    ]
    slices.append(slice_of("plain", name="plain", count=3))
    assert picks(ask(slices, claim_of(exactly(3)), release=SERVED)) == [["gpu-0-0", "gpu-1-0", "plain"]]
    found = reasons(ask(slices, claim_of(exactly(4)), release=SERVED))
    assert Code.COUNTERS in [each.code for each in found.rejections]


def test_both_shapes_go_together_in_one_pool() -> None:
    """A driver that is being updated."""
    slices = [
        both(consuming("a"), sets={"set": 2}, name="old", count=3),
        counters_of(name="counters", count=3, other=1),
        slice_of(consuming("b", counter_set="other"), consuming("c"), name="devices", count=3),
    ]
    assert picks(ask(slices, claim_of(exactly(3)), release=SERVED)) == [["b", "c", "a"]]


def test_set_names_that_two_slices_share_make_the_pool_invalid() -> None:
    slices = [both(consuming(name), sets={"set": 1}, name=name, count=2) for name in "ab"]
    found = reasons(ask(slices, claim_of(exactly()), release=SERVED))
    assert (found.rejections[0].code, found.rejections[0].detail) == (
        Code.POOL_INVALID,
        "pool gpu.example.com/pool: counter set set is declared twice",
    )
