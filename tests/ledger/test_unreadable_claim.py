"""A claim that cannot be read whole: its devices count all the same, and no pod uses it."""

from collections.abc import Callable
from typing import Any

import pytest
from dra_extender.allocator.state.reasons import Code, Rejection
from dra_extender.ledger.guard_index import GUARD_PREFIX
from dra_extender.ledger.ledger import Ledger
from dra_extender.ledger.sinks import sinks_of
from dra_extender.model.allocation import DeviceHolding
from dra_extender.model.api_json import ModelError
from dra_extender.model.pod import read_pod
from dra_extender.scheduling.claims.lookup import find_claims

from tests.support.ledger.ledger_events import encode, holdings_by_device, raw_claim, raw_pod


def _amount(status: dict[str, Any]) -> None:
    status["allocation"]["devices"]["results"][0] |= {"shareID": "x", "consumedCapacity": {"m": "much"}}


def _share(status: dict[str, Any]) -> None:
    status["allocation"]["devices"]["results"][0]["shareID"] = 7


def _tolerations(status: dict[str, Any]) -> None:
    status["allocation"]["devices"]["results"][0]["tolerations"] = "all"


def _nodes(status: dict[str, Any]) -> None:
    status["allocation"]["nodeSelector"] = []


def _consumers(status: dict[str, Any]) -> None:
    status["reservedFor"] = {"pods": 1}


def _conditions(status: dict[str, Any]) -> None:
    status["devices"] = [{"conditions": True}]


def _everything(status: dict[str, Any]) -> None:
    for each in (_amount, _share, _tolerations, _nodes, _consumers, _conditions):
        each(status)


BROKEN = (_amount, _share, _tolerations, _nodes, _consumers, _conditions, _everything)


def _with(change: Callable[[dict[str, Any]], None], version: int = 1, device: str = "d1") -> bytes:
    raw = raw_claim("c1", version, devices=(("p1", device), ("p2", "d9")), consumers=("a",))
    change(raw["status"])
    return encode(raw)


def _whole(pool: str, device: str) -> DeviceHolding:
    return DeviceHolding(driver="gpu.example.com", pool=pool, device=device)


@pytest.mark.parametrize("change", BROKEN)
def test_devices_of_a_status_that_cannot_be_read_are_taken_and_the_claim_serves_no_pod(
    change: Callable[[dict[str, Any]], None],
) -> None:
    ledger = Ledger()
    with pytest.raises(ModelError, match="ResourceClaim"):
        sinks_of(ledger)["resourceclaims"].changed(_with(change))
    usage = holdings_by_device(ledger.claims.usage)
    assert {(pool, device) for (_, pool), found in usage.items() for device in found} == {("p1", "d1"), ("p2", "d9")}
    assert list(usage["gpu.example.com", "p1"]["d1"]) == [_whole("p1", "d1")]
    found = find_claims(read_pod(encode(raw_pod("c1", 2))), ledger)
    assert isinstance(found, Rejection)
    assert found.code is Code.CLAIM_UNREADABLE
    # What can be read again is what counts from then on.
    sinks_of(ledger)["resourceclaims"].changed(_with(lambda _: None, 3, "d2"))
    assert set(holdings_by_device(ledger.claims.usage)["gpu.example.com", "p1"]) == {"d2"}
    assert not isinstance(find_claims(read_pod(encode(raw_pod("c1", 2))), ledger), Rejection)


def test_an_allocation_that_becomes_unreadable_counts_as_it_is_now() -> None:
    ledger = Ledger()
    sinks_of(ledger)["resourceclaims"].changed(_with(lambda _: None))
    with pytest.raises(ModelError, match=r"consumedCapacity of device .*/p1/d3: cannot read quantity"):
        sinks_of(ledger)["resourceclaims"].changed(_with(_amount, 2, "d3"))
    assert list(holdings_by_device(ledger.claims.usage)["gpu.example.com", "p1"]) == ["d3"]
    sinks_of(ledger)["resourceclaims"].deleted("default", "c1", "claim-c1")
    assert not holdings_by_device(ledger.claims.usage)


def test_a_device_that_has_no_name_changes_nothing_and_is_named() -> None:
    ledger = Ledger()
    sinks_of(ledger)["resourceclaims"].changed(_with(lambda _: None))
    known = holdings_by_device(ledger.claims.usage)

    def nameless(status: dict[str, Any]) -> None:
        status["allocation"]["devices"]["results"][0]["device"] = 1

    with pytest.raises(ModelError, match=r"a device of the allocation cannot be told: .*\$\.device"):
        sinks_of(ledger)["resourceclaims"].changed(_with(nameless, 2))
    assert holdings_by_device(ledger.claims.usage) == known


def test_the_devices_of_a_claim_count_although_its_spec_cannot_be_read() -> None:
    ledger = Ledger()
    feed = sinks_of(ledger)["resourceclaims"]
    odd = raw_claim("c1", 1, devices=(("p1", "d1"),), consumers=("a",))
    odd["spec"]["devices"]["requests"] = "many"
    with pytest.raises(ModelError, match=r"spec\.devices\.requests"):
        feed.changed(encode(odd))
    assert [each.device for each in ledger.claims.by_uid("claim-c1").counted] == ["d1"]  # type: ignore[union-attr]
    assert holdings_by_device(ledger.claims.usage)
    assert len(ledger.claims.of_consumer("a")) == 1
    released = raw_claim("c1", 2)
    released["spec"] = odd["spec"]
    with pytest.raises(ModelError, match=r"spec\.devices\.requests"):
        feed.changed(encode(released))
    assert not holdings_by_device(ledger.claims.usage)
    record = ledger.claims.by_uid("claim-c1")
    assert record is not None
    with pytest.raises(ModelError, match=r"spec\.devices\.requests"):
        _ = record.claim_with_spec
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
        sinks_of(ledger)["resourceclaims"].changed(encode(odd))
    assert len(ledger.claims) == 0


@pytest.mark.parametrize("namespace", ["", "default", "dra-extender"])
def test_devices_of_a_claim_that_cannot_be_read_are_taken_although_it_mentions_guard_claims(namespace: str) -> None:
    """Only the name in the namespace of guard claims makes a claim one; a label that any tenant may write does not."""
    ledger = Ledger()
    ledger.guards.namespace = namespace
    raw = raw_claim("c1", 1, devices=(("p1", "d1"),), consumers=("a",))
    raw["metadata"]["labels"] = {"mine": f"{GUARD_PREFIX}x"}
    _everything(raw["status"])
    with pytest.raises(ModelError, match="ResourceClaim"):
        sinks_of(ledger)["resourceclaims"].changed(encode(raw))
    assert set(holdings_by_device(ledger.claims.usage)["gpu.example.com", "p1"]) == {"d1"}
