"""Binding conditions (KEP-5007), judged by a claim alone."""

from typing import Any

import msgspec
import pytest
from dra_extender.model.allocation_snapshot import SNAPSHOT_ANNOTATION, encode_snapshot, holdings_of
from dra_extender.model.resource_claim import ResourceClaim, claim_from
from dra_extender.scheduling.claims.readiness import Readiness, conditional_devices, evaluate_conditions
from hypothesis import given
from hypothesis import strategies as st

STAMP, SECOND = "2026-01-01T00:00:00Z", 1_767_225_600.0
TIMEOUT = 600.0


def result(device: str, *conditions: str, share: str | None = None) -> dict[str, Any]:
    found: dict[str, Any] = {"request": "r", "driver": "d", "pool": "p", "device": device}
    if conditions:
        found |= {"bindingConditions": list(conditions), "bindingFailureConditions": ["Failed", "Broken"]}
    return found if share is None else {**found, "shareID": share}


def report(device: str, share: str | None = None, message: str = "", **conditions: str) -> dict[str, Any]:
    told = [{"type": name, "status": status, "message": message} for name, status in conditions.items()]
    status: dict[str, Any] = {"driver": "d", "pool": "p", "device": device, "conditions": told}
    return status if share is None else {**status, "shareID": share}


def claim(results: list[dict[str, Any]], *reports: dict[str, Any], stamp: str | None = STAMP) -> ResourceClaim:
    allocation: dict[str, Any] = {"devices": {"results": results}}
    if stamp is not None:
        allocation["allocationTimestamp"] = stamp
    return claim_from({"metadata": {"name": "c"}, "status": {"allocation": allocation, "devices": list(reports)}})


def readiness(given: ResourceClaim, now: float = SECOND + 1, since: float = SECOND) -> Readiness:
    return evaluate_conditions(given, now=now, waiting_since=since, timeout=TIMEOUT).readiness


def test_ready_when_every_condition_of_every_device_that_has_some_is_true() -> None:
    devices = [result("g0", "A", "B"), result("g1", "A"), result("g2")]
    assert readiness(claim(devices, report("g0", A="True", B="True"), report("g1", A="True"))) is Readiness.READY
    assert readiness(claim(devices, report("g0", A="True", B="True"))) is Readiness.PENDING
    assert readiness(claim(devices, report("g0", A="True", B="False"), report("g1", A="True"))) is Readiness.PENDING
    assert readiness(claim([result("g2")])) is Readiness.READY


@given(st.lists(st.sampled_from(("True", "False", "Unknown")), min_size=4, max_size=4))
def test_failure_wins_whatever_else_is_true(statuses: list[str]) -> None:
    told = dict(zip(("A", "B", "Failed", "Broken"), statuses, strict=True))
    verdict = readiness(claim([result("g0", "A", "B")], report("g0", **told)), now=SECOND + 2 * TIMEOUT)
    if "True" in (told["Failed"], told["Broken"]):
        assert verdict is Readiness.FAILED
    else:
        assert verdict is (Readiness.READY if told["A"] == told["B"] == "True" else Readiness.TIMED_OUT)


@pytest.mark.parametrize("first", [[], [report("g0", A="False")], [report("g0", B="True")]])
def test_failed_device_fails_the_claim_at_once_whatever_the_devices_before_it_lack(first: list[dict[str, Any]]) -> None:
    """Upstream judges the devices in turn and waits for the first one."""
    given = claim([result("g0", "A"), result("g1", "A")], *first, report("g1", Failed="True", message="no link"))
    verdict = evaluate_conditions(given, now=SECOND + 1, waiting_since=SECOND, timeout=TIMEOUT)
    assert (verdict.readiness, verdict.text) == (Readiness.FAILED, "device d/p/g1 reports Failed: no link")


def test_what_another_device_reports_does_not_count() -> None:
    other = {**report("g0", A="True"), "pool": "other"}
    assert readiness(claim([result("g0", "A")], other, report("g1", A="True"))) is Readiness.PENDING


def test_each_share_of_a_device_has_a_report_of_its_own() -> None:
    shares = [result("g0", "A", share="s-1"), result("g0", "A", share="s-2")]
    first, second = report("g0", "s-1", A="True"), report("g0", "s-2", A="True")
    assert readiness(claim(shares, first)) is Readiness.PENDING
    assert readiness(claim(shares, first, second)) is Readiness.READY


def test_clock_starts_at_the_allocation_whoever_waits_since_when() -> None:
    waiting = claim([result("g0", "A")])
    assert readiness(waiting, now=SECOND + TIMEOUT, since=SECOND + 500) is Readiness.PENDING
    assert readiness(waiting, now=SECOND + TIMEOUT + 1, since=SECOND + 500) is Readiness.TIMED_OUT


def test_clock_starts_with_the_wait_if_the_allocation_has_no_time_or_one_from_the_future() -> None:
    """A machine whose clock is ahead must not make anybody wait longer than the time-out."""
    for stamp in (None, "2026-01-02T00:00:00Z", "yesterday"):
        waiting = claim([result("g0", "A")], stamp=stamp)
        assert readiness(waiting, now=SECOND + TIMEOUT, since=SECOND) is Readiness.PENDING
        assert readiness(waiting, now=SECOND + TIMEOUT + 1, since=SECOND) is Readiness.TIMED_OUT


def test_conditions_and_clock_are_read_from_the_snapshot_where_the_server_stores_neither() -> None:
    written = claim([result("g0", "A")])
    assert written.status.allocation is not None
    snapshot = encode_snapshot(written.status.allocation, holdings_of(written))
    bare = claim([result("g0")], stamp=None)
    metadata = msgspec.structs.replace(bare.metadata, annotations={SNAPSHOT_ANNOTATION: snapshot})
    stripped = msgspec.structs.replace(bare, metadata=metadata)
    assert [each.device for each in conditional_devices(stripped)] == ["g0"]
    assert readiness(stripped) is Readiness.PENDING
    assert readiness(stripped, now=SECOND + TIMEOUT + 1, since=SECOND + 500) is Readiness.TIMED_OUT
    ready = msgspec.structs.replace(stripped, status=claim([result("g0")], report("g0", A="True"), stamp=None).status)
    assert readiness(ready) is Readiness.READY


def test_words_name_each_device_with_what_it_waits_for_and_each_failure_with_what_the_driver_says() -> None:
    devices = [result("g0", "A", "B"), result("g1", "A")]

    def words(given: ResourceClaim) -> str:
        return evaluate_conditions(given, now=SECOND, waiting_since=SECOND, timeout=TIMEOUT).text

    assert words(claim(devices)) == "device d/p/g0 waits for A, B; device d/p/g1 waits for A"
    assert words(claim(devices, report("g1", A="True"))) == "device d/p/g0 waits for A, B"
    failed = report("g1", message="cable unplugged", Failed="True")
    assert words(claim(devices, failed)) == "device d/p/g1 reports Failed: cable unplugged"
