"""Shared counters (KEP-4815)."""

import pytest
from dra_extender.allocator.rules.counter_sets import CounterBalance, CounterTable
from dra_extender.allocator.state.reasons import Code
from dra_extender.allocator.state.trail import Trail
from dra_extender.cel.values.quantity import NANO
from dra_extender.model.allocation import Placement
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


def draw(amount: int, counter_set: str = "set", counter: str = "c") -> CounterConsumption:
    return CounterConsumption(counter_set=counter_set, counters=((counter, amount),))


def test_reservation_may_use_exactly_what_remains() -> None:
    table = CounterTable({"set": {"c": 5}}, [("held", draw(2))])
    assert table.draw([draw(3)], Trail())
    assert not table.draw([draw(1)], Trail())


def test_set_listed_twice_counts_with_the_sum() -> None:
    assert not CounterTable({"set": {"c": 5}}, []).draw([draw(3), draw(3)], Trail())


def test_one_overdrawn_counter_blocks_every_device_that_draws_on_the_pool() -> None:
    table = CounterTable({"set": {"c": 1}, "other": {"c": 9}}, [("held", draw(2))])
    assert not table.draw([draw(1, "other")], Trail())
    assert table.shortage([draw(1, "other")]) == CounterBalance("set", "c", remaining=-1, requested=0)


def test_counters_of_one_name_in_two_sets_are_two_counters() -> None:
    table = CounterTable({"one": {"c": 1}, "two": {"c": 1}}, [])
    assert table.draw([draw(1, "one")], Trail())
    assert table.draw([draw(1, "two")], Trail())


@given(
    total=st.integers(0, 9),
    draws=st.lists(st.lists(st.builds(draw, st.integers(0, 4)), min_size=1, max_size=2), max_size=6),
)
def test_undo_gives_back_exactly_what_was_reserved(total: int, draws: list[list[CounterConsumption]]) -> None:
    table, trail = CounterTable({"set": {"c": total}}, []), Trail()
    marks, states = [], []
    for each in draws:
        marks.append(trail.mark())
        states.append(dict(table._remaining))
        if not table.draw(each, trail):
            trail.undo_to(marks[-1])
            assert table._remaining == states[-1]
    for mark, state in zip(reversed(marks), reversed(states), strict=True):
        trail.undo_to(mark)
        assert table._remaining == state


def test_search_leaves_a_large_partition_for_two_small_ones() -> None:
    slices = [
        counters_of(set=4),
        slice_of(consuming("big", amount=3), consuming("s1", amount=2), consuming("s2", amount=2), count=2),
    ]
    assert picks(ask(slices, claim_of(exactly(2)))) == [["s1", "s2"]]


def test_vanished_device_without_snapshot_frees_its_counters() -> None:
    """As upstream: nothing is known of what it drew."""
    slices = [counters_of(set=1), slice_of(consuming("a"), count=2)]
    assert picks(ask(slices, claim_of(exactly()), usage=[held("gone")])) == [["a"]]


def test_rejection_tells_amounts() -> None:
    slices = [counters_of(set=3), slice_of(consuming("a", amount=2), consuming("b", amount=2), count=2)]
    found = reasons(ask(slices, claim_of(exactly()), usage=[held("a")]))
    assert [each.code for each in found.rejections] == [Code.COUNTERS, Code.IN_USE]
    assert found.rejections[0].device == "b"
    assert found.rejections[0].detail == "b needs 2 of c in counter set set, 1 remain"


@pytest.mark.parametrize(("frozen", "fits"), [(None, False), (1, True), (8, False)])
def test_name_that_two_nodes_give_to_different_devices_counts_for_both_unless_it_was_frozen(
    frozen: int | None, fits: bool
) -> None:
    """Nobody notices such a name, since only devices for the node at hand are compared; one of the two is held."""
    slices = [
        counters_of(set=8, count=3),
        slice_of(consuming("twin", amount=8), name="there", count=3, nodeName="node-2"),
        slice_of(consuming("twin", amount=1), consuming("free", amount=1), name="here", count=3),
    ]
    entry = None if frozen is None else (CounterConsumption(counter_set="set", counters=(("c", frozen * NANO),)),)
    found = ask(slices, claim_of(exactly()), usage=[held("twin", consumption=entry)])
    assert isinstance(found, Placement) == fits
