"""Compatibility groups beside everything else that decides about a device."""

import pytest
from dra_extender.allocator.state.reasons import Code
from dra_extender.model.resource_slice import ResourceSlice

from tests.support.allocator.building import (
    Json,
    ask,
    claim_of,
    consuming,
    either,
    every,
    exactly,
    held,
    picks,
    reasons,
    slice_of,
)

TAINT = [{"key": "broken", "effect": "NoSchedule"}]
SHAREABLE: Json = {"allowMultipleAllocations": True}


def pool(*devices: Json | str) -> list[ResourceSlice]:
    totals = {"set": 9, "other": 9}
    sets = [{"name": name, "counters": {"c": {"value": str(total)}}} for name, total in totals.items()]
    return [slice_of(name="counters", count=2, sharedCounters=sets), slice_of(*devices, count=2)]


def kind(name: str) -> str:
    return f'device.attributes["gpu.example.com"].kind == "{name}"'


def of_kind(name: str, *groups: str, **more: object) -> Json:
    return consuming(name, *groups, attributes={"kind": {"string": name.rstrip("0123456789")}}, **more)  # type: ignore[arg-type]


def codes(*args: object, **more: object) -> list[Code]:
    return [each.code for each in reasons(ask(*args, **more)).rejections]  # type: ignore[arg-type]


def test_admin_access_is_bound_by_groups_and_joins_them() -> None:
    """As upstream: admin access sees taken devices, but what it gets counts like any other pick of the pod."""
    slices = pool(of_kind("mig", "mig"), of_kind("vgpu", "vgpu"))
    admin = exactly(name="admin", expression=kind("vgpu"), adminAccess=True)
    assert codes(slices, claim_of(admin), usage=[held("mig")]) == [Code.GROUPS]
    assert picks(ask(slices, claim_of(admin), usage=[held("mig", admin=True)])) == [["vgpu"]]
    assert codes(slices, claim_of(admin), claim_of(exactly(expression=kind("mig")))) == [Code.GROUPS]


def test_later_shares_of_a_device_join_no_groups_again() -> None:
    """The first share joined; a further one is admitted even where a new member would not be."""
    slices = pool(of_kind("shared", "mig", **SHAREABLE), of_kind("vgpu", "vgpu"), of_kind("mig", "mig"))
    usage = [held("shared", share_id="1"), held("vgpu")]
    assert picks(ask(slices, claim_of(exactly(expression=kind("shared"))), usage=usage)) == [["shared"]]
    assert codes(slices, claim_of(exactly(expression=kind("mig"))), usage=usage) == [Code.GROUPS]
    both = claim_of(exactly(expression=kind("shared")), exactly(name="s", expression=kind("shared")))
    assert picks(ask(slices, both)) == [["shared", "shared"]]
    assert codes(slices, both, claim_of(exactly(expression=kind("vgpu")))) == [Code.GROUPS]


def test_all_needs_every_device_compatible_with_every_other() -> None:
    assert codes(pool(of_kind("mig", "mig"), of_kind("vgpu", "vgpu")), claim_of(every())) == [Code.GROUPS]
    assert codes(pool(of_kind("mig", "mig"), of_kind("plain")), claim_of(every())) == [Code.GROUPS]
    chain = [of_kind("d1", "a", "b"), of_kind("d2", "b", "c"), of_kind("d3", "a", "c")]
    assert picks(ask(pool(*chain[:2]), claim_of(every()))) == [["d1", "d2"]]
    assert codes(pool(*chain), claim_of(every())) == [Code.GROUPS]


def test_alternative_that_conflicts_gives_way_and_leaves_the_groups_as_they_were() -> None:
    """The first alternative takes `vgpu1`, then finds no second one; the next request must still get a MIG partition."""
    slices = pool(of_kind("vgpu1", "vgpu"), of_kind("mig1", "mig"), of_kind("mig2", "mig"))
    preferred = either(exactly(2, expression=kind("vgpu")), exactly(expression=kind("mig")))
    assert picks(ask(slices, claim_of(preferred, exactly(name="s", expression=kind("mig"))))) == [["mig1", "mig2"]]


