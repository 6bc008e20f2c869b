"""Bugs that upstream's allocator has or had, one test each; numbers are those of issues and pull requests of Kubernetes."""

import dataclasses
import itertools
from typing import Any

import msgspec
import pytest
from dra_extender.allocator.overlay.taint_rules import TaintOverlay
from dra_extender.allocator.pools.pools import node_pools
from dra_extender.allocator.rules.capacity import amount_text
from dra_extender.allocator.state.features import OWN, UPSTREAM, Features, ReleaseBehaviour
from dra_extender.allocator.state.reasons import Code, NoFit
from dra_extender.cel.values.quantity import parse_quantity
from dra_extender.ledger.slices import SliceIndex
from dra_extender.ledger.usage import UsageTable
from dra_extender.model.allocation import Placement
from dra_extender.model.device_taint_rule import read_device_taint_rule
from dra_extender.model.node import Node
from dra_extender.model.resource_claim import ResourceClaim
from dra_extender.model.resource_slice import ResourceSlice
from hypothesis import given
from hypothesis import strategies as st

from tests.support.allocator.building import (
    DRIVER,
    NODE,
    amount_of,
    ask,
    claim_of,
    consuming,
    counters_of,
    either,
    every,
    exactly,
    held,
    picks,
    reasons,
    share,
    sized,
    slice_of,
)
from tests.support.examples import examples

Json = dict[str, Any]
TAINT = [{"key": "broken", "effect": "NoSchedule"}]
SHAREABLE: Json = {"allowMultipleAllocations": True}


def beside(kept_out: str, *groups: str, amount: int) -> tuple[list[ResourceSlice], ResourceClaim]:
    """Devices z, a and b, and a claim that gets z first and then b, because `a` has a taint or is refused by a constraint."""
    different: Json = {"attributes": {"k": {"int": 1}}, **({"taints": TAINT} if kept_out == "taint" else {})}
    same: Json = {"attributes": {"k": {"int": 2 if kept_out == "constraint" else 1}}}
    first = slice_of({"name": "z", **same}, name="first", pool="a-first")
    partitions = [
        consuming("a", *groups[:1], amount=amount, **different),
        consuming("b", *groups[1:], amount=amount, **same),
    ]
    claim = claim_of(exactly(), exactly(name="s"), constraints=[{"matchAttribute": "gpu.example.com/k"}])
    return [counters_of(set=4), slice_of(*partitions, count=2), first], claim


@pytest.mark.parametrize("kept_out", ["taint", "constraint"])
def test_140436_device_that_is_refused_returns_its_counters(kept_out: str) -> None:
    slices, claim = beside(kept_out, amount=4)
    assert picks(ask(slices, claim)) == [["z", "b"]]


@pytest.mark.parametrize("kept_out", ["taint", "constraint"])
def test_139795_groups_widen_again_when_a_device_is_refused(kept_out: str) -> None:
    slices, claim = beside(kept_out, "mig", "vgpu", amount=1)
    assert picks(ask(slices, claim)) == [["z", "b"]]


def test_140431_share_given_up_returns_the_counters_that_it_drew() -> None:
    """The first alternative takes a share of `a`, then fails on its second device; `c` needs the counters of `a`."""
    slices = [
        counters_of(set=4),
        slice_of(consuming("a", amount=4, **SHAREABLE), consuming("c", amount=4), count=2),
    ]
    shareable = "device.allowMultipleAllocations"
    wanted = either(exactly(2, expression=shareable), exactly(expression=f"!{shareable}"))
    assert picks(ask(slices, claim_of(wanted))) == [["c"]]


def test_140431_all_that_fails_on_capacity_leaves_no_constraint_behind() -> None:
    """Device `a` joins the constraint before its capacity is looked at; the next alternative must not see it."""
    devices = [sized(name, attributes={"k": {"string": name}}, **SHAREABLE) for name in "ab"]
    match = [{"matchAttribute": "gpu.example.com/k"}]
    only_a = 'device.attributes["gpu.example.com"].k == "a"'
    whole = every(expression=only_a, capacity={"requests": {"m": "8"}})
    wanted = either(whole, amount_of("8", expression=f"!({only_a})"))
    usage = [share("a", share_id="x")]
    assert picks(ask([slice_of(*devices)], claim_of(wanted, constraints=match), usage=usage)) == [["b"]]


def test_140431_share_of_a_device_without_capacities_leaves_no_mark_when_it_is_given_up() -> None:
    """A mark that stays would let the next share of `a` in without counters."""
    slices = [
        counters_of(set=4),
        slice_of(consuming("a", amount=3, **SHAREABLE), consuming("b", amount=3), count=2),
    ]
    impossible = exactly(2, expression="device.allowMultipleAllocations")
    wanted = claim_of(either(impossible, exactly(expression="!device.allowMultipleAllocations")), exactly(name="s"))
    assert reasons(ask(slices, wanted)).rejections[0].code is Code.COUNTERS


