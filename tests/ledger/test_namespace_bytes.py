"""What is kept of the claims of one namespace has a bound: beyond it specs are not kept, and everything else is as before."""

import random
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest
from dra_extender.ledger.claim_record import SpecNotKeptError
from dra_extender.ledger.claims import ClaimIndex
from dra_extender.ledger.events import ClaimSpecsDropped
from dra_extender.ledger.ledger import Ledger
from dra_extender.model.resource_claim import read_claim

from tests.ledger.test_kept_claims import OBJECTS, SHAPES, taken_by
from tests.support.ledger.ledger_events import holdings_by_device

KIB = 1024


def body(number: int, spec: Mapping[str, Any], *, version: int = 1, namespace: str = "a", **more: Any) -> bytes:
    meta = {"name": f"c{number}", "namespace": namespace, "uid": f"u{number}", "resourceVersion": str(version)}
    return msgspec.json.encode({"metadata": {**meta, **more.pop("metadata", {})}, "spec": spec, **more})


def selecting(text: str, size: int) -> Mapping[str, Any]:
    return SHAPES["one selector"](text, size)[1]


def allocated(devices: int, number: int) -> Mapping[str, Any]:
    results = [
        {"request": "r", "driver": "gpu.example.com", "pool": f"node-{number}", "device": f"gpu-{each}"}
        for each in range(devices)
    ]
    parameters = {"opaque": {"driver": "gpu.example.com", "parameters": {"x": "y" * 500}}, "source": "FromClaim"}
    consumers = [{"resource": "pods", "name": f"pod-{number}", "uid": f"pod-{number}"}]
    return {"allocation": {"devices": {"results": results, "config": [parameters]}}, "reservedFor": consumers}


@pytest.mark.parametrize("limit", [0, 1], ids=["whole", "short"])
@pytest.mark.parametrize("size", [100, 1000, 3500, 20_000])
@pytest.mark.parametrize("shape", SHAPES)
def test_the_estimate_of_what_is_kept_is_what_it_takes(shape: str, size: int, limit: int) -> None:
    parts = [SHAPES[shape](f"{number:04}", size) for number in range(OBJECTS)]
    ledger = Ledger(limit)
    taken = taken_by([body(i, spec, metadata=metadata) for i, (metadata, spec) in enumerate(parts)], ledger.claim_seen)
    # Parameters of short claims are counted twice, as bytes of the claim and of its decoded spec.
    assert 0.5 <= taken / ledger.claims.kept.total <= 1.2


@pytest.mark.parametrize("limit", [0, 1], ids=["whole", "short"])
@pytest.mark.parametrize("devices", [1, 8, 32])
def test_so_is_that_of_allocated_claims(devices: int, limit: int) -> None:
    bodies = [body(i, selecting(f"{i:04}", 200), status=allocated(devices, i)) for i in range(OBJECTS)]
    ledger = Ledger(limit)
    # The table of what is taken in each pool counts with it here.
    assert 0.6 <= taken_by(bodies, ledger.claim_seen) / ledger.claims.kept.total <= 1.5


def test_a_thousand_claims_of_a_namespace_take_the_bound_and_a_little_for_each() -> None:
    number, size, limit = 1000, 10 * KIB, 256 * KIB
    bodies = [body(i, selecting(f"{i:05}", size)) for i in range(number)]
    ledger = Ledger(limit)
    taken = taken_by(bodies, ledger.claim_seen)
    kept = ledger.claims.kept
    assert taken < limit + number * 2 * KIB < sum(map(len, bodies)) / 4
    assert number - kept.without_spec == pytest.approx(limit / size, rel=0.2)
    assert f"the specs of {kept.without_spec} claims are not kept" in str(kept.note())
    for i in range(number):
        ledger.claim_gone("a", f"c{i}", f"u{i}")
    assert (kept.total, kept.without_spec, kept.size("a"), kept.note()) == (0, 0, 0, None)


def test_a_namespace_at_its_bound_changes_nothing_for_another_one() -> None:
    ledger = Ledger(64 * KIB)
    for i in range(50):
        ledger.claim_seen(body(i, selecting(str(i), 10 * KIB)))
    assert ledger.claims.kept.without_spec > 40
    for i in range(50, 55):
        ledger.claim_seen(body(i, selecting(str(i), 10 * KIB), namespace="b"))
        record = ledger.claims.by_uid(f"u{i}")
        assert record is not None
        assert record.spec == read_claim(record.raw).spec


def test_a_namespace_is_reported_once_until_all_its_claims_are_whole_again() -> None:
    ledger, dropped = Ledger(15 * KIB), list[str]()
    ledger.events.subscribe(ClaimSpecsDropped, lambda event: dropped.append(event.namespace))
    for i in range(5):
        ledger.claim_seen(body(i, selecting(str(i), 10 * KIB)))
    assert dropped == ["a"]
    for i in range(5):
        ledger.claim_gone("a", f"c{i}", f"u{i}")
    for i in range(5, 7):
        ledger.claim_seen(body(i, selecting(str(i), 10 * KIB)))
    assert dropped == ["a", "a"]