def test_search_takes_a_worse_alternative_of_an_earlier_request_for_the_sake_of_a_later_one() -> None:
    slices = pool(of_kind("vgpu", "vgpu"), of_kind("mig1", "mig"), of_kind("mig2", "mig"))
    wanted = either(exactly(expression=kind("vgpu")), exactly(expression=kind("mig")))
    found = ask(slices, claim_of(wanted), claim_of(exactly(expression=kind("mig"))))
    assert picks(found) == [["mig1"], ["mig2"]]


@pytest.mark.parametrize("groups", [("x",), ()])
def test_groups_and_a_constraint_are_met_together(groups: tuple[str, ...]) -> None:
    """The first pair in order agrees in the attribute but not in groups, the second in groups alone."""
    devices = [
        consuming("a", "y", attributes={"k": {"int": 1}}),
        consuming("b", *groups, attributes={"k": {"int": 1}}),
        consuming("c", "y", attributes={"k": {"int": 2}}),
        consuming("d", *groups, attributes={"k": {"int": 1}}),
    ]
    match = [{"matchAttribute": "gpu.example.com/k"}]
    assert picks(ask(pool(*devices), claim_of(exactly(2), constraints=match))) == [["b", "d"]]


def test_device_refused_for_a_taint_does_not_narrow_the_groups() -> None:
    slices = pool(of_kind("a1", "x", taints=TAINT), of_kind("b1", "y"), of_kind("b2", "y"))
    assert picks(ask(slices, claim_of(exactly(2)))) == [["b1", "b2"]]
    tolerant = exactly(2, tolerations=[{"operator": "Exists"}])
    assert picks(ask(slices, claim_of(tolerant))) == [["b1", "b2"]]
    assert picks(ask(slices, claim_of(exactly(tolerations=[{"operator": "Exists"}])))) == [["a1"]]


def test_device_on_two_counter_sets_needs_a_group_in_common_on_each() -> None:
    two = {
        "name": "two",
        "consumesCounters": [
            {"counterSet": "set", "counters": {"c": {"value": "1"}}, "compatibilityGroups": ["mig"]},
            {"counterSet": "other", "counters": {"c": {"value": "1"}}, "compatibilityGroups": ["ring"]},
        ],
    }
    slices = pool(two, consuming("s", "mig"), consuming("o", "star", counter_set="other"))
    wanted = claim_of(exactly(expression="true"))
    assert picks(ask(slices, wanted, usage=[held("s")])) == [["two"]]
    assert codes(slices, claim_of(exactly(2)), usage=[held("o")]) == [Code.GROUPS, Code.IN_USE]
    assert picks(ask(slices, wanted, usage=[held("o")])) == [["s"]]


def test_sets_of_one_name_of_another_driver_or_pool_are_apart_for_devices_held_too() -> None:
    other: Json = {"driver": "nic.example.com", "count": 2}
    sets = [{"name": "set", "counters": {"c": {"value": "9"}}}]
    slices = [
        *pool(consuming("mig", "mig")),
        slice_of(name="s3", sharedCounters=sets, **other),
        slice_of(consuming("port", "rdma"), name="s4", **other),
    ]
    wanted = claim_of(exactly(expression='device.driver == "nic.example.com"'))
    assert picks(ask(slices, wanted, usage=[held("mig")])) == [["port"]]


def test_capacity_that_does_not_do_leaves_the_groups_alone() -> None:
    small: Json = {"capacity": {"m": {"value": "1"}}, **SHAREABLE}
    slices = pool(of_kind("a1", "x", **small), of_kind("b1", "y", capacity={"m": {"value": "8"}}), of_kind("b2", "y"))
    request = exactly(name="r", capacity={"requests": {"m": "4"}})
    assert picks(ask(slices, claim_of(request, exactly(name="s")))) == [["b1", "b2"]]
