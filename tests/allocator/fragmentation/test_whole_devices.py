"""Pods that ask for whole devices of the largest node are expected before any other: what a whole device is."""

from collections.abc import Sequence

import pytest
from dra_extender.allocator.fragmentation.kinds import whole_kinds
from dra_extender.allocator.fragmentation.loss import Fragmentation
from dra_extender.model.allocation import DeviceHolding
from dra_extender.model.resource_slice import ResourceSlice

from tests.support.allocator.building import DRIVER, NODE, Held, held, pools_of, share, shareable, slice_of
from tests.support.allocator.mig import gpus


def slots(slices: Sequence[ResourceSlice], *taken: DeviceHolding) -> list[int]:
    """For how many pods with two whole devices, and for how many with one, the node has room."""
    expected = Fragmentation(dict.fromkeys(whole_kinds({DRIVER: 2}), 1.0))
    room = expected.room(expected.units(NODE, pools_of(slices)).rooms(Held(*taken)))
    return [kind.slots for kind in room.kinds]


@pytest.mark.parametrize(
    ("slices", "taken"),
    [
        ([slice_of("a", "b")], held("a")),
        ([slice_of(shareable("a"), shareable("b"))], share("a", 1)),
        (gpus(2), held("gpu-0-1g-10gb-3")),
    ],
    ids=["devices", "shares", "partitions"],
)
def test_a_device_of_which_a_part_is_taken_is_not_whole(slices: Sequence[ResourceSlice], taken: DeviceHolding) -> None:
    assert slots(slices) == [1, 2]
    assert slots(slices, taken) == [0, 1]


def test_a_device_that_is_shared_without_limit_is_never_whole() -> None:
    slices = [slice_of({"name": "a", "allowMultipleAllocations": True}, "b")]
    assert slots(slices) == [0, 1]
    assert dict(Fragmentation({}).units(NODE, pools_of(slices)).whole_devices) == {DRIVER: 1}


def test_devices_of_another_driver_are_not_whole_devices_of_this_one() -> None:
    assert dict(Fragmentation({}).units(NODE, pools_of(gpus(3))).whole_devices) == {DRIVER: 3}
    assert slots([slice_of("a", driver="net.example.com")]) == [0, 0]


def test_all_half_and_a_quarter_are_expected_of_few_drivers() -> None:
    drivers = {f"driver-{number}": number for number in range(1, 7)}
    assert [kind.label for kind in whole_kinds(drivers)] == [
        *(f"{count} x driver-6" for count in (6, 3, 1)),
        *(f"{count} x driver-5" for count in (5, 2, 1)),
        *(f"{count} x driver-4" for count in (4, 2, 1)),
        *(f"{count} x driver-3" for count in (3, 1)),
    ]
    (*_, all_of_many, _, _, _, _, _, _, _) = whole_kinds({"network": 5_000})
    assert (all_of_many.devices, all_of_many.amounts) == (128, (128_000, 128 * 2**30))
