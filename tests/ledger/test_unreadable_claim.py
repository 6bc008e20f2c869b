"""A stored claim whose amounts cannot be read is refused with a reason, and changes nothing that is known."""

import pytest

from app.ledger.ledger import Ledger
from app.model.base import ModelError
from tests.ledger.ledger_events import encode, raw_claim


def test_unreadable_amount_leaves_the_ledger_as_it_was() -> None:
    ledger = Ledger()
    ledger.feeds["resourceclaims"].changed(encode(raw_claim("c1", 1, devices=(("p1", "d1"),), consumers=("a",))))
    odd = raw_claim("c1", 2, devices=(("p1", "d2"),), consumers=("b",))
    odd["status"]["allocation"]["devices"]["results"][0] |= {"shareID": "x", "consumedCapacity": {"m": "much"}}
    fresh = raw_claim("c2", 3, devices=(("p1", "d2"),), consumers=("b",))
    fresh["status"]["allocation"]["devices"]["results"][0] |= {"consumedCapacity": {"m": ""}}
    known, consumers = ledger.claims.usage.frozen(), ledger.claims.of_consumer("a")
    for raw in (odd, fresh):
        with pytest.raises(ModelError, match=r"consumedCapacity of device .*/p1/d2: cannot read quantity"):
            ledger.feeds["resourceclaims"].changed(encode(raw))
    assert ledger.claims.usage.frozen() == known
    assert ledger.claims.of_consumer("a") == consumers
    assert ledger.claims.of_consumer("b") == ()
    assert len(ledger.claims) == 1


def test_the_devices_of_a_claim_count_although_its_spec_cannot_be_read() -> None:
    ledger = Ledger()
    feed = ledger.feeds["resourceclaims"]
    odd = raw_claim("c1", 1, devices=(("p1", "d1"),), consumers=("a",))
    odd["spec"]["devices"]["requests"] = "many"
    with pytest.raises(ModelError, match=r"spec\.devices\.requests"):
        feed.changed(encode(odd))
    assert [each.device for each in ledger.claims.by_uid("claim-c1").counted] == ["d1"]  # type: ignore[union-attr]
    assert ledger.claims.usage.frozen()
    assert len(ledger.claims.of_consumer("a")) == 1
    released = raw_claim("c1", 2)
    released["spec"] = odd["spec"]
    with pytest.raises(ModelError, match=r"spec\.devices\.requests"):
        feed.changed(encode(released))
    assert not ledger.claims.usage.frozen()
    record = ledger.claims.by_uid("claim-c1")
    assert record is not None
    with pytest.raises(ModelError, match=r"spec\.devices\.requests"):
        _ = record.whole
    feed.changed(encode(raw_claim("c1", 3)))
    sound = raw_claim("c2", 4)
    feed.changed(encode(sound))
    other = ledger.claims.by_uid("claim-c2")
    assert other is not None
    assert (record.unreadable, record.spec, record.spec_digest) == ("", other.spec, other.spec_digest)


def test_a_claim_without_allocation_whose_spec_cannot_be_read_is_passed_over() -> None:
    ledger = Ledger()
    odd = raw_claim("c1", 1)
    odd["spec"]["devices"]["requests"] = "many"
    with pytest.raises(ModelError, match=r"spec\.devices\.requests"):
        ledger.feeds["resourceclaims"].changed(encode(odd))
    assert len(ledger.claims) == 0
