"""A held device counts with what was frozen at its allocation; the live slice counts only where nothing was frozen."""

import dataclasses

import msgspec
import pytest
from dra_extender.allocator.state.features import OWN, UPSTREAM, Features, ReleaseBehaviour
from dra_extender.allocator.state.reasons import Code, NoFit
from dra_extender.model.allocation import DeviceHolding
from dra_extender.model.device import CounterConsumption
from dra_extender.model.resource_slice import ResourceSlice

from tests.support.allocator.building import (
    DRIVER,
    ask,
    claim_of,
    consuming,
    counters_of,
    every,
    exactly,
    frozen,
    held,
    picks,
    reasons,
    slice_of,
    typed,
)

OFF = dataclasses.replace(Features(), compatibility_groups=False)


def pool(*devices: dict[str, object], total: int = 4) -> list[ResourceSlice]:
    return [counters_of(set=total), slice_of(*devices, count=2)]


def test_groups_of_an_edited_slice_do_not_change_the_past() -> None:
    slices = pool(consuming("held", "new"), consuming("old", "old"), consuming("new", "new"))
    assert picks(ask(slices, claim_of(exactly()), usage=[held("held", consumption=frozen("old"))])) == [["old"]]
    assert picks(ask(slices, claim_of(exactly()), usage=[held("held")])) == [["new"]]


def noted(device: str, *groups: str, share_id: str | None = None) -> DeviceHolding:
    """Held with groups in its allocation and no other snapshot."""
    return msgspec.structs.replace(held(device, share_id=share_id), groups=(("set", groups),))


def test_groups_of_an_allocation_count_without_any_other_snapshot() -> None:
    """The amounts are those of the slice then; a device that is gone is a member without amounts."""
    slices = pool(consuming("held", "new", amount=3), consuming("old", "old"), consuming("new", "new"))
    assert picks(ask(slices, claim_of(exactly()), usage=[noted("held", "old")])) == [["old"]]
    short = pool(consuming("held", "new", amount=3), consuming("old", "old", amount=2))
    found = reasons(ask(short, claim_of(exactly()), usage=[noted("held", "old")]))
    assert found.rejections[0].code is Code.COUNTERS
    gone = pool(consuming("new", "new", amount=4), consuming("old", "old", amount=4))
    assert picks(ask(gone, claim_of(exactly()), usage=[noted("gone", "old")])) == [["old"]]


def test_groups_of_an_allocation_count_while_groups_are_off() -> None:
    slices = pool(consuming("held"), consuming("free"))
    assert picks(ask(slices, claim_of(exactly()), usage=[held("held")], features=OFF)) == [["free"]]
    found = reasons(ask(slices, claim_of(exactly()), usage=[noted("held", "mig")], features=OFF))
    assert Code.GROUPS in [each.code for each in found.rejections]


def test_share_with_groups_alone_counts_beside_one_with_a_snapshot() -> None:
    usage = [
        held("shared", share_id="1", consumption=frozen("a", "b", amount=1)),
        noted("shared", "b", share_id="2"),
    ]
    slices = pool(consuming("shared", "a", amount=2), consuming("free", "b", amount=2))
    assert picks(ask(slices, claim_of(exactly()), usage=usage)) == [["free"]]
    slices = pool(consuming("shared", "a", amount=2), consuming("free", "a", amount=2))
    assert reasons(ask(slices, claim_of(exactly()), usage=usage)).rejections[0].code is Code.GROUPS


def test_amounts_of_an_edited_slice_do_not_change_the_past() -> None:
    slices = pool(consuming("held", amount=1), consuming("free", amount=2))
    assert picks(ask(slices, claim_of(exactly()), usage=[held("held", consumption=frozen(amount=2))])) == [["free"]]
    found = reasons(ask(slices, claim_of(exactly()), usage=[held("held", consumption=frozen(amount=3))]))
    assert found.rejections[0].code is Code.COUNTERS
    assert found.rejections[0].detail == "free needs 2 of c in counter set set, 1 remain"


