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
