import msgspec
from hypothesis import given
from hypothesis import strategies as st

from app.model.allocation import AllocationResult, DeviceAllocation, DeviceHolding, DeviceResult
from app.model.device import CounterConsumption
from app.model.resource_claim import ResourceClaim, claim_from
from app.model.snapshot import SNAPSHOT_ANNOTATION, encode_snapshot, holdings_of, results_of

STAMP = "2026-01-01T00:00:00Z"


def allocation(*devices: str, stamp: str | None = STAMP) -> AllocationResult:
    results = tuple(DeviceResult(request="r", driver="d", pool="p", device=each) for each in devices)
    return AllocationResult(devices=DeviceAllocation(results=results), allocation_timestamp=stamp)


def holding(device: str, *groups: str, units: int = 5) -> DeviceHolding:
    consumption = CounterConsumption(counter_set="s", counters=(("units", units),), compatibility_groups=groups)
    return DeviceHolding(driver="d", pool="p", device=device, consumption=(consumption,))


def stored(found: AllocationResult, annotation: str | None) -> ResourceClaim:
    annotations = {} if annotation is None else {SNAPSHOT_ANNOTATION: annotation}
    return claim_from(
        {
            "metadata": {"name": "c", "annotations": annotations},
            "status": {"allocation": msgspec.to_builtins(found)},
        }
    )


@given(st.lists(st.sampled_from(("mig", "vgpu", "mps")), unique=True), st.integers(0, 2**80))
def test_what_was_frozen_is_what_counts_later(groups: list[str], units: int) -> None:
    taken = (holding("g0", *groups, units=units),)
    found = allocation("g0")

    assert holdings_of(stored(found, encode_snapshot(found, taken))) == taken


def test_without_an_annotation_the_live_slice_counts() -> None:
    assert holdings_of(stored(allocation("g0"), None)) == (DeviceHolding(driver="d", pool="p", device="g0"),)


def test_an_annotation_of_another_allocation_counts_for_nothing() -> None:
    text = encode_snapshot(allocation("g0"), (holding("g0", "mig"),))

    for other in (allocation("g1"), allocation("g0", stamp="2026-01-02T00:00:00Z"), allocation("g0", "g1")):
        assert all(each.consumption is None for each in holdings_of(stored(other, text)))


def test_a_server_that_strips_the_timestamp_keeps_the_snapshot_valid() -> None:
    taken = (holding("g0", "mig"),)
    text = encode_snapshot(allocation("g0"), taken)

    assert holdings_of(stored(allocation("g0", stamp=None), text)) == taken


@given(st.text())
def test_a_forged_or_broken_annotation_counts_for_nothing(text: str) -> None:
    assert holdings_of(stored(allocation("g0"), text))[0].consumption is None


def test_a_forged_digest_is_noticed() -> None:
    raw = msgspec.json.decode(encode_snapshot(allocation("g0"), (holding("g0", "mig"),)))
    raw["digest"] = "0" * 32

    assert holdings_of(stored(allocation("g0"), msgspec.json.encode(raw).decode()))[0].consumption is None


def test_groups_in_the_result_itself_win_over_the_annotation() -> None:
    found = allocation("g0")
    claim = stored(found, encode_snapshot(found, (holding("g0", "mig"),)))
    result = msgspec.structs.replace(found.devices.results[0], compatibility_groups={"s": ("vgpu",)})
    status = msgspec.structs.replace(
        claim.status,
        allocation=msgspec.structs.replace(found, devices=DeviceAllocation(results=(result,))),
    )

    (read,) = holdings_of(msgspec.structs.replace(claim, status=status))

    assert read.consumption is not None
    assert read.consumption[0].compatibility_groups == ("vgpu",)


def conditional(device: str) -> DeviceResult:
    result = DeviceResult(request="r", driver="d", pool="p", device=device)
    return msgspec.structs.replace(result, binding_conditions=("attached",), binding_failure_conditions=("failed",))


def test_what_a_policy_supplied_is_frozen_with_the_rule_that_supplied_it() -> None:
    taken = msgspec.structs.replace(
        holding("g0", "mig"), compatible_only_with="true", sources=(("compatibilityGroups[s]", "rule"),)
    )
    found = allocation("g0")
    text = encode_snapshot(found, (taken,))
    assert holdings_of(stored(found, text)) == (taken,)
    (device,) = msgspec.json.decode(text)["devices"]
    assert device["sources"] == {"compatibilityGroups[s]": "rule"}


def test_binding_conditions_that_a_server_does_not_store_are_read_from_the_snapshot() -> None:
    written = AllocationResult(devices=DeviceAllocation(results=(conditional("g0"),)), allocation_timestamp=STAMP)
    text = encode_snapshot(written, (holding("g0"),))
    assert results_of(stored(written, text)) == (conditional("g0"),)
    stripped = allocation("g0", stamp=None)
    assert results_of(stored(stripped, text)) == (conditional("g0"),)
    assert results_of(stored(stripped, None)) == stripped.devices.results
    assert results_of(stored(allocation("g1", stamp=None), text)) == allocation("g1").devices.results


def test_members_that_a_reader_does_not_know_do_not_spoil_the_snapshot() -> None:
    """A snapshot stays readable when a later version writes more, and when an earlier one wrote less."""
    found, taken = allocation("g0"), (holding("g0", "mig"),)
    snapshot = msgspec.json.decode(encode_snapshot(found, taken))
    assert snapshot["version"] == 1
    assert set(snapshot["devices"][0]) == {"consumesCounters"}
    snapshot["devices"][0]["later"] = {"any": "thing"}
    assert holdings_of(stored(found, msgspec.json.encode(snapshot).decode())) == taken


def test_groups_that_the_server_keeps_in_the_result_leave_a_physical_device_as_it_was_frozen() -> None:
    physical = CounterConsumption(counter_set="physical-device/x", compatibility_groups=("mig",))
    (taken,) = (holding("g0", "old"),)
    taken = msgspec.structs.replace(taken, consumption=(*(taken.consumption or ()), physical))
    text = encode_snapshot(allocation("g0"), (taken,))
    kept = DeviceResult(request="r", driver="d", pool="p", device="g0", compatibility_groups={"s": ("new",)})
    found = AllocationResult(devices=DeviceAllocation(results=(kept,)), allocation_timestamp=STAMP)
    (read,) = holdings_of(stored(found, text))
    assert [each.compatibility_groups for each in read.consumption or ()] == [("new",), ("mig",)]
