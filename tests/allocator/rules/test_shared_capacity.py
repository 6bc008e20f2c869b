"""Shares of devices (KEP-5075): who may have a device beside whom, what shares draw, and what is written for them."""

import dataclasses

import pytest
from dra_extender.allocator.state.features import UPSTREAM, Features
from dra_extender.allocator.state.reasons import Code
from dra_extender.cel.values.quantity import NANO
from dra_extender.model.allocation import Placement

from tests.support.allocator.building import (
    NODE,
    Held,
    allocate,
    amount_of,
    ask,
    claim_of,
    consuming,
    counters_of,
    demand_of,
    either,
    exactly,
    held,
    picks,
    pools_of,
    reasons,
    share,
    shareable,
    slice_of,
)

OFF = dataclasses.replace(Features(), consumable_capacity=False)


def written(found: object) -> list[tuple[str, str | None, dict[str, str] | None]]:
    assert isinstance(found, Placement), found
    results = [each for claim in found.claims for each in claim.allocation.devices.results]
    return [(each.device, each.share_id, each.consumed_capacity) for each in results]


def test_results_and_holdings_name_the_share_and_what_it_takes() -> None:
    found = ask([slice_of(shareable("a", "8Gi"))], claim_of(amount_of("1Gi"), amount_of("512Mi", name="s")))
    assert written(found) == [("a", "share-0", {"m": "1Gi"}), ("a", "share-1", {"m": "512Mi"})]
    assert isinstance(found, Placement)
    assert [(each.share_id, each.consumed_capacity) for each in found.claims[0].holdings] == [
        ("share-0", (("m", 2**30 * NANO),)),
        ("share-1", (("m", 2**29 * NANO),)),
    ]


def test_share_ids_come_from_outside() -> None:
    names = iter(["x", "y"])
    demand = demand_of(claim_of(amount_of("1")), claim_of(amount_of("1")))
    found = allocate(demand, NODE, pools_of([slice_of(shareable("a"))]), Held(), new_share_id=lambda: next(names))
    assert [share_id for _, share_id, _ in written(found)] == ["x", "y"]


@pytest.mark.parametrize("features", [Features(), OFF])
def test_share_of_a_device_that_cannot_be_shared_keeps_it_from_others(features: Features) -> None:
    """With the feature off this is so for every device, and as a difference from upstream also after a republished slice."""
    device = shareable("a") if features is OFF else {"name": "a", "capacity": {"m": {"value": "8"}}}
    slices, usage = [slice_of(device)], [share("a", 2)]
    demand, pools = demand_of(claim_of(exactly()), features=features), pools_of(slices, features=features)
    assert reasons(ask(slices, claim_of(exactly()), usage=usage, features=features)).rejections[0].code is Code.IN_USE
    upstream = allocate(demand, NODE, dataclasses.replace(pools, release=UPSTREAM), Held(*usage))
    if features is OFF:
        assert picks(upstream) == [["a"]]
    else:
        assert reasons(upstream).rejections[0].detail == "a has 6 of m left, 8 would be needed"


@pytest.mark.parametrize("amount", [1, None])
def test_counters_are_drawn_once_however_many_shares_a_device_has(amount: int | None) -> None:
    """Also where the share of another claim says nothing about capacity."""
    device = shareable("a", None) if amount is None else shareable("a")
    slices = [counters_of(set=4), slice_of({**consuming("a", amount=4), **device}, consuming("b", amount=1), count=2)]
    more = claim_of(exactly(name="s") if amount is None else amount_of("1", name="s"))
    first = claim_of(exactly() if amount is None else amount_of("1"))
    assert picks(ask(slices, first, more)) == [["a"], ["a"]]
    assert picks(ask(slices, more, usage=[share("a", amount)])) == [["a"]]
    none = reasons(ask(slices, claim_of(exactly(expression="!device.allowMultipleAllocations")), usage=[share("a", 1)]))
    assert none.rejections[0].code is Code.COUNTERS


def test_groups_are_asked_for_the_first_share_only() -> None:
    device = {**consuming("a", "x"), **shareable("a")}
    other = consuming("b", "y")
    slices = [counters_of(set=9), slice_of(device, other, count=2)]
    shared_only = "device.allowMultipleAllocations"
    wanted = claim_of(amount_of("1", expression=shared_only), amount_of("1", name="s", expression=shared_only))
    assert picks(ask(slices, wanted, usage=[share("a", 1), held("b")])) == [["a", "a"]]
    found = reasons(ask(slices, wanted, usage=[held("b")]))
    assert found.rejections[0].code is Code.GROUPS


def test_share_given_up_by_the_search_returns_its_counters_and_the_first_share_stays_known() -> None:
    """The last request fits nowhere beside two shares of `a`; the alternatives that go with `b` leave no trace."""
    slices = [
        counters_of(set=4),
        slice_of(
            {**consuming("a", amount=3), **shareable("a", None)},
            {**consuming("b", amount=4), **shareable("b", None)},
            consuming("c", amount=1),
            count=2,
        ),
    ]
    options = [exactly(expression="device.allowMultipleAllocations && false"), exactly()]
    claim = claim_of(
        exactly(), either(*options, name="s"), exactly(name="t", expression="!device.allowMultipleAllocations")
    )
    assert picks(ask(slices, claim)) == [["a", "a", "c"]]


def test_amount_that_cannot_be_computed_ends_the_attempt_with_an_error() -> None:
    broken = shareable("a", policy={"validRange": {"min": "0", "step": "0"}})
    found = reasons(ask([slice_of(broken, shareable("b"))], claim_of(amount_of("1"))))
    assert (found.verdict, found.rejections[0].code) == ("fatal", Code.AMOUNT_INVALID)
    assert found.rejections[0].detail.startswith("device a: capacity m: its request policy has a step")


def test_many_shares_that_do_not_all_fit_are_refused_without_trying_every_combination() -> None:
    slices = [slice_of(*(shareable(f"d{index}", "2") for index in range(8)))]
    found = reasons(ask(slices, claim_of(*(amount_of("1", name=f"r{index}") for index in range(17)))))
    assert found.rejections[0].code is Code.CAPACITY
    assert found.steps < 5_000
