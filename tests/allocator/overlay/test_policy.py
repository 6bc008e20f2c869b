"""The policy overlay: what rules supply, and who wins when several sources supply a field."""

from typing import Any

import pytest
from dra_extender.allocator.overlay.policy import PolicyOverlay, PolicyRule
from dra_extender.cel.program import compile_expression
from dra_extender.model.device import Device
from dra_extender.model.resource_slice import ResourceSlice

from tests.support.allocator.building import consuming, slice_of

MIG = compile_expression('device.attributes["gpu.example.com"].type == "mig"')
PARENT = compile_expression('device.attributes["gpu.example.com"].parent', derived=True)


def rule(name: str = "rule", **fields: Any) -> PolicyRule:
    return PolicyRule(name=name, **fields)


def under(published: ResourceSlice, *rules: PolicyRule) -> dict[str, Device]:
    return {device.name: device for device in PolicyOverlay(rules).apply(published).effective.devices}


def groups(device: Device) -> dict[str, tuple[str, ...]]:
    return {entry.counter_set: entry.compatibility_groups for entry in device.consumes_counters}


def kind(name: str, **more: Any) -> dict[str, Any]:
    return {"attributes": {"type": {"string": name}, "parent": {"string": "gpu-0"}}, **more}


def test_a_slice_that_no_rule_changes_stays_the_same_object() -> None:
    published = slice_of(consuming("d", **kind("vgpu")))
    for rules in ([], [rule(devices=MIG, binds_to_node=True)], [rule(pool="other", binds_to_node=True)]):
        assert PolicyOverlay(rules).apply(published).effective is published


def test_groups_go_to_every_counter_set_or_to_the_named_one() -> None:
    device = consuming("d", **kind("mig"))
    device["consumesCounters"].append({"counterSet": "other", "counters": {"c": {"value": "1"}}})
    published = slice_of(device)
    everywhere = under(published, rule(compatibility_groups=("mig",)))["d"]
    assert groups(everywhere) == {"set": ("mig",), "other": ("mig",)}
    named = under(published, rule(compatibility_groups=("mig",), counter_set="other"))["d"]
    assert groups(named) == {"set": (), "other": ("mig",)}
    assert named.sources == (("compatibilityGroups[other]", "rule"),)


def test_rules_apply_by_driver_pool_and_expression() -> None:
    published = slice_of(consuming("m", **kind("mig")), consuming("v", **kind("vgpu")))
    found = under(published, rule(devices=MIG, driver="gpu.example.com", pool="pool", compatibility_groups=("mig",)))
    assert (groups(found["m"]), groups(found["v"])) == ({"set": ("mig",)}, {"set": ()})
    assert under(published, rule(driver="other.example.com", compatibility_groups=("mig",)))["m"].sources == ()


def test_a_physical_device_is_a_counter_set_of_its_own_without_counters() -> None:
    published = slice_of({"name": "d", **kind("mig")})
    found = under(published, rule(physical_device=PARENT, compatibility_groups=("mig",)))["d"]
    (entry,) = found.consumes_counters
    assert (entry.counter_set, entry.counters, entry.synthetic) == ("physical-device/gpu-0", (), True)
    assert entry.compatibility_groups == ("mig",)
    assert dict(found.sources) == {"physicalDevice": "rule", "compatibilityGroups[physical-device/gpu-0]": "rule"}


def test_groups_can_be_for_the_physical_device_alone() -> None:
    published = slice_of(consuming("d", **kind("mig")))
    found = under(published, rule(physical_device=PARENT, compatibility_groups=("mig",), counter_set="gpu-0"))["d"]
    assert groups(found) == {"set": (), "physical-device/gpu-0": ("mig",)}


def test_published_fields_win_over_every_rule() -> None:
    own = consuming(
        "d",
        "own",
        bindingConditions=["own"],
        bindingFailureConditions=["own-failed"],
        bindsToNode=True,
        compatibleOnlyWith={"expression": "true"},
    )
    supplied = rule(
        compatibility_groups=("policy",),
        binding_conditions=("policy",),
        binding_failure_conditions=("policy-failed",),
        binds_to_node=True,
        compatible_only_with="false",
    )
    published = slice_of(own)
    assert PolicyOverlay([supplied]).apply(published).effective is published


def test_published_groups_win_for_their_counter_set_only() -> None:
    device = consuming("d", "own")
    device["consumesCounters"].append({"counterSet": "other", "counters": {"c": {"value": "1"}}})
    found = under(slice_of(device), rule(compatibility_groups=("policy",)))["d"]
    assert groups(found) == {"set": ("own",), "other": ("policy",)}


def test_an_empty_published_list_of_conditions_is_published() -> None:
    supplied = rule(binding_conditions=("c",), binding_failure_conditions=("f",))
    found = under(slice_of({"name": "d", "bindingConditions": []}), supplied)["d"]
    assert found.binding_conditions == ()


def test_for_each_field_the_first_rule_that_supplies_it_wins() -> None:
    first = rule("first", compatibility_groups=("a",))
    second = rule(
        "second",
        compatibility_groups=("b",),
        binds_to_node=True,
        binding_conditions=("c",),
        binding_failure_conditions=("f",),
        compatible_only_with="true",
    )
    third = rule("third", compatible_only_with="false", binds_to_node=True)
    found = under(slice_of(consuming("d")), first, second, third)["d"]
    assert groups(found) == {"set": ("a",)}
    assert (found.binds_to_node, found.compatible_only_with) == (True, "true")
    assert (found.binding_conditions, found.binding_failure_conditions) == (("c",), ("f",))
    assert dict(found.sources) == {
        "compatibilityGroups[set]": "first",
        "bindingConditions": "second",
        "bindsToNode": "second",
        "compatibleOnlyWith": "second",
    }


def test_an_expression_that_fails_on_a_device_does_not_match_it_and_is_reported() -> None:
    overlaid = PolicyOverlay([rule(devices=MIG, binds_to_node=True)]).apply(
        slice_of("bare", {"name": "m", **kind("mig")})
    )
    assert [device.binds_to_node for device in overlaid.effective.devices] == [False, True]
    (trouble,) = overlaid.problems
    assert trouble.startswith("rule rule: devices: fails on gpu.example.com/pool/bare: ")


@pytest.mark.parametrize("value", [{"string": ""}, {"int": 3}, {"bool": True}])
def test_a_physical_device_without_a_name_is_none_and_is_reported(value: dict[str, Any]) -> None:
    published = slice_of({"name": "d", "attributes": {"parent": value}})
    overlaid = PolicyOverlay([rule(physical_device=PARENT)]).apply(published)
    assert overlaid.effective is published
    assert overlaid.problems == (
        "rule rule: physicalDevice: expected a text that is not empty for gpu.example.com/pool/d",
    )


def test_laying_is_pure() -> None:
    published = slice_of(consuming("d", **kind("mig")))
    overlay = PolicyOverlay([rule(devices=MIG, physical_device=PARENT, compatibility_groups=("mig",))])
    before = published.devices
    assert overlay.apply(published) == overlay.apply(published)
    assert published.devices is before
