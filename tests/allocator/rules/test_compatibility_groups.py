"""Compatibility groups (KEP-5963): three states per counter set, folded one member at a time."""

import pytest
from dra_extender.allocator.rules.compatibility_groups import GroupState, GroupTable, admits, state_with
from dra_extender.allocator.state.reasons import Code
from dra_extender.allocator.state.trail import Trail
from dra_extender.model.device import CounterConsumption
from hypothesis import given
from hypothesis import strategies as st

from tests.support.allocator.building import (
    ask,
    claim_of,
    consuming,
    counters_of,
    exactly,
    held,
    picks,
    reasons,
    slice_of,
)


def draws(*groups: str, counter_set: str = "set") -> CounterConsumption:
    return CounterConsumption(counter_set=counter_set, compatibility_groups=groups)


@pytest.mark.parametrize(
    ("state", "groups", "admitted"),
    [
        ("empty", (), True),
        ("empty", ("a",), True),
        (None, (), True),
        (None, ("a",), False),
        (frozenset({"a", "b"}), ("b", "c"), True),
        (frozenset({"a", "b"}), ("c",), False),
        (frozenset({"a"}), (), False),
        (frozenset(), ("a",), False),
        (frozenset(), (), False),
    ],
)
def test_admission_by_state(state: object, groups: tuple[str, ...], admitted: bool) -> None:
    states: dict[str, GroupState] = {} if state == "empty" else {"set": state}  # type: ignore[dict-item]
    assert admits(states, draws(*groups)) is admitted


@pytest.mark.parametrize(
    ("state", "groups", "after"),
    [
        ("empty", (), None),
        ("empty", ("a",), frozenset({"a"})),
        (None, ("a",), frozenset()),
        (frozenset({"a"}), (), frozenset()),
        (frozenset(), (), frozenset()),
        (frozenset({"a", "b"}), ("b", "c"), frozenset({"b"})),
        (frozenset({"a"}), ("b",), frozenset()),
    ],
)
def test_folding_by_state(state: object, groups: tuple[str, ...], after: GroupState) -> None:
    states: dict[str, GroupState] = {} if state == "empty" else {"set": state}  # type: ignore[dict-item]
    assert state_with(states, draws(*groups)) == after


def test_rolling_intersection_is_stricter_than_pairs() -> None:
    """After {a,b} and {b,c}, {a,c} is refused though it overlaps both."""
    table = GroupTable([("d1", draws("a", "b")), ("d2", draws("b", "c"))])
    trail = Trail()
    assert not table.join([draws("a", "c")], trail)
    assert table.join([draws("b")], trail)


def test_each_entry_is_folded_before_the_next_is_tested() -> None:
    """A device that lists one set twice is tested against itself."""
    assert not GroupTable([]).join([draws("a"), draws("b")], Trail())
    assert GroupTable([]).join([draws("a", "b"), draws("b", "c")], Trail())


def test_every_counter_set_of_a_device_must_admit_it() -> None:
    table = GroupTable([("d1", draws("x", counter_set="two"))])
    assert not table.join([draws("a", counter_set="one"), draws("a", counter_set="two")], Trail())


groups = st.lists(st.sampled_from("abc"), unique=True, max_size=3).map(tuple)
entries = st.builds(lambda name, found: draws(*found, counter_set=name), st.sampled_from(["one", "two"]), groups)


@given(held=st.lists(entries, max_size=4), candidates=st.lists(st.lists(entries, min_size=1, max_size=2), max_size=5))
def test_refused_or_undone_members_leave_no_trace(
    held: list[CounterConsumption], candidates: list[list[CounterConsumption]]
) -> None:
    table = GroupTable([("held", entry) for entry in held])
    trail = Trail()
    for candidate in candidates:
        before = dict(table._states)
        mark = trail.mark()
        table.join(candidate, trail)
        trail.undo_to(mark)
        assert table._states == before
        if not table.join(candidate, trail):
            trail.undo_to(mark)


@given(members=st.lists(groups, min_size=1, max_size=5))
def test_members_admitted_one_by_one_share_a_group_or_all_have_none(members: list[tuple[str, ...]]) -> None:
    table = GroupTable([])
    admitted = [member for member in members if table.join([draws(*member)], Trail())]
    assert admitted
    assert set.intersection(*map(set, admitted)) or not any(admitted)


MIG = [consuming("mig-0", "mig"), consuming("mig-1", "mig")]
VGPU = [consuming("vgpu-0", "vgpu")]


def test_kep_example_mig_keeps_vgpu_away_and_says_why() -> None:
    slices = [counters_of(set=9), slice_of(*MIG, *VGPU, count=2)]
    assert picks(ask(slices, claim_of(exactly()), usage=[held("mig-0")])) == [["mig-1"]]
    found = reasons(ask(slices, claim_of(exactly(2)), usage=[held("mig-0")]))
    assert found.verdict == "no"
    assert found.rejections[0].code is Code.GROUPS
    assert found.rejections[0].detail == (
        "1 of 2 devices found; vgpu-0 declares [vgpu] on counter set set; "
        "mig-0 (in use) has [mig]; mig-1 (for the same request) has [mig]; together they leave [mig]"
    )


def test_search_backtracks_out_of_a_group_conflict() -> None:
    """The first device is refused a partner, so the pair that shares a group is found."""
    slices = [counters_of(set=9), slice_of(consuming("a", "x"), consuming("b", "y"), consuming("c", "y"), count=2)]
    assert picks(ask(slices, claim_of(exactly(2)))) == [["b", "c"]]


def test_same_names_in_other_pools_and_drivers_are_other_counter_sets() -> None:
    slices = [
        counters_of(set=9),
        slice_of(consuming("a", "x"), count=2),
        counters_of(name="counters-2", pool="other", set=9),
        slice_of(consuming("b", "y"), name="slice-2", pool="other", count=2),
        slice_of(consuming("c", "z"), name="slice-3", driver="nic.example.com", count=2),
        slice_of(
            name="counters-3",
            driver="nic.example.com",
            count=2,
            sharedCounters=[{"name": "set", "counters": {"c": {"value": "9"}}}],
        ),
    ]
    assert picks(ask(slices, claim_of(exactly(3)))) == [["b", "a", "c"]]