@pytest.mark.parametrize(
    ("consumption", "code"), [(frozen(amount=3), Code.COUNTERS), (frozen("x", amount=1), Code.GROUPS), (None, None)]
)
def test_vanished_device_counts_with_its_snapshot_only(
    consumption: tuple[CounterConsumption, ...] | None, code: Code | None
) -> None:
    slices = pool(consuming("free", amount=2))
    found = ask(slices, claim_of(exactly()), usage=[held("gone", consumption=consumption)])
    if code is None:
        assert picks(found) == [["free"]]
    else:
        assert reasons(found).rejections[0].code is code


def test_snapshot_without_consumption_means_that_nothing_was_drawn() -> None:
    """The device got its counters in a later slice."""
    slices = pool(consuming("held", "a", amount=4), consuming("free", "b", amount=4))
    assert picks(ask(slices, claim_of(exactly()), usage=[held("held", consumption=())])) == [["free"]]


def test_counters_that_are_no_longer_declared_do_not_matter() -> None:
    slices = pool(consuming("free", amount=4))
    usage = [held("gone", consumption=frozen(amount=9, counter_set="removed"))]
    assert picks(ask(slices, claim_of(exactly()), usage=usage)) == [["free"]]


def test_shares_of_one_device_draw_once_and_the_highest_snapshot_counts() -> None:
    usage = [
        held("shared", share_id="1", consumption=frozen("a", amount=1)),
        held("shared", share_id="2", consumption=frozen("a", "b", amount=2)),
        held("shared", share_id="3"),
    ]
    assert picks(ask(pool(consuming("free", "a", amount=2)), claim_of(exactly()), usage=usage)) == [["free"]]
    found = reasons(ask(pool(consuming("free", "a", amount=3)), claim_of(exactly()), usage=usage))
    assert found.rejections[0].code is Code.COUNTERS
    found = reasons(ask(pool(consuming("free", "b", amount=1)), claim_of(exactly()), usage=usage))
    assert found.rejections[0].code is Code.GROUPS


def test_admin_access_of_others_takes_nothing() -> None:
    slices = pool(consuming("d", "a", amount=4))
    usage = [held("d", admin=True, consumption=frozen("b", amount=4))]
    assert picks(ask(slices, claim_of(exactly()), usage=usage)) == [["d"]]


def test_placement_freezes_what_each_device_drew() -> None:
    slices = pool(consuming("d1", "a", amount=2), {"name": "plain"})
    found = ask(slices, claim_of(every()))
    assert picks(found) == [["d1", "plain"]]
    holdings: tuple[DeviceHolding, ...] = found.claims[0].holdings  # type: ignore[union-attr]
    assert [holding.consumption for holding in holdings] == [frozen("a", amount=2), ()]


def test_groups_off_closes_counter_sets_on_which_somebody_has_groups() -> None:
    """KEP-5963: the scheduler cannot check groups then, so it stays away from such sets."""
    two = [{"name": "one", "counters": {"c": {"value": "9"}}}, {"name": "two", "counters": {"c": {"value": "9"}}}]
    slices = [
        slice_of(name="counters", count=2, sharedCounters=two),
        slice_of(consuming("a", counter_set="one"), consuming("b", counter_set="two"), count=2),
    ]
    usage = [held("gone", consumption=frozen("mig", counter_set="one"))]
    assert picks(ask(slices, claim_of(exactly()), usage=usage, features=OFF)) == [["b"]]
    found = reasons(ask(slices, claim_of(exactly(2)), usage=usage, features=OFF))
    assert found.rejections[0].code is Code.GROUPS
    assert "CompatibilityGroups is off" in found.rejections[0].detail


def test_groups_off_skips_grouped_devices_and_judges_the_rest_of_the_pool() -> None:
    """KEP-5963: devices that do not declare groups are scheduled normally; the words name the device and the switch."""
    slices = [counters_of(set=9), slice_of(consuming("a", "x"), consuming("b"), "c", name="mixed", count=2)]
    assert picks(ask(slices, claim_of(exactly(2)), features=OFF)) == [["b", "c"]]
    assert picks(ask(slices, claim_of(every()), features=OFF)) == [["b", "c"]]
    short = reasons(ask(slices, claim_of(exactly(3)), features=OFF))
    detail = "2 of 3 devices found; a needs CompatibilityGroups, which is off"
    assert said(short) == [(Code.GROUPS_OFF, detail)]
    alone = reasons(ask([counters_of(set=9), slice_of(consuming("a", "x"), count=2)], claim_of(every()), features=OFF))
    assert alone.verdict == "no"