def test_140431_zero_amounts_keep_the_mark_of_the_first_share() -> None:
    """A second share that takes nothing is tried and given up; a third one still pays no counters again."""
    slices = [counters_of(set=3), slice_of(sized("a", **consuming_more(3), **SHAREABLE), count=2)]
    nothing = either(amount_of("0"), amount_of("0"), name="s")
    last = amount_of("0", name="t")
    assert picks(ask(slices, claim_of(amount_of("0"), nothing, last))) == [["a", "a", "a"]]


def consuming_more(amount: int) -> Json:
    return {"consumesCounters": consuming("x", amount=amount)["consumesCounters"]}


def test_pools_of_one_name_of_two_drivers_have_counters_of_their_own() -> None:
    other: Json = {"driver": "nic.example.com", "count": 2}
    sets = [{"name": "set", "counters": {"c": {"value": "1"}}}]
    slices = [counters_of(set=1), slice_of(consuming("a"), count=2)]
    slices += [slice_of(name="s3", sharedCounters=sets, **other), slice_of(consuming("b"), name="s4", **other)]
    drivers = [
        exactly(name=f"r{i}", expression=f'device.driver == "{d}"') for i, d in enumerate((DRIVER, other["driver"]))
    ]
    assert picks(ask(slices, claim_of(*drivers))) == [["a", "b"]]


@pytest.mark.parametrize(
    ("values", "found"),
    [([[1, 2], [1], [2], [2]], ["d0", "d2", "d3"]), ([[1, 2], [2], [1, 3], [1]], ["d0", "d2", "d3"])],
)
def test_140300_common_values_widen_again_when_a_device_is_given_up(values: list[list[int]], found: list[str]) -> None:
    devices = [{"name": f"d{i}", "attributes": {"k": {"ints": each}}} for i, each in enumerate(values)]
    match = [{"matchAttribute": "gpu.example.com/k"}]
    assert picks(ask([slice_of(*devices)], claim_of(exactly(3), constraints=match))) == [found]


def test_140438_distinct_values_are_compared_with_every_device() -> None:
    devices = [{"name": f"d{i}", "attributes": {"k": {"int": each}}} for i, each in enumerate((1, 2, 1, 3))]
    distinct = [{"distinctAttribute": "gpu.example.com/k"}]
    assert picks(ask([slice_of(*devices)], claim_of(exactly(3), constraints=distinct))) == [["d0", "d1", "d3"]]


def test_140433_counters_of_a_shared_device_are_drawn_once_for_all_its_shares() -> None:
    slices = [
        counters_of(set=4),
        slice_of(consuming("a", amount=3, **SHAREABLE), consuming("b", amount=1), consuming("c", amount=1), count=2),
    ]
    usage = [share("a", None, "x"), share("a", None, "y")]
    assert picks(ask(slices, claim_of(exactly(expression="!device.allowMultipleAllocations")), usage=usage)) == [["b"]]
    assert picks(ask(slices, claim_of(exactly()), usage=usage)) == [["a"]]
    two = claim_of(exactly(2, expression="!device.allowMultipleAllocations"))
    assert reasons(ask(slices, two, usage=usage)).rejections[0].code is Code.COUNTERS


def test_139034_counters_of_a_shared_device_are_not_given_away_again() -> None:
    slices = [counters_of(set=4), slice_of(consuming("a", amount=4, **SHAREABLE), consuming("b", amount=1), count=2)]
    wanted = claim_of(exactly(expression="!device.allowMultipleAllocations"))
    assert reasons(ask(slices, wanted, usage=[share("a", share_id="x")])).rejections[0].code is Code.COUNTERS


@examples(50)
@given(st.permutations(range(4)))
def test_141117_slices_that_state_different_counts_are_judged_by_the_first_name_not_by_arrival(
    order: list[int],
) -> None:
    """The pools have two slices each, of which one says so; what counts is what the first one by name says."""
    odd = [slice_of("x", name="a", count=1), slice_of("y", name="b", count=2)]
    even = [slice_of("v", name="c", pool="even", count=2), slice_of("w", name="d", pool="even", count=1)]
    index = SliceIndex()
    for each in order:
        index.put((odd + even)[each])
    found = node_pools(NODE, index.local(NODE.name), index.near(NODE), index.of_pool, Features())
    assert [(pool.label, pool.problem) for pool in found.pools] == [
        (f"{DRIVER}/even", None),
        (f"{DRIVER}/pool", Code.POOL_INCOMPLETE),
    ]