def test_a_short_claim_says_that_its_spec_has_to_be_read_and_knows_everything_else() -> None:
    claims, whole = ClaimIndex(namespace_bytes=1), ClaimIndex()
    for index in (claims, whole):
        index.store(body(1, selecting("x", 100), status=allocated(2, 1)), from_watch=True)
    record, other = claims.by_uid("u1"), whole.by_uid("u1")
    assert record is not None
    assert other is not None
    assert not record.has_spec
    with pytest.raises(SpecNotKeptError, match="a/c1") as missing:
        _ = record.claim_with_spec
    assert missing.value.records == (record,)
    known = ("spec_digest", "holdings", "devices", "delivered", "allocated_version")
    assert [getattr(record, each) for each in known] == [getattr(other, each) for each in known]
    assert record.claim.status == other.claim.status
    assert record.claim.metadata == other.claim.metadata
    assert holdings_by_device(claims.usage) == holdings_by_device(whole.usage)


def test_a_claim_that_is_read_again_is_whole_if_there_is_room_by_now() -> None:
    claims = ClaimIndex(namespace_bytes=14 * KIB)
    first, second = (body(i, selecting(str(i), 10 * KIB)) for i in (1, 2))
    claims.store(first, from_watch=True)
    record, _ = claims.store(second, from_watch=True)
    assert (record.raw, claims.kept.without_spec) == (b"", 1)
    assert claims.complete(record, second) == ""
    assert (record.raw, record.spec) == (b"", read_claim(second).spec)
    claims.delete("a", "c1", "u1")
    assert (record.raw, claims.kept.without_spec) == (b"", 1)
    later = body(2, selecting("2", 10 * KIB), version=2)
    assert claims.complete(record, later) == ""
    assert record.raw == b"", "a version that the watch has not brought is no news"
    assert claims.complete(record, second) == ""
    assert (record.raw, claims.kept.without_spec) == (second, 0)


def test_what_is_read_must_be_the_same_claim() -> None:
    claims = ClaimIndex(namespace_bytes=1)
    record, _ = claims.store(body(1, selecting("x", 100)), from_watch=True)
    renewed = msgspec.json.decode(body(1, selecting("x", 100)))
    renewed["metadata"]["uid"] = "another"
    assert "replaced" in claims.complete(record, msgspec.json.encode(renewed))
    assert "something else" in claims.complete(record, body(1, selecting("y", 100)))
    assert not record.has_spec
    claims.delete("a", "c1", "u1")
    assert "deleted" in claims.complete(record, body(1, selecting("x", 100)))


def test_a_spec_that_is_too_large_to_be_read_again_is_named() -> None:
    claims = ClaimIndex(namespace_bytes=1)
    data = body(1, selecting("x", 9 * KIB * KIB))
    record, _ = claims.store(data, from_watch=True)
    assert claims.complete(record, data) == "is too large to be read again when it is needed"


@pytest.mark.parametrize("seed", range(20))
def test_whatever_happens_around_the_bound_what_others_see_is_the_same(seed: int) -> None:
    """Claims come, change, are allocated, released, deleted and made anew, with a bound that is passed again and again."""
    rng = random.Random(seed)
    bounded, free = Ledger(24 * KIB), Ledger()
    uids = dict[int, int]()
    for version in range(1, 301):
        number = rng.randrange(8)
        if rng.random() < 0.2:
            uid = f"u{uids.pop(number, number)}"
            for ledger in (bounded, free):
                ledger.claim_gone("a", f"c{number}", uid)
        else:
            uid = f"u{uids.setdefault(number, version + 1000)}"
            status = allocated(rng.randrange(1, 4), number) if rng.random() < 0.5 else {}
            size = uids[number] % 7 * KIB
            metadata = {"uid": uid, "resourceVersion": str(version)}
            data = body(number, selecting(uid, size), metadata=metadata, status=status)
            for ledger in (bounded, free):
                ledger.claim_seen(data)
            record = bounded.claims.by_uid(uid)
            if record is not None and rng.random() < 0.3:
                assert bounded.claims.complete(record, data) == ""
                assert record.spec == read_claim(data).spec
        assert holdings_by_device(bounded.claims.usage) == holdings_by_device(free.claims.usage)
        kept = bounded.claims.kept
        records = list(bounded.claims.records())
        assert kept.total == kept.size("a") == sum(each.size for each in records)
        assert kept.without_spec == sum(not each.raw for each in records)
        for each in records:
            twin = free.claims.by_uid(each.claim.metadata.uid)
            assert twin is not None
            assert (each.claim.status, each.claim.metadata) == (twin.claim.status, twin.claim.metadata)
            assert (each.spec_digest, each.allocated_version) == (twin.spec_digest, twin.allocated_version)
            assert not each.has_spec or each.spec == twin.spec
