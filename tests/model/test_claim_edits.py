import json
from typing import Any

import msgspec
import pytest
from dra_extender.model.allocation import (
    AllocationConfiguration,
    AllocationResult,
    DeviceAllocation,
    DeviceResult,
    OpaqueConfiguration,
)
from dra_extender.model.allocation_snapshot import SNAPSHOT_ANNOTATION
from dra_extender.model.api_json import ModelError
from dra_extender.model.claim_edits import (
    MetadataChange,
    with_allocation,
    with_finalizer_and_snapshot,
    with_reservations,
    without,
    without_allocation,
    without_reservations,
)
from dra_extender.model.resource_claim import FINALIZER, ConsumerReference, read_claim

POD = ConsumerReference(resource="pods", name="p", uid="u")
SPEC = b'{"devices":{"requests":[{"name":"r","future":1.50}],"config":[{"opaque":{"parameters":{"a":1e5,"a":-0}}}]}}'
DATA = b'{"driver":"d","data":{"a":1E400,"b":"\\u003c","c":1.50,"c":2}}'
FOREIGN = b'{"resource":"pods","name":"q","uid":"v","future":1.0}'
RAW = b"".join(
    (
        b'{"metadata":{"name":"c","uid":"i","resourceVersion":"7","future":1.50,"finalizers":["a.example/x"]},',
        b'"spec":' + SPEC + b',"status":{"devices":[' + DATA + b'],"future":1.20,"reservedFor":[' + FOREIGN + b"]}}",
    )
)
ALLOCATION = AllocationResult(
    devices=DeviceAllocation(results=(DeviceResult(request="r", driver="d", pool="p", device="g"),))
)


def decoded(data: bytes) -> Any:
    return msgspec.json.decode(data)


@pytest.mark.parametrize(
    "edited",
    [
        with_allocation(RAW, ALLOCATION, POD),
        with_reservations(RAW, (POD,)),
        without_reservations(with_reservations(RAW, (POD,)), ("u",)),
        without_allocation(with_allocation(RAW, ALLOCATION, POD)),
    ],
)
def test_what_is_not_ours_is_written_back_as_it_is_spelled(edited: bytes) -> None:
    metadata = RAW[RAW.index(b'{"name"') : RAW.index(b',"spec"')]
    assert all(each in edited for each in (metadata, SPEC, DATA, b'"future":1.20'))
    assert json.loads(edited).keys() == json.loads(RAW).keys()


@pytest.mark.parametrize("part", ["[" * 5000 + "]" * 5000, '"\\ud800"', '{"\\udfff":"\\ud83d\\ude00"}'])
def test_parts_that_the_decoder_does_not_get_through_are_written_back_too(part: str) -> None:
    raw = RAW.replace(b'"a":1E400', b'"a":' + part.encode()).replace(b'"a":-0', b'"a":' + part.encode())
    assert with_reservations(raw, (POD,)).count(part.encode()) == 2


def test_reservations_of_others_stay_as_they_are_spelled() -> None:
    both = with_reservations(RAW, (POD,))
    assert FOREIGN in both
    assert b'"reservedFor":[' + FOREIGN + b"]" in without_reservations(both, ("u",))
    assert b"reservedFor" not in without_allocation(both)


def change(**fields: Any) -> MetadataChange:
    return MetadataChange(uid="i", resource_version="7", **fields)


def test_the_finalizer_is_added_to_those_of_others_once() -> None:
    claim = read_claim(RAW)
    added = with_finalizer_and_snapshot(claim, "s")
    assert added == change(finalizers=("a.example/x", FINALIZER), annotations={SNAPSHOT_ANNOTATION: "s"})
    kept = read_claim(RAW.replace(b'"a.example/x"', b'"a.example/x","' + FINALIZER.encode() + b'"'))
    assert with_finalizer_and_snapshot(kept, "s") == change(annotations={SNAPSHOT_ANNOTATION: "s"})
    assert without(kept, finalizer=True) == change(finalizers=("a.example/x",))
    assert without(kept, snapshot=True) == change(annotations={SNAPSHOT_ANNOTATION: None})


def test_a_change_of_metadata_names_its_version_and_the_parts_that_change() -> None:
    both = change(finalizers=(), annotations={"a": "b", "c": None})
    assert decoded(both.merge_patch()) == {
        "metadata": {"uid": "i", "resourceVersion": "7", "finalizers": [], "annotations": {"a": "b", "c": None}}
    }
    assert decoded(change().merge_patch()) == {"metadata": {"uid": "i", "resourceVersion": "7"}}


def test_an_allocation_is_written_with_its_reservation_and_nothing_empty() -> None:
    status = decoded(with_allocation(b'{"metadata":{}}', ALLOCATION, POD))["status"]

    assert status["allocation"] == {
        "devices": {"results": [{"request": "r", "driver": "d", "pool": "p", "device": "g"}]}
    }
    assert status["reservedFor"] == [{"resource": "pods", "name": "p", "uid": "u"}]


@pytest.mark.parametrize(
    ("read", "written"),
    [
        (b'{"a":1.50,"a":1e5,"b":"\\u003c"}', b'{"a":1.50,"a":1e5,"b":"\\u003c"}'),
        (b'"' + b"\\u003c" * 10_238 + b'"', b'"' + b"<" * 10_238 + b'"'),
    ],
)
def test_configuration_is_written_as_it_is_read_unless_it_would_be_too_long(read: bytes, written: bytes) -> None:
    opaque = OpaqueConfiguration(driver="d", parameters=msgspec.Raw(read))
    config = (AllocationConfiguration(source="FromClaim", opaque=opaque), AllocationConfiguration(source="FromClass"))
    allocation = AllocationResult(devices=DeviceAllocation(config=config))
    assert b'"parameters":' + written + b"}" in with_allocation(RAW, allocation, POD)


def test_a_consumer_is_reserved_once() -> None:
    assert len(json.loads(with_reservations(with_reservations(RAW, (POD,)), (POD,)))["status"]["reservedFor"]) == 2


@pytest.mark.parametrize(
    "raw", [b"[]", b'{"status":3}', b'{"status":{"reservedFor":3}}', b'{"status":{"reservedFor":[3]}}']
)
def test_what_is_no_claim_is_not_edited(raw: bytes) -> None:
    with pytest.raises(ModelError, match="ResourceClaim: "):
        with_reservations(raw, (POD,))