@examples(50)
@given(st.permutations(range(4)), st.permutations(range(4)))
def test_139795_review_shares_of_one_device_come_and_go_in_any_order(added: list[int], removed: list[int]) -> None:
    shares = [share("a", i, f"s{i}") for i in range(3)] + [share("a", None, "z")]
    table = UsageTable()
    for index in added:
        table.add([shares[index]])
    for gone, index in enumerate(removed, start=1):
        assert len(table.pool((DRIVER, "pool"))["a"]) == 5 - gone
        table.remove([shares[index]])
    assert not table.pool((DRIVER, "pool"))


def test_140769_all_fails_on_a_device_that_is_used_up_instead_of_leaving_it_out() -> None:
    slices = [slice_of(sized("a", "1", **SHAREABLE), sized("b", "1", **SHAREABLE))]
    wanted = claim_of(every(capacity={"requests": {"m": "1"}}))
    assert reasons(ask(slices, wanted, usage=[share("a", share_id="x")])).rejections[0].code is Code.CAPACITY


def test_140769_steps_beyond_64_bits_are_an_error_not_another_number() -> None:
    policy = {"default": "1", "validRange": {"min": "1", "step": "9E"}}
    device = {"name": "a", "capacity": {"m": {"value": "100E", "requestPolicy": policy}}, **SHAREABLE}
    found = reasons(ask([slice_of(device)], claim_of(amount_of("9200P"))))
    assert (found.verdict, found.rejections[0].code) == ("fatal", Code.AMOUNT_INVALID)


def test_amounts_that_are_no_whole_numbers_are_not_changed_by_adding_them_up() -> None:
    """Upstream keeps "1.5Gi" in an object that sums used to change."""
    slices = [slice_of(sized("a", "6Gi", **SHAREABLE))]
    found = ask(slices, *(claim_of(amount_of("1.5Gi")) for _ in range(4)))
    assert isinstance(found, Placement)
    taken = [each.holdings[0].consumed_capacity[0][1] for each in found.claims]
    assert taken == [parse_quantity("1.5Gi")] * 4
    assert {amount_text(each, "6Gi") for each in taken} == {"1536Mi"}


def test_140729_admin_access_pays_counters() -> None:
    """So does upstream; kept until it is decided there."""
    slices = [counters_of(set=4), slice_of(consuming("a", amount=4), count=2)]
    found = reasons(ask(slices, claim_of(exactly(adminAccess=True)), usage=[held("a")]))
    assert found.rejections[0].code is Code.COUNTERS


def test_141091_consuming_devices_make_all_fail_while_partitionable_devices_are_off() -> None:
    """So does upstream: they are meant, but cannot be had."""
    off = dataclasses.replace(Features(), partitionable_devices=False)
    found = reasons(ask([slice_of("a", consuming("b"))], claim_of(every()), features=off))
    assert (found.verdict, found.rejections[0].code) == ("no", Code.REQUEST_UNSUPPORTED)


def test_140802_device_that_left_its_slice_keeps_its_counters_and_groups_while_it_is_held() -> None:
    """Upstream reads them from the slice, so that they would be given away again; likewise for an edited slice."""
    taken = ask([counters_of(set=4), slice_of(consuming("gone", "mig", amount=3), count=2)], claim_of(exactly()))
    assert isinstance(taken, Placement)
    usage = taken.claims[0].holdings
    for now, code in ((consuming("b", "mig", amount=2), Code.COUNTERS), (consuming("b", "vgpu"), Code.GROUPS)):
        found = reasons(ask([counters_of(set=4), slice_of(now, count=2)], claim_of(exactly()), usage=usage))
        assert found.rejections[0].code is code
    edited = [counters_of(set=4), slice_of(consuming("gone", "vgpu", amount=1), consuming("b", "vgpu"), count=2)]
    assert reasons(ask(edited, claim_of(exactly()), usage=usage)).rejections[0].code is Code.GROUPS


def test_141898_all_beside_an_incomplete_pool_rules_out_that_node_alone() -> None:
    """The allocator's verdict is upstream's (an error); who asks about several nodes takes it for this node's."""
    broken = slice_of("a", pool="broken", count=2)
    sound = slice_of("b", pool="sound", nodeName="node-2")
    wanted = claim_of(every())
    found = reasons(ask([broken, sound], wanted))
    assert (found.verdict, found.rejections[0].code) == ("fatal", Code.POOL_INCOMPLETE)
    assert picks(ask([broken, sound], wanted, node=Node(name="node-2"))) == [["b"]]


def test_taint_rule_without_selector_taints_nothing_and_one_with_an_empty_selector_everything() -> None:
    """Up to 1.37.0 upstream's tracker took both for everything."""
    taint = {"key": "broken", "effect": "NoSchedule"}
    for selector, picked in (({}, [["a"]]), ({"deviceSelector": {}}, None)):
        raw = {"metadata": {"name": "all"}, "spec": {"taint": taint, **selector}}
        rule = read_device_taint_rule(msgspec.json.encode(raw))
        slices = [TaintOverlay([rule]).apply(slice_of("a", "b"))]
        found = ask(slices, claim_of(exactly()))
        if picked:
            assert picks(found) == picked
        else:
            assert reasons(found).rejections[0].code is Code.TAINTED


