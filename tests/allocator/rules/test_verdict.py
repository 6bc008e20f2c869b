"""The one rule (`allocator.rules.violations`), case by case; `test_verdict_property.py` compares it with search and oracle."""

from collections.abc import Sequence

import pytest
from dra_extender.allocator.rules.violations import (
    CAPACITY,
    COUNTERS,
    DEVICE,
    GROUPS,
    pool_violation,
    published_pool,
)
from dra_extender.cel.values.quantity import NANO
from dra_extender.model.allocation import DeviceHolding
from dra_extender.model.device import CounterConsumption
from dra_extender.model.resource_slice import ResourceSlice

from tests.support.allocator.building import (
    DRIVER,
    Held,
    consuming,
    contradictions,
    counters_of,
    frozen,
    held,
    share,
    slice_of,
)

POOL = (DRIVER, "pool")


def counted(device: str, amount: int = 1, share_id: str = "s", *groups: str) -> DeviceHolding:
    """A share with a snapshot."""
    return share(device, amount, share_id, consumption=frozen(*groups))


def kind(slices: Sequence[ResourceSlice], usage: Sequence[DeviceHolding], *addition: DeviceHolding) -> str | None:
    found = pool_violation(published_pool(POOL, slices), Held(*usage).pool(POOL), addition)
    return None if found is None else found.kind


SLICES = [
    counters_of(set=4),
    slice_of(
        consuming("d", "a"), {**consuming("s"), "allowMultipleAllocations": True, "capacity": {"m": {"value": "4"}}}
    ),
]


@pytest.mark.parametrize(
    ("usage", "addition", "expected"),
    [
        ([], [held("d")], None),
        ([held("d")], [held("d")], DEVICE),
        ([held("s")], [counted("s")], DEVICE),
        ([counted("s")], [held("s", consumption=())], DEVICE),
        ([], [held("d"), held("d")], DEVICE),
        ([held("d", admin=True)], [held("d")], None),
        ([held("d")], [held("d", admin=True)], None),
        ([counted("s", 2)], [counted("s", 2, "t")], None),
        ([counted("s", 2)], [counted("s", 3, "t")], CAPACITY),
        ([], [counted("s", 2), counted("s", 3, "t")], CAPACITY),
        ([counted("s", 5)], [counted("s", 0, "t")], None),
        ([], [counted("s", 5)], CAPACITY),
        ([held("x", consumption=frozen(amount=3))], [held("y", consumption=frozen(amount=1))], None),
        ([held("x", consumption=frozen(amount=3))], [held("y", consumption=frozen(amount=2))], COUNTERS),
        ([held("x", consumption=frozen("a"))], [held("y", consumption=frozen("a", "b"))], None),
        ([held("x", consumption=frozen("a"))], [held("y", consumption=frozen("b"))], GROUPS),
        ([held("x", consumption=frozen("a"))], [held("y", consumption=frozen())], GROUPS),
        ([held("x", consumption=frozen())], [held("y", consumption=frozen("a"))], GROUPS),
        ([], [held("x", consumption=frozen("a")), held("y", consumption=frozen("b"))], GROUPS),
        ([held("d")], [held("y", consumption=frozen("a"))], None),
        ([held("d")], [held("y", consumption=frozen("b"))], GROUPS),
    ],
)
def test_what_may_be_beside_what(
    usage: list[DeviceHolding], addition: list[DeviceHolding], expected: str | None
) -> None:
    assert kind(SLICES, usage, *addition) == expected


CONTRADICTION = [held("x", consumption=frozen("a")), held("y", consumption=frozen())]
EMPTY_INTERSECTION = [
    held("x", consumption=frozen("a", "b")),
    held("y", consumption=frozen("b", "c")),
    held("z", consumption=frozen("a", "c")),
]


@pytest.mark.parametrize("members", [CONTRADICTION, EMPTY_INTERSECTION])
@pytest.mark.parametrize("groups", [(), ("a",), ("b",), ("a", "b", "c")])
def test_set_whose_members_contradict_each_other_admits_no_new_member(
    members: list[DeviceHolding], groups: tuple[str, ...]
) -> None:
    for order in (members, members[::-1]):
        assert kind(SLICES, order, held("new", consumption=frozen(*groups))) == GROUPS


def test_further_share_is_blamed_for_nothing_that_was_there_before() -> None:
    """Groups in conflict and counters overdrawn by others: the device is a member already, whatever the new snapshot says."""
    usage = [counted("s"), *CONTRADICTION, held("z", consumption=frozen(amount=9))]
    for groups in ((), ("a",), ("b",)):
        assert kind(SLICES, usage, counted("s", 1, "t", *groups)) is None
    assert kind(SLICES, usage, counted("s", 4, "t")) == CAPACITY


def test_addition_to_another_counter_set_or_to_none_is_not_blamed_for_a_broken_one() -> None:
    usage = [*CONTRADICTION, held("z", consumption=frozen(amount=9))]
    other = CounterConsumption(counter_set="other", counters=(("c", NANO),))
    assert kind([counters_of(set=4, other=1), *SLICES[1:]], usage, held("new", consumption=(other,))) is None
    assert kind(SLICES, usage, held("new", consumption=())) is None


def test_contradictions_name_everything_that_should_not_be_beside_each_other() -> None:
    usage = Held(
        *CONTRADICTION, held("z", consumption=frozen(amount=9)), held("d"), held("d"), counted("s", 5), held("q")
    )
    found = [(each.kind, each.name) for each in contradictions(published_pool(POOL, SLICES), usage.pool(POOL))]
    assert sorted(found) == [(CAPACITY, "s"), (COUNTERS, "set"), (DEVICE, "d"), (GROUPS, "set")]
    assert not (contradictions(published_pool(POOL, SLICES), Held(held("d"), held("q")).pool(POOL)))
