"""Rules in which releases differ, each as the service has it and the other way round."""

from collections.abc import Iterable

from dra_extender.allocator.state.features import OWN, UPSTREAM, ReleaseBehaviour
from dra_extender.allocator.state.reasons import Code, NoFit
from dra_extender.cel.values.quantity import NANO
from dra_extender.model.allocation import DeviceHolding, Placement
from dra_extender.model.device import CounterConsumption
from dra_extender.model.resource_claim import ResourceClaim
from dra_extender.model.resource_slice import ResourceSlice

from tests.support.allocator.building import (
    NODE,
    Held,
    allocate,
    claim_of,
    consuming,
    counters_of,
    demand_of,
    every,
    exactly,
    held,
    picks,
    pools_of,
    reasons,
    slice_of,
)


def under(
    release: ReleaseBehaviour, slices: list[ResourceSlice], claim: ResourceClaim, usage: Iterable[DeviceHolding] = ()
) -> Placement | NoFit:
    return allocate(demand_of(claim), NODE, pools_of(slices, release=release), Held(*usage))


def test_groups_and_counters_of_held_devices_come_from_the_snapshot_or_from_the_slices() -> None:
    slices = [counters_of(set=4), slice_of(consuming("a", "new", amount=1), consuming("b", "new", amount=3), count=2)]
    entry = CounterConsumption(counter_set="set", counters=(("c", 2 * NANO),), compatibility_groups=("old",))
    usage = [held("a", consumption=(entry,))]
    assert reasons(under(OWN, slices, claim_of(exactly()), usage)).rejections[0].code is Code.GROUPS
    assert picks(under(UPSTREAM, slices, claim_of(exactly()), usage)) == [["b"]]


def test_devices_that_count_against_their_node_are_refused_or_chosen() -> None:
    slices = [slice_of({"name": "a", "nodeAllocatableResources": {"cpu": {"overhead": {"perPod": "1"}}}}, "b")]
    assert picks(under(OWN, slices, claim_of(exactly()))) == [["b"]]
    for wanted in (exactly(2), every()):
        refused = reasons(under(OWN, slices, claim_of(wanted))).rejections[0]
        assert refused.code is Code.NODE_ALLOCATABLE
        assert refused.detail.endswith("a counts against cpu of its node (nodeAllocatableResources)")
        assert picks(under(UPSTREAM, slices, claim_of(wanted))) == [["a", "b"]]
    for field in ("nodeAllocatableResources", "nodeAllocatableResourceMappings"):
        assert picks(under(OWN, [slice_of({"name": "a", field: {}})], claim_of(exactly()))) == [["a"]]


def test_used_up_devices_make_all_fail() -> None:
    devices = [{"name": name, "allowMultipleAllocations": True, "capacity": {"m": {"value": "1"}}} for name in "ab"]
    usage = [held("a", share_id="x", consumed_capacity=(("m", NANO),))]
    wanted = claim_of(every(capacity={"requests": {"m": "1"}}))
    for release in (OWN, UPSTREAM):
        assert reasons(under(release, [slice_of(*devices)], wanted, usage)).rejections[0].code is Code.CAPACITY


def test_all_beside_a_broken_pool_is_an_error_for_the_pod() -> None:
    for broken, code in (
        (slice_of("a", pool="broken", count=2), Code.POOL_INCOMPLETE),
        (slice_of("a", "a", pool="broken"), Code.POOL_INVALID),
    ):
        slices = [broken, slice_of("b", name="sound", pool="sound")]
        for release in (OWN, UPSTREAM):
            found = reasons(under(release, slices, claim_of(every())))
            assert (found.verdict, found.rejections[0].code) == ("fatal", code)


def test_share_of_a_device_that_cannot_be_shared_any_more_keeps_others_away_or_not() -> None:
    device = {"name": "a", "capacity": {"m": {"value": "4"}}}
    usage = [held("a", share_id="x", consumed_capacity=(("m", NANO),))]
    wanted = claim_of(exactly(capacity={"requests": {"m": "1"}}))
    assert reasons(under(OWN, [slice_of(device)], wanted, usage)).rejections[0].code is Code.IN_USE
    assert picks(under(UPSTREAM, [slice_of(device)], wanted, usage)) == [["a"]]


def entry_of(*groups: str) -> CounterConsumption:
    return CounterConsumption(counter_set="set", counters=(("c", NANO),), compatibility_groups=groups)


def test_further_share_keeps_the_snapshot() -> None:
    device = {**consuming("a", "new", amount=9), "allowMultipleAllocations": True, "capacity": {"m": {"value": "4"}}}
    slices = [counters_of(set=9), slice_of(device, count=2)]
    wanted = claim_of(exactly(capacity={"requests": {"m": "1"}}))
    for groups in (("old",), (), ("new", "old")):
        own = under(OWN, slices, wanted, [held("a", share_id="s", consumption=(entry_of(*groups),))])
        assert isinstance(own, Placement)
        assert own.claims[0].holdings[0].consumption == (entry_of(*groups),)


def test_set_whose_members_contradict_each_other_admits_nothing_or_what_the_first_of_them_admits() -> None:
    for order, admitted in ((("none", "x"), "none-2"), (("x", "none"), "x-2")):
        by_name = {"none": consuming("none"), "x": consuming("x", "x")}
        devices = [*(by_name[each] for each in order), consuming("none-2"), consuming("x-2", "x")]
        slices = [counters_of(set=9), slice_of(*devices, count=2)]
        usage = [held("none"), held("x")]
        assert reasons(under(OWN, slices, claim_of(exactly()), usage)).rejections[0].code is Code.GROUPS
        assert picks(under(UPSTREAM, slices, claim_of(exactly()), usage)) == [[admitted]]
