from typing import Any

import msgspec
import pytest
from dra_extender.model.allocation import AllocationResult, DeviceAllocation, DeviceHolding, DeviceResult
from dra_extender.model.allocation_snapshot import (
    SNAPSHOT_ANNOTATION,
    allocated_at,
    contradiction,
    encode_snapshot,
    holdings_of,
    is_snapshotted,
    lost_share,
    results_of,
    with_groups,
)
from dra_extender.model.api_json import ModelError
from dra_extender.model.device import CounterConsumption, Device
from dra_extender.model.resource_claim import ResourceClaim, claim_from
from hypothesis import given
from hypothesis import strategies as st

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


def by_policy(holding: DeviceHolding, **more: Any) -> DeviceHolding:
    """The holding with its groups from a rule of the policy."""
    drawn = tuple(msgspec.structs.replace(each, groups_supplied=True) for each in holding.consumption or ())
    return msgspec.structs.replace(holding, consumption=drawn, sources=(("compatibilityGroups[s]", "rule"),), **more)


def test_what_a_policy_supplied_is_frozen_with_the_rule_that_supplied_it() -> None:
    taken = by_policy(holding("g0", "mig"), compatible_only_with="true")
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


def keeping(*groups: dict[str, tuple[str, ...] | None]) -> AllocationResult:
    results = tuple(
        DeviceResult(request="r", driver="d", pool="p", device=f"g{index}", compatibility_groups=each)
        for index, each in enumerate(groups)
    )
    return AllocationResult(devices=DeviceAllocation(results=results), allocation_timestamp=STAMP)


def live(*groups: str, **more: Any) -> Device:
    entry = CounterConsumption(counter_set="s", counters=(("units", 7),), compatibility_groups=groups)
    return Device(name="g0", consumes_counters=(entry,), **more)


@pytest.mark.parametrize("annotation", [None, "{}", encode_snapshot(allocation("other"), (holding("other", "old"),))])
def test_groups_in_the_result_count_by_themselves(annotation: str | None) -> None:
    """Of any scheduler's allocation: amounts are those of the slice, and a set that it does not name any more has its member."""
    (read,) = holdings_of(stored(keeping({"s": ("mig",), "gone": ("x",), "none": None}), annotation))
    assert read.consumption is None
    assert [(each.counter_set, each.counters, each.compatibility_groups) for each in read.drawn(live("vgpu"))] == [
        ("s", (("units", 7),), ("mig",)),
        ("gone", (), ("x",)),
    ]
    assert [(each.counter_set, each.compatibility_groups) for each in read.drawn(None)] == [
        ("s", ("mig",)),
        ("gone", ("x",)),
    ]


def test_counter_set_without_an_entry_in_the_result_means_no_groups() -> None:
    (read,) = holdings_of(stored(keeping({"other": ("mig",)}), None))
    assert read.drawn(live("vgpu"))[0].compatibility_groups == ()


def test_groups_of_a_policy_stay_where_the_result_tells_of_published_ones() -> None:
    """No slice and no allocation names what the policy supplies."""
    (read,) = holdings_of(stored(keeping({"other": ("mig",)}), None))
    taken = by_policy(holding("g0", "by-rule"))
    device = msgspec.structs.replace(live("by-rule"), consumes_counters=taken.consumption, sources=taken.sources)
    assert read.drawn(device)[0].compatibility_groups == ("by-rule",)
    text = encode_snapshot(allocation("g0"), (taken,))
    (read,) = holdings_of(stored(keeping({"other": ("mig",)}), text))
    assert read.consumption is not None
    assert read.consumption[0].compatibility_groups == ("by-rule",)


def test_published_groups_are_written_into_the_result_and_nothing_else_is() -> None:
    physical = CounterConsumption(counter_set="physical-device/x", compatibility_groups=("mig",))
    by_rule = CounterConsumption(counter_set="ruled", compatibility_groups=("by-rule",), groups_supplied=True)
    ungrouped = CounterConsumption(counter_set="plain")
    (first,) = (holding("g0", "mig", "mps"),)
    first = msgspec.structs.replace(
        first,
        consumption=(*(first.consumption or ()), physical, by_rule, ungrouped),
        sources=(("compatibilityGroups[ruled]", "rule"), ("physicalDevice", "rule")),
    )
    written = with_groups(allocation("g0", "g1"), (first, holding("g1")))
    assert [each.compatibility_groups for each in written.devices.results] == [{"s": ("mig", "mps")}, None]
    encoded = msgspec.json.decode(msgspec.json.encode(written))["devices"]["results"]
    assert encoded[0]["compatibilityGroups"] == {"s": ["mig", "mps"]}
    assert "compatibilityGroups" not in encoded[1]
    claim = stored(written, encode_snapshot(allocation("g0", "g1"), (first, holding("g1"))))
    assert contradiction(claim) is None
    assert holdings_of(claim) == (first, holding("g1"))