def test_groups_off_evaluates_no_selector_on_devices_that_it_skips() -> None:
    """A selector that fails on such a device rules nothing out; one that cannot mean it is told of no groups."""
    slices = [counters_of(set=9), slice_of(consuming("a", "x"), typed("b", "gpu"), count=2)]
    fails = f'device.attributes["{DRIVER}"].type == "gpu"'
    assert picks(ask(slices, claim_of(exactly(expression=fails)), features=OFF)) == [["b"]]
    other = f'"type" in device.attributes["{DRIVER}"]'
    found = reasons(ask(slices, claim_of(exactly(2, expression=other)), features=OFF))
    assert Code.GROUPS_OFF not in [each.code for each in found.rejections]


def test_groups_off_closes_the_set_of_a_holder_without_snapshot_that_has_groups_now() -> None:
    slices = [counters_of(set=9), slice_of(consuming("a", "x"), consuming("b"), "c", count=2)]
    assert picks(ask(slices, claim_of(exactly()), usage=[held("a")], features=OFF)) == [["c"]]


@pytest.mark.parametrize(("features", "release"), [(Features(), OWN), (OFF, OWN), (OFF, UPSTREAM)])
def test_pool_is_incomplete_without_its_slices_whatever_becomes_of_groups(
    features: Features, release: ReleaseBehaviour
) -> None:
    found = reasons(ask([slice_of("c", count=2)], claim_of(exactly()), features=features, release=release))
    assert found.rejections[0].code is Code.POOL_INCOMPLETE


def test_upstream_with_groups_off_ignores_slices_with_grouped_devices_as_a_whole() -> None:
    """The slices left decide whether the pool is complete, as in released schedulers; the words name slice and switch."""
    grouped = slice_of(consuming("a", "x"), "b", name="grouped", count=2)
    assert picks(ask([counters_of(set=9), grouped], claim_of(exactly(2)))) == [["a", "b"]]
    off = "ignored for compatibility groups: slice grouped; CompatibilityGroups is off"
    found = reasons(ask([counters_of(set=9), grouped], claim_of(exactly()), features=OFF, release=UPSTREAM))
    assert said(found)[0] == (Code.GROUPS_OFF, f"pool gpu.example.com/pool has 1 of 2 slices; {off}")
    fatal = reasons(ask([counters_of(set=9), grouped], claim_of(every()), features=OFF, release=UPSTREAM))
    assert (fatal.verdict, fatal.rejections[0].code) == ("fatal", Code.GROUPS_OFF)


def test_upstream_with_groups_off_says_so_where_a_pool_is_gone_or_sound_without_the_slice() -> None:
    pool, plain = "pool gpu.example.com/pool", slice_of("c", name="plain")
    first, second = (slice_of(consuming(each, "x"), name=f"grouped-{each}", count=2) for each in "ab")
    gone = reasons(ask([first, second], claim_of(exactly()), features=OFF, release=UPSTREAM))
    text = "ignored for compatibility groups: slice grouped-a and 1 more; CompatibilityGroups is off"
    assert said(gone) == [(Code.GROUPS_OFF, f"{pool}: {text}"), (Code.NO_DEVICES, "")]
    assert picks(ask([first, plain], claim_of(exactly()), features=OFF, release=UPSTREAM)) == [["c"]]
    short = reasons(ask([first, plain], claim_of(exactly()), usage=[held("c")], features=OFF, release=UPSTREAM))
    assert [each.code for each in short.rejections] == [Code.IN_USE, Code.GROUPS_OFF]
    assert picks(ask([first, plain], claim_of(every()), features=OFF, release=UPSTREAM)) == [["c"]]


def test_upstream_with_groups_off_says_nothing_of_slices_that_are_out_of_date_or_of_other_nodes() -> None:
    old = slice_of(consuming("a", "x"), name="old")
    new = slice_of("b", name="new", generation=2)
    elsewhere = slice_of(consuming("c", "x"), name="else", pool="other", nodeName="node-2")
    found = reasons(ask([old, new, elsewhere], claim_of(exactly(2)), features=OFF, release=UPSTREAM))
    assert [each.code for each in found.rejections] == [Code.COMBINATION]


def said(found: NoFit) -> list[tuple[Code, str]]:
    return [(each.code, each.detail) for each in found.rejections]