def test_130160_pools_with_binding_conditions_are_tried_last_and_otherwise_the_order_stays() -> None:
    waiting = {"name": "w", "bindingConditions": ["ready"], "bindingFailureConditions": ["failed"]}
    slices = [
        slice_of(waiting, name="s1", pool="a"),
        slice_of("x", name="s2", pool="b"),
        slice_of("y", name="s3", pool="c"),
    ]
    assert picks(ask(slices, claim_of(exactly(3)))) == [["x", "y", "w"]]
    assert picks(ask(slices, claim_of(exactly()), usage=[held("x", pool="b"), held("y", pool="c")])) == [["w"]]


def test_5941_claims_share_a_device_and_each_pays_for_its_share() -> None:
    """Several claims of one pod, and those of others, on one device with counters; a third share does not fit."""
    slices = [counters_of(set=3), slice_of(sized("a", **consuming_more(3), **SHAREABLE), count=2)]
    two = [claim_of(amount_of("3")), claim_of(amount_of("3"))]
    assert picks(ask(slices, *two)) == [["a"], ["a"]]
    assert picks(ask(slices, two[0], usage=[share("a", 5, "x")])) == [["a"]]
    assert reasons(ask(slices, *two, usage=[share("a", 5, "x")])).rejections[0].code is Code.CAPACITY


@pytest.mark.parametrize(
    ("requested", "published", "release", "found"),
    [
        pytest.param("gpu.example.com/m", "m", OWN, [["a"]], id="full-name"),
        pytest.param("m", "gpu.example.com/m", OWN, [["a"]], id="bare-name"),
        pytest.param("nic.example.com/m", "m", OWN, None, id="name-of-another-driver"),
        pytest.param("gpu.example.com/m", "m", UPSTREAM, None, id="until-1.37"),
    ],
)
def test_140650_a_capacity_may_be_requested_with_the_name_of_its_driver_and_without(
    requested: str, published: str, release: ReleaseBehaviour, found: list[list[str]] | None
) -> None:
    device = {"name": "a", "capacity": {published: {"value": "8"}}, **SHAREABLE}
    claim = claim_of(exactly(capacity={"requests": {requested: "4"}}))
    placement = ask([slice_of(device)], claim, release=release)
    if found is None:
        assert isinstance(placement, NoFit)
        return
    assert picks(placement) == found
    assert isinstance(placement, Placement)
    (result,) = placement.claims[0].allocation.devices.results
    assert list(result.consumed_capacity or ()) == [published]


def test_140650_of_two_spellings_in_one_request_the_full_name_counts() -> None:
    devices = [sized(name, value, **SHAREABLE) for name, value in (("a", "4"), ("b", "8"))]
    claim = claim_of(exactly(capacity={"requests": {"m": "2", "gpu.example.com/m": "6"}}))
    assert picks(ask([slice_of(*devices)], claim)) == [["b"]]


def test_138885_all_with_counters_finds_every_device() -> None:
    slices = [counters_of(set=4), slice_of(consuming("a"), consuming("b"), count=2)]
    assert picks(ask(slices, claim_of(every()))) == [["a", "b"]]


def test_133705_search_moves_on_to_the_next_device_when_the_capacity_does_not_do() -> None:
    slices = [slice_of(sized("a", "2", **SHAREABLE), {"name": "b"}, sized("c", **SHAREABLE))]
    assert picks(ask(slices, claim_of(amount_of("4")))) == [["c"]]


@examples(80)
@given(
    devices=st.lists(
        st.tuples(st.lists(st.sampled_from("xyz"), unique=True, max_size=2), st.integers(0, 2)), min_size=3, max_size=6
    ),
    counts=st.lists(st.integers(1, 2), min_size=2, max_size=3),
)
def test_5963_order_of_requests_may_change_what_they_get_but_not_whether(
    devices: list[tuple[list[str], int]], counts: list[int]
) -> None:
    """Asked for in the review of compatibility groups (KEP-5963)."""
    published = [consuming(f"d{i}", *groups, amount=amount) for i, (groups, amount) in enumerate(devices)]
    slices = [counters_of(set=4), slice_of(*published, count=2)]
    requests = [
        exactly(count, f"r{i}", expression="true" if i else f"device.driver == '{DRIVER}'")
        for i, count in enumerate(counts)
    ]
    found = {isinstance(ask(slices, claim_of(*order)), Placement) for order in itertools.permutations(requests)}
    assert len(found) == 1