@pytest.mark.parametrize(
    ("groups", "differs"),
    [
        ({"s": ("mps", "mig")}, False),
        ({"s": ("mig", "mps"), "plain": None}, False),
        ({"s": ("mig",)}, True),
        ({}, True),
        ({"s": ("mig", "mps"), "more": ("x",)}, True),
    ],
)
def test_two_snapshots_that_differ_are_told(groups: dict[str, tuple[str, ...] | None], *, differs: bool) -> None:
    text = encode_snapshot(allocation("g0"), (holding("g0", "mig", "mps"),))
    assert contradiction(stored(keeping(groups), text)) == (("d", "p", "g0") if differs else None)
    assert contradiction(stored(keeping(groups), None)) is None
    assert contradiction(stored(allocation("g0"), text)) is None


def shared(share_id: str | None, amount: str | None) -> AllocationResult:
    (result,) = allocation("g0").devices.results
    capacity = None if amount is None else {"memory": amount}
    changed = msgspec.structs.replace(result, share_id=share_id, consumed_capacity=capacity)
    return AllocationResult(devices=DeviceAllocation(results=(changed,)), allocation_timestamp=STAMP)


def test_share_that_was_stored_as_something_else_is_told_by_the_stored_object_alone() -> None:
    written = shared("s-1", "3Gi")
    text = encode_snapshot(written, (holding("g0"),))
    device = ("d", "p", "g0")
    assert lost_share(stored(written, text)) is None
    assert lost_share(stored(shared("s-1", "3072Mi"), text)) is None
    assert lost_share(stored(shared(None, None), text)) == ("shareID", device)
    assert lost_share(stored(shared("s-1", None), text)) == ("consumedCapacity", device)
    assert lost_share(stored(shared("s-2", "3Gi"), text)) is None
    assert lost_share(stored(shared(None, None), None)) is None
    assert lost_share(stored(allocation("g1"), text)) is None
    assert lost_share(stored(allocation("g0"), encode_snapshot(allocation("g0"), (holding("g0"),)))) is None


@given(st.text())
def test_an_annotation_that_cannot_be_read_tells_of_no_lost_share(text: str) -> None:
    assert lost_share(stored(allocation("g0"), text)) is None


def test_time_of_an_allocation_is_read_from_the_snapshot_where_the_server_does_not_store_it() -> None:
    text = encode_snapshot(allocation("g0"), (holding("g0"),))
    stripped = allocation("g0", stamp=None)
    assert allocated_at(stored(allocation("g0"), None)) == STAMP
    assert allocated_at(stored(stripped, text)) == STAMP
    assert allocated_at(stored(stripped, None)) is None
    assert allocated_at(stored(allocation("g1", stamp=None), text)) is None
    assert allocated_at(ResourceClaim()) is None


def test_allocation_is_ours_if_its_own_snapshot_says_so() -> None:
    text = encode_snapshot(allocation("g0"), (holding("g0"),))
    assert is_snapshotted(stored(allocation("g0"), text))
    assert not is_snapshotted(stored(allocation("g1"), text))
    assert not is_snapshotted(stored(allocation("g0"), None))
    assert not is_snapshotted(ResourceClaim())


def test_amount_that_cannot_be_read_is_an_error_that_names_device_and_text() -> None:
    result = DeviceResult(request="r", driver="d", pool="p", device="g0", share_id="x", consumed_capacity={"m": "much"})
    claim = stored(AllocationResult(devices=DeviceAllocation(results=(result,))), None)

    with pytest.raises(ModelError, match="consumedCapacity of device d/p/g0: cannot read quantity 'much'"):
        holdings_of(claim)


def test_counters_of_a_snapshot_are_never_drawn_backwards() -> None:
    claim = stored(allocation("a"), encode_snapshot(allocation("a"), (holding("a", units=-5),)))

    (drawn,) = holdings_of(claim)[0].consumption or ()

    assert drawn.counters == (("units", 0),)
