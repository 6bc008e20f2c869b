"""How much memory claims take that tenants fill with whatever the API lets them write, and what is kept of them."""

import tracemalloc
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
import pytest
from dra_extender.ledger.claim_record import WHOLE_BYTES, Specs
from dra_extender.ledger.claims import ClaimIndex
from dra_extender.ledger.ledger import Ledger
from dra_extender.ledger.sinks import sinks_of
from dra_extender.model.allocation_snapshot import SNAPSHOT_ANNOTATION
from dra_extender.model.resource_claim import FINALIZER, ClaimHead, ResourceClaim, read_claim

OBJECTS = 60
BYTES = 10 * 1024
OVERHEAD = 2048
"""What a claim takes besides its bytes: its head, and its places in indexes."""

Part = tuple[Mapping[str, Any], Mapping[str, Any]]


def filled(make: Callable[[int], Any], size: int) -> list[Any]:
    per_entry = len(msgspec.json.encode(make(100))) + 1
    return [make(number) for number in range(size // per_entry)]


def request(**body: Any) -> Part:
    return {}, {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "c", **body}}]}}


SHAPES: Mapping[str, Callable[[str, int], Part]] = {
    "labels": lambda i, n: ({"labels": dict(filled(lambda j: (f"l{j}-{i}", "v"), n))}, {}),
    "annotations": lambda i, n: ({"annotations": dict(filled(lambda j: (f"l{j}-{i}", "v"), n))}, {}),
    "owners": lambda i, n: ({"ownerReferences": filled(lambda j: {"uid": f"{i}-{j}"}, n)}, {}),
    "finalizers": lambda i, n: ({"finalizers": filled(lambda j: f"a.b/{i}-{j}", n)}, {}),
    "one annotation": lambda i, n: ({"annotations": {"a/b": i + "y" * n}}, {}),
    "a false snapshot": lambda i, n: ({"annotations": {SNAPSHOT_ANNOTATION: i + "y" * n}}, {}),
    "an entry without end": lambda i, n: ({"annotations": {"resource.kubernetes.io/pod-claim-name": i + "y" * n}}, {}),
    "an owner without end": lambda i, n: ({"ownerReferences": [{"controller": True, "name": i + "y" * n}]}, {}),
    "one selector": lambda i, n: request(selectors=[{"cel": {"expression": i + "y" * n}}]),
    "selectors": lambda i, n: request(selectors=filled(lambda j: {"cel": {"expression": f"{i}{j}"}}, n)),
    "tolerations": lambda i, n: request(tolerations=filled(lambda j: {"key": f"{i}{j}"}, n)),
    "constraints": lambda i, n: ({}, {"devices": {"constraints": filled(lambda j: {"requests": [f"{i}{j}"]}, n)}}),
    "parameters": lambda i, n: (
        {},
        {"devices": {"config": [{"opaque": {"driver": "d", "parameters": {"x": i + "y" * n}}}]}},
    ),
}


def claim(number: int, metadata: Mapping[str, Any], spec: Mapping[str, Any], version: int = 1) -> bytes:
    meta = {"name": f"c{number}", "namespace": "a", "uid": f"u{number}", "resourceVersion": str(version)}
    return msgspec.json.encode({"metadata": {**meta, **metadata}, "spec": spec})


def taken_by(bodies: Sequence[bytes], feed: Callable[[bytes], object]) -> int:
    """The bytes that are in use afterwards and were not before."""
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for each in bodies:
            feed(bytes(bytearray(each)))
        return tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("shape", SHAPES)
def test_a_long_claim_takes_little_more_than_its_bytes_whatever_they_are(shape: str) -> None:
    bodies = [claim(number, *SHAPES[shape](f"{number:04}", BYTES)) for number in range(OBJECTS)]
    given = sum(map(len, bodies))
    assert given > OBJECTS * BYTES * 0.7
    ledger = Ledger()
    taken = taken_by(bodies, ledger.claim_seen)
    assert len(ledger.claims) == OBJECTS
    assert given < taken <= given + OBJECTS * OVERHEAD


@pytest.mark.parametrize("size", [10, 2 * WHOLE_BYTES], ids=["short", "long"])
def test_the_spec_of_a_kept_claim_is_the_one_that_was_sent(size: int) -> None:
    body = claim(1, *SHAPES["selectors"]("0", size))
    claims = ClaimIndex()
    record, _ = claims.store(body, from_watch=True)
    assert isinstance(record.claim, ResourceClaim) is (len(body) <= WHOLE_BYTES)
    assert record.spec == read_claim(body).spec
    assert record.claim_with_spec == read_claim(body)
    assert record.raw is body


def test_a_change_of_a_long_claim_is_seen_in_its_spec() -> None:
    # A spec is immutable, but a deleted claim's UID comes back with another one when the server's store is set back.
    first, second = (
        claim(1, *SHAPES["selectors"](text, 2 * WHOLE_BYTES), version) for version, text in ((1, "a"), (2, "b"))
    )
    claims = ClaimIndex()
    record, _ = claims.store(first, from_watch=True)
    assert record.spec == read_claim(first).spec
    record, _ = claims.store(second, from_watch=True)
    assert record.spec == read_claim(second).spec


CONFIGURED: Mapping[str, Any] = {"devices": {"config": [{"opaque": {"driver": "d", "parameters": {"x": 1}}}]}}


