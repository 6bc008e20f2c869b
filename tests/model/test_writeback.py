from typing import Any

import msgspec
import pytest

from app.model.allocation import AllocationResult, DeviceAllocation, DeviceResult
from app.model.resource_claim import FINALIZER, ConsumerReference
from app.model.snapshot import SNAPSHOT_ANNOTATION
from app.model.writeback import (
    with_allocation,
    with_finalizer_and_snapshot,
    with_reservations,
    without_allocation,
    without_reservations,
    without_snapshot,
)

POD = ConsumerReference(resource="pods", name="p", uid="u")
RAW = msgspec.json.encode(
    {
        "metadata": {"name": "c", "futureField": {"a": [1, None]}, "annotations": {"x": "y"}},
        "spec": {"devices": {"requests": [{"name": "r", "future": True}]}, "future": 1.5},
        "status": {"devices": [{"driver": "d", "data": {"any": "thing"}}], "future": "kept"},
    }
)
ALLOCATION = AllocationResult(
    devices=DeviceAllocation(results=(DeviceResult(request="r", driver="d", pool="p", device="g"),))
)


def decoded(data: bytes) -> Any:
    return msgspec.json.decode(data)


def without_known(raw: Any) -> Any:
    raw["metadata"].pop("finalizers", None)
    raw["metadata"]["annotations"].pop(SNAPSHOT_ANNOTATION, None)
    raw["status"].pop("allocation", None)
    raw["status"].pop("reservedFor", None)
    return raw


@pytest.mark.parametrize(
    "edited",
    [
        with_finalizer_and_snapshot(RAW, "s"),
        with_allocation(RAW, ALLOCATION, POD),
        with_reservations(RAW, (POD,)),
        without_reservations(with_reservations(RAW, (POD,)), ("u",)),
        without_allocation(with_allocation(RAW, ALLOCATION, POD)),
        without_snapshot(with_finalizer_and_snapshot(RAW, "s")),
    ],
)
def test_fields_this_program_does_not_know_travel_along(edited: bytes) -> None:
    assert without_known(decoded(edited)) == without_known(decoded(RAW))


def test_the_finalizer_is_added_once() -> None:
    twice = with_finalizer_and_snapshot(with_finalizer_and_snapshot(RAW, "a"), "b")

    assert decoded(twice)["metadata"]["finalizers"] == [FINALIZER]
    assert decoded(twice)["metadata"]["annotations"][SNAPSHOT_ANNOTATION] == "b"


def test_an_allocation_is_written_with_its_reservation_and_nothing_empty() -> None:
    status = decoded(with_allocation(RAW, ALLOCATION, POD))["status"]

    assert status["allocation"] == {
        "devices": {"results": [{"request": "r", "driver": "d", "pool": "p", "device": "g"}]}
    }
    assert status["reservedFor"] == [{"resource": "pods", "name": "p", "uid": "u"}]


def test_a_consumer_is_reserved_once() -> None:
    assert len(decoded(with_reservations(with_reservations(RAW, (POD,)), (POD,)))["status"]["reservedFor"]) == 1
