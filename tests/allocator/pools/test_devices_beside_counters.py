"""Slices with devices beside their counter sets, the normal shape in Kubernetes 1.34, which later releases refuse."""

import dataclasses
from typing import Any

import pytest
from dra_extender.allocator.state.features import OWN, UPSTREAM, ReleaseBehaviour
from dra_extender.allocator.state.reasons import Code
from dra_extender.model.resource_slice import ResourceSlice

from tests.support.allocator.building import (
    ask,
    claim_of,
    consuming,
    counters_of,
    every,
    exactly,
    held,
    picks,
    reasons,
    slice_of,
)

SERVED = dataclasses.replace(OWN, devices_beside_counters=True)


def both(*devices: Any, sets: dict[str, int], **more: Any) -> ResourceSlice:
    shared = [{"name": name, "counters": {"c": {"value": str(total)}}} for name, total in sets.items()]
    return slice_of(*devices, sharedCounters=shared, **more)


@pytest.mark.parametrize("rules", [OWN, UPSTREAM])
def test_such_a_slice_counts_for_its_counters_alone_in_later_releases(rules: ReleaseBehaviour) -> None:
    slices = [both(consuming("a"), sets={"set": 2})]
    assert reasons(ask(slices, claim_of(exactly()), rules=rules)).rejections[0].code is Code.NO_DEVICES
    with_others = [both(consuming("a"), sets={"set": 2}, count=2), slice_of(consuming("b"), name="devices", count=2)]
    assert picks(ask(with_others, claim_of(every()), rules=rules)) == [["b"]]


def test_devices_draw_on_the_counters_beside_them() -> None:
    slices = [both(consuming("a", amount=2), consuming("b", amount=2), consuming("c"), sets={"set": 3})]
    assert picks(ask(slices, claim_of(exactly(2)), rules=SERVED)) == [["a", "c"]]
    usage = [held("a", consumption=None), held("c")]
    found = reasons(ask(slices, claim_of(exactly()), usage=usage, rules=SERVED))
    assert found.rejections[0].code is Code.COUNTERS


def test_groups_are_compared_on_counters_beside_the_devices() -> None:
    slices = [both(consuming("a", "mig"), consuming("b", "vgpu"), consuming("c", "mig"), sets={"set": 9})]
    assert picks(ask(slices, claim_of(exactly()), usage=[held("a")], rules=SERVED)) == [["c"]]
    found = reasons(ask(slices, claim_of(exactly()), usage=[held("b")], rules=SERVED))
    assert found.rejections[0].code is Code.GROUPS


def test_several_slices_of_a_pool_each_have_counters_and_devices() -> None:
    slices = [
        both(
            *(consuming(f"{name}-{index}", counter_set=name) for index in range(2)), sets={name: 1}, name=name, count=3
        )
        for name in ("gpu-0", "gpu-1")
    ]
    slices.append(slice_of("plain", name="plain", count=3))
    assert picks(ask(slices, claim_of(exactly(3)), rules=SERVED)) == [["gpu-0-0", "gpu-1-0", "plain"]]
    found = reasons(ask(slices, claim_of(exactly(4)), rules=SERVED))
    assert Code.COUNTERS in [each.code for each in found.rejections]


def test_both_shapes_go_together_in_one_pool() -> None:
    """A driver that is being updated."""
    slices = [
        both(consuming("a"), sets={"set": 2}, name="old", count=3),
        counters_of(name="counters", count=3, other=1),
        slice_of(consuming("b", counter_set="other"), consuming("c"), name="devices", count=3),
    ]
    assert picks(ask(slices, claim_of(exactly(3)), rules=SERVED)) == [["b", "c", "a"]]


def test_set_names_that_two_slices_share_make_the_pool_invalid() -> None:
    slices = [both(consuming(name), sets={"set": 1}, name=name, count=2) for name in "ab"]
    found = reasons(ask(slices, claim_of(exactly()), rules=SERVED))
    assert (found.rejections[0].code, found.rejections[0].detail) == (
        Code.POOL_INVALID,
        "pool gpu.example.com/pool: counter set set is declared twice",
    )
