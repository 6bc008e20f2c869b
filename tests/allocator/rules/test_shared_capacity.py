"""Shares of devices (KEP-5075): who may have a device beside whom, what shares draw, and what is written for them."""

import dataclasses
from typing import Any

import pytest
from dra_extender.allocator.allocate import allocate
from dra_extender.allocator.state.features import UPSTREAM, Features
from dra_extender.allocator.state.reasons import Code
from dra_extender.cel.values.quantity import NANO
from dra_extender.model.allocation import Placement

from tests.support.allocator.building import (
    NODE,
    Held,
    amount_of,
    ask,
    claim_of,
    consuming,
    counters_of,
    demand_of,
    either,
    every,
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
Json = dict[str, Any]


def written(found: object) -> list[tuple[str, str | None, dict[str, str] | None]]:
    assert isinstance(found, Placement), found
    results = [each for claim in found.claims for each in claim.allocation.devices.results]
    return [(each.device, each.share_id, each.consumed_capacity) for each in results]


def test_requests_and_claims_share_a_device_until_its_capacity_is_used_up() -> None:
    slices = [slice_of(shareable("a"), shareable("b"))]
    claims = [claim_of(amount_of("3"), amount_of("4", name="s")), claim_of(amount_of("1")), claim_of(amount_of("2"))]
    assert picks(ask(slices, *claims)) == [["a", "a"], ["a"], ["b"]]


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


def test_one_request_never_takes_two_shares_of_one_device() -> None:
    assert reasons(ask([slice_of(shareable("a", None))], claim_of(exactly(2)))).verdict == "no"
    assert picks(ask([slice_of(shareable("a", None))], claim_of(exactly(), exactly(name="s")))) == [["a", "a"]]


def test_device_without_capacities_is_shared_without_limit_and_its_shares_consume_nothing() -> None:
    found = ask([slice_of(shareable("a", None))], *(claim_of(exactly()) for _ in range(9)))
    assert written(found)[0] == ("a", "share-0", None)
    assert picks(found) == [["a"]] * 9


def test_capacity_that_is_not_requested_and_has_no_policy_is_taken_whole() -> None:
    slices = [slice_of(shareable("a"))]
    assert picks(ask(slices, claim_of(exactly()))) == [["a"]]
    found = reasons(ask(slices, claim_of(exactly()), claim_of(exactly())))
    assert found.rejections[0].text == (
        'claim "c1", request "r": capacity does not suffice: '
        "a has 0 of m left beside what claim c0, request r takes, 8 would be needed"
    )


def test_shares_of_other_claims_count() -> None:
    slices = [slice_of(shareable("a"), shareable("b"))]
    usage = [share("a", 3), share("a", 4, "t")]
    assert picks(ask(slices, claim_of(amount_of("1")), usage=usage)) == [["a"]]
    assert picks(ask(slices, claim_of(amount_of("2")), usage=usage)) == [["b"]]


def test_share_with_admin_access_of_another_claim_counts_for_nothing() -> None:
    usage = [share("a", 8, admin=True)]
    assert picks(ask([slice_of(shareable("a"))], claim_of(amount_of("8")), usage=usage)) == [["a"]]


def test_device_that_somebody_has_whole_is_not_shared() -> None:
    found = reasons(ask([slice_of(shareable("a"))], claim_of(amount_of("1")), usage=[held("a")]))
    assert found.rejections[0].code is Code.IN_USE


@pytest.mark.parametrize("features", [Features(), OFF])
def test_share_of_a_device_that_cannot_be_shared_keeps_it_from_others(features: Features) -> None:
    """With the feature off this is so for every device, and as a difference from upstream also after a republished slice."""
    device = shareable("a") if features is OFF else {"name": "a", "capacity": {"m": {"value": "8"}}}
    slices, usage = [slice_of(device)], [share("a", 2)]
    demand, pools = demand_of(claim_of(exactly()), features=features), pools_of(slices, features=features)
    assert reasons(ask(slices, claim_of(exactly()), usage=usage, features=features)).rejections[0].code is Code.IN_USE
    upstream = allocate(demand, NODE, pools, Held(*usage), rules=UPSTREAM)
    if features is OFF:
        assert picks(upstream) == [["a"]]
    else:
        assert reasons(upstream).rejections[0].detail == "a has 6 of m left, 8 would be needed"


def test_with_the_feature_off_a_shareable_device_is_taken_whole() -> None:
    slices = [slice_of(shareable("a"))]
    found = ask(slices, claim_of(exactly()), features=OFF)
    assert written(found) == [("a", None, None)]
    assert reasons(ask(slices, claim_of(exactly(), exactly(name="s")), features=OFF)).verdict == "no"


def test_capacity_request_chooses_among_devices_that_are_not_shared() -> None:
    devices = [{"name": name, "capacity": {"m": {"value": value}}} for name, value in (("a", "2"), ("b", "4"))]
    found = ask([slice_of(*devices)], claim_of(amount_of("3")))
    assert written(found) == [("b", None, None)]
    assert picks(ask([slice_of("plain", *devices)], claim_of(amount_of("1")))) == [["a"]]


def test_search_goes_on_with_the_next_device_and_comes_back_for_another_combination() -> None:
    """The first request leaves the large device to the second."""
    slices = [slice_of(shareable("a", "4"), shareable("b", "3"))]
    assert picks(ask(slices, claim_of(amount_of("3"), amount_of("4", name="s")))) == [["b", "a"]]


def test_all_leaves_out_devices_that_never_fit_and_fails_on_one_that_is_used_up() -> None:
    slices = [slice_of(shareable("a"), shareable("b", "2"), "plain")]
    wanted = claim_of(every(capacity={"requests": {"m": "4"}}))
    assert picks(ask(slices, wanted)) == [["a"]]
    found = reasons(ask(slices, wanted, usage=[share("a", 5)]))
    assert found.rejections[0].detail == "a has 3 of m left, 4 would be needed"


def test_all_beside_a_constraint_that_refuses_is_an_error_even_if_the_capacity_would_not_do() -> None:
    wanted = claim_of(every(), constraints=[{"matchAttribute": "x/y"}])
    found = reasons(ask([slice_of(shareable("a"))], wanted, usage=[share("a", 8)]))
    assert (found.verdict, found.rejections[0].code) == ("fatal", Code.CONSTRAINT)


def test_distinct_attribute_keeps_two_requests_off_one_device() -> None:
    devices = [shareable(name, attributes={"id": {"string": name}}) for name in "ab"]
    distinct = [{"distinctAttribute": "gpu.example.com/id"}]
    claim = claim_of(amount_of("1"), amount_of("1", name="s"), constraints=distinct)
    assert picks(ask([slice_of(*devices)], claim)) == [["a", "b"]]
    assert reasons(ask([slice_of(devices[0])], claim)).rejections[0].code is Code.CONSTRAINT


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