@pytest.mark.parametrize("ends", [False, True], ids=["changed", "deleted"])
def test_a_decoded_spec_keeps_no_earlier_version_of_its_claim(ends: bool) -> None:
    ledger, specs = Ledger(), []

    def feed(body: bytes) -> None:
        ledger.claim_seen(body)
        (record,) = (record for record in ledger.claims.records() if record.raw is body)
        specs.append(record.spec)
        number = len(specs) - 1
        if ends:
            ledger.claim_gone("a", f"c{number}", f"u{number}")
        else:
            ledger.claim_seen(claim(number, {}, CONFIGURED, 2))

    bodies = [
        claim(number, SHAPES["one annotation"](str(number), 20 * BYTES)[0], CONFIGURED) for number in range(OBJECTS)
    ]
    assert taken_by(bodies, feed) < OBJECTS * 3 * OVERHEAD
    assert specs == [read_claim(body).spec for body in bodies]


def test_a_spec_that_was_read_again_does_not_keep_its_claim() -> None:
    ledger = Ledger(1)

    def feed(body: bytes) -> None:
        ledger.claim_seen(body)
        record = ledger.claims.by_key("a", f"c{len(ledger.claims) - 1}")
        assert record is not None
        assert not record.has_spec
        assert ledger.claims.complete(record, body) == ""

    bodies = [
        claim(number, SHAPES["one annotation"](str(number), 20 * BYTES)[0], CONFIGURED) for number in range(OBJECTS)
    ]
    assert taken_by(bodies, feed) < OBJECTS * 3 * OVERHEAD


def test_decoded_specs_are_kept_up_to_a_bound() -> None:
    bodies = [claim(number, *SHAPES["selectors"](str(number), 10_000)) for number in range(20)]
    limit = 300_000
    specs = Specs(limit)
    for number, body in enumerate(bodies):
        assert specs.put(f"u{number}", body, read_claim(body).spec, "a")
        assert 0 < specs.size <= limit
    assert specs.get("u19", bodies[19]) == read_claim(bodies[19]).spec
    assert specs.get("u19", bodies[18]) is None
    assert specs.get("u0", bodies[0]) is None
    huge = claim(99, *SHAPES["selectors"]("99", 200_000))
    before = specs.size
    assert not specs.put("u99", huge, read_claim(huge).spec, "a")
    assert specs.size == before
    # A namespace with little keeps what it has while another one puts much.
    specs.put("mine", b"1", read_claim(bodies[0]).spec, "b")
    for number, body in enumerate(bodies):
        specs.put(f"u{number}", body, read_claim(body).spec, "a")
    assert specs.get("mine", b"1") is not None
    specs.drop("mine")
    for number in range(20):
        specs.drop(f"u{number}")
    assert specs.size == 0


def test_what_decisions_read_of_the_metadata_is_kept() -> None:
    owner = {"controller": True, "apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "pod"}
    metadata = {
        "labels": {"a": "b"},
        "annotations": {"x": "y", "resource.kubernetes.io/extended-resource-claim": "true", SNAPSHOT_ANNOTATION: "{}"},
        "finalizers": ["other.example/f", FINALIZER],
        "ownerReferences": [{"kind": "Pod", "name": "q", "uid": "other"}, owner],
        "deletionTimestamp": "2026-01-01T00:00:00Z",
    }
    record, _ = ClaimIndex().store(claim(1, metadata, {}), from_watch=True)
    kept: ClaimHead = record.claim
    assert kept.extended_for == "pod"
    assert kept.metadata.finalizers == (FINALIZER,)
    assert kept.metadata.controller is not None
    assert kept.metadata.deletion_timestamp == "2026-01-01T00:00:00Z"
    assert SNAPSHOT_ANNOTATION in kept.metadata.annotations
    assert not kept.metadata.labels
    # What is written is made from the bytes, in which everybody else's finalizers are.
    assert read_claim(record.raw).metadata.finalizers == ("other.example/f", FINALIZER)


def test_the_snapshot_of_an_allocation_is_kept_word_for_word() -> None:
    body = msgspec.json.decode(claim(1, {"annotations": {SNAPSHOT_ANNOTATION: '{"version":1}'}}, {}))
    body["status"] = {"allocation": {}}
    record, _ = ClaimIndex().store(msgspec.json.encode(body), from_watch=True)
    assert record.claim.metadata.annotations == {SNAPSHOT_ANNOTATION: '{"version":1}'}


PODS: Mapping[str, Callable[[int], Mapping[str, Any]]] = {
    "claims": lambda i: {
        "spec": {"resourceClaims": filled(lambda j: {"name": f"n{j}", "resourceClaimName": f"c{i}-{j}"}, BYTES)}
    },
    "statuses": lambda i: {
        "status": {
            "resourceClaimStatuses": filled(lambda j: {"name": f"n{j}", "resourceClaimName": f"c{i}-{j}"}, BYTES)
        }
    },
    "containers": lambda i: {
        "spec": {"containers": filled(lambda j: {"resources": {"limits": {f"a.io/{i}-{j}": 1}}}, BYTES)}
    },
}


@pytest.mark.parametrize("shape", PODS)
def test_a_long_pod_takes_not_much_more_than_its_bytes(shape: str) -> None:
    bodies = [
        msgspec.json.encode({"metadata": {"name": f"p{i}", "namespace": "a", "uid": f"u{i}"}, **PODS[shape](i)})
        for i in range(OBJECTS)
    ]
    given = sum(map(len, bodies))
    ledger = Ledger()
    taken = taken_by(bodies, sinks_of(ledger)["pods"].changed)
    assert len(ledger.pods) == OBJECTS
    assert 0 < taken <= 1.5 * given + OBJECTS * OVERHEAD
