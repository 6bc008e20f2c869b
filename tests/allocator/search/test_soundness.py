"""Whatever is allocated is sound, judged by the rules of the KEPs alone and from raw results: nothing of the search is used."""

from collections import defaultdict
from collections.abc import Iterable
from itertools import combinations
from typing import Any

from dra_extender.allocator.demand.build import MAX_RESULTS
from dra_extender.model.allocation import ClaimPlacement, DeviceHolding, Placement
from dra_extender.model.device import Device
from dra_extender.model.resource_claim import ResourceClaim
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.support.allocator.building import NODE, Held, allocate, demand_of, pools_of
from tests.support.allocator.generated import claims, nodes, usages
from tests.support.examples import examples

KEY = "gpu.example.com/k"


def published(slices: Iterable[Any]) -> dict[str, Device]:
    return {device.name: device for each in slices for device in each.devices}


def members(devices: dict[str, Device], names: Iterable[str]) -> dict[str, list[tuple[str, ...]]]:
    """Counter set -> the group lists of the devices on it."""
    found: dict[str, list[tuple[str, ...]]] = defaultdict(list)
    for name in dict.fromkeys(names):
        for entry in devices[name].consumes_counters:
            found[entry.counter_set].append(entry.compatibility_groups)
    return found


def meets(groups: list[tuple[str, ...]]) -> bool:
    return not any(groups) or bool(set.intersection(*map(set, groups)))


def holders(usage: Iterable[DeviceHolding]) -> list[str]:
    return [each.device for each in usage if not each.admin]


@examples(120)
@given(slices=nodes, wanted=st.lists(claims, min_size=1, max_size=3), usage=usages)
def test_whatever_is_allocated_is_sound(
    slices: list[Any], wanted: list[ResourceClaim], usage: list[DeviceHolding]
) -> None:
    found = allocate(demand_of(*wanted), NODE, pools_of(slices), Held(*usage))
    assume(isinstance(found, Placement))
    assert isinstance(found, Placement)
    devices = published(slices)
    taken = [each for claim in found.claims for each in claim.holdings]
    drawing = [each.device for each in taken if devices[each.device].consumes_counters]
    check_groups(devices, usage, drawing)
    check_counters(slices, devices, usage, drawing)
    check_owners(devices, usage, taken)
    check_capacity(devices, usage, taken)
    for claim, placement in zip(wanted, found.claims, strict=True):
        check_counts(claim, placement)
        check_constraints(claim, devices, placement)


def check_groups(devices: dict[str, Device], usage: Iterable[DeviceHolding], drawing: list[str]) -> None:
    """On each counter set that gets a member, all members have a group in common or none has any; if they had before."""
    before = members(devices, holders(usage))
    fresh = [name for name in drawing if name not in holders(usage)]
    after = members(devices, [*holders(usage), *fresh])
    for counter_set in members(devices, fresh):
        assert meets(after[counter_set]) or not meets(before[counter_set])


def check_counters(
    slices: Iterable[Any], devices: dict[str, Device], usage: Iterable[DeviceHolding], drawing: list[str]
) -> None:
    """If the pool gives counters to anybody, none is overdrawn afterwards."""
    if not any(name not in holders(usage) for name in drawing):
        return
    left = {(each.name, name): total for part in slices for each in part.counter_sets for name, total in each.counters}
    for name in dict.fromkeys([*holders(usage), *drawing]):
        for entry in devices[name].consumes_counters:
            for counter, amount in entry.counters:
                left[entry.counter_set, counter] -= amount
    assert min(left.values()) >= 0


def check_owners(devices: dict[str, Device], usage: Iterable[DeviceHolding], taken: list[DeviceHolding]) -> None:
    """A device that is not shareable has one owner, apart from admin access; a shareable one has sharers only."""
    for holding in taken:
        device = devices[holding.device]
        assert (holding.share_id is not None) == device.allow_multiple_allocations
        others = [each for each in usage if each.device == holding.device and not each.admin]
        if not holding.admin and not device.allow_multiple_allocations:
            assert not others
            assert sum(each.device == holding.device and not each.admin for each in taken) == 1
        if not holding.admin:
            assert all(each.share_id is not None for each in others)


def check_capacity(devices: dict[str, Device], usage: Iterable[DeviceHolding], taken: list[DeviceHolding]) -> None:
    """Shares of a device take no more than it has."""
    for name in {each.device for each in taken if each.share_id is not None}:
        given_away: dict[str, int] = defaultdict(int)
        for each in [*(each for each in usage if not each.admin), *taken]:
            for capacity, amount in each.consumed_capacity if each.device == name else ():
                given_away[capacity] += amount
        for capacity, whole in devices[name].capacity:
            assert given_away[capacity] <= whole.value


def check_counts(claim: ResourceClaim, placement: ClaimPlacement) -> None:
    """Each request gets as many different devices as it asks for, in one of its alternatives."""
    requests = claim.spec.devices.requests or ()
    if len({each.name for each in requests}) < len(requests):
        return
    results = placement.allocation.devices.results
    assert len({(each.request, each.device) for each in results}) == len(results) <= MAX_RESULTS
    for request in requests:
        if request.exactly is not None and request.exactly.allocation_mode == "ExactCount":
            assert sum(each.request == request.name for each in results) == request.exactly.count
        else:
            assert len({each.request for each in results if each.request.split("/")[0] == request.name}) <= 1


def check_constraints(claim: ResourceClaim, devices: dict[str, Device], placement: ClaimPlacement) -> None:
    """Where nothing is derived, the attribute is equal on all devices or different on any two."""
    results = placement.allocation.devices.results
    for each in claim.spec.devices.requests or ():
        options = (*each.first_available, *([each.exactly] if each.exactly else []))
        if any(option.derived_attributes for option in options):
            return
    for constraint in claim.spec.devices.constraints:
        values = [dict(devices[result.device].attributes)["k"].int_value for result in results]
        if constraint.match_attribute == KEY:
            assert len(set(values)) <= 1
        else:
            assert all(one != other for one, other in combinations(values, 2))
