"""What a policy comes to: rules that change nothing, and neighbours that judge each other differently."""

from collections.abc import Sequence
from typing import Any

import pytest
from dra_extender.allocator.overlay import policy_effects
from dra_extender.allocator.overlay.policy import PolicyOverlay, PolicyRule
from dra_extender.allocator.overlay.policy_effects import asymmetric_rules, ineffective_rules, published_devices
from dra_extender.cel.program import compile_expression
from dra_extender.model.resource_slice import ResourceSlice

from tests.support.allocator.building import consuming, counters_of, slice_of, typed

TYPE = 'device.attributes["gpu.example.com"].type'


def rule(name: str, kind: str | None = None, **more: Any) -> PolicyRule:
    devices = None if kind is None else compile_expression(f'{TYPE} == "{kind}"')
    return PolicyRule(name=name, devices=devices, **more)


def effects(rules: Sequence[PolicyRule], *slices: ResourceSlice) -> list[tuple[str, str]]:
    policy = PolicyOverlay(rules)
    devices = published_devices([policy.apply(each).effective for each in slices])
    assert devices is not None
    return list(ineffective_rules(rules, devices))


def test_a_rule_with_an_effect_is_left_alone() -> None:
    assert effects([rule("r", "a", binds_to_node=True)], slice_of(typed("d", "a"))) == []
    assert effects([rule("r", compatible_only_with="false")], slice_of("d", "e")) == []


def test_a_rule_that_supplies_no_device_is_reported() -> None:
    (found,) = effects([rule("r", "b", binds_to_node=True)], slice_of(typed("d", "a")))
    assert found == ("r", "rule r has no effect: none of 1 published devices takes anything from it")
    (found,) = effects([rule("groups", compatibility_groups=("g",))], slice_of("d"))
    assert found[0] == "groups"


def test_nothing_is_said_about_devices_that_are_not_known_yet() -> None:
    assert effects([rule("r", "b", binds_to_node=True)]) == []


def test_a_rule_behind_another_one_is_reported_even_without_devices() -> None:
    rules = [rule("first", driver="x", binds_to_node=True), rule("second", "a", driver="x", binds_to_node=True)]
    assert effects(rules) == [
        ("second", "rule second has no effect: rule first before it means the same devices and supplies the same")
    ]
    assert effects(rules[::-1]) == []
    assert effects([rules[0], rule("more", driver="x", binds_to_node=True, compatible_only_with="false")]) == []


@pytest.mark.parametrize(("scope", "reported"), [("", True), ("pool", False), ("node", False)])
def test_neighbours_that_cannot_exist_are_reported(scope: str, reported: bool) -> None:
    slices = [counters_of(set=1, other=1), slice_of(consuming("d"), consuming("e", counter_set="other"), count=2)]
    found = effects([rule("r", compatible_only_with="false", neighbours_on=scope)], *slices)
    assert bool(found) is reported
    assert (
        not reported
        or found[0][1]
        == "rule r has no effect: compatibleOnlyWith: its 2 devices have no neighbours on their counter sets or pools"
    )


def test_a_device_that_is_alone_in_its_pool_has_neighbours_on_its_node_alone() -> None:
    slices = [slice_of("d", pool="p1", name="s1"), slice_of("e", pool="p2", name="s2")]
    for scope, reported in (("pool", True), ("node", False)):
        assert bool(effects([rule("r", compatible_only_with="false", neighbours_on=scope)], *slices)) is reported


def test_more_devices_than_can_be_looked_at_say_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(policy_effects, "MAX_DEVICES", 2)
    assert published_devices([slice_of("a", "b", "c")]) is None


def sided(rules: Sequence[PolicyRule], *slices: ResourceSlice) -> list[tuple[str, str]]:
    policy = PolicyOverlay(rules)
    devices = published_devices([policy.apply(each).effective for each in slices])
    assert devices is not None
    return [(each.refusing.device.name, each.refused.device.name) for each in asymmetric_rules(devices)]


def test_neighbours_that_disagree_are_found_once_for_each_pair_of_expressions() -> None:
    slices = slice_of(typed("a0", "a"), typed("a1", "a"), typed("b0", "b"), typed("b1", "b"))
    strict, lax = f'{TYPE} == "a"', "true"
    assert sided([rule("a", "a", compatible_only_with=strict)], slices) == [("a0", "b0")]
    assert sided([rule("a", "a", compatible_only_with=strict), rule("b", "b", compatible_only_with=lax)], slices) == [
        ("a0", "b0")
    ]
    both = [rule("a", "a", compatible_only_with=strict), rule("b", "b", compatible_only_with=f'{TYPE} == "b"')]
    assert sided(both, slices) == []


def test_a_device_that_does_not_count_the_other_as_a_neighbour_has_no_objection() -> None:
    one = consuming("a", attributes={"type": {"string": "a"}})
    two = consuming("b", counter_set="other", attributes={"type": {"string": "b"}})
    slices = [counters_of(set=1, other=1), slice_of(one, two, count=2)]
    rules = [
        rule("a", "a", compatible_only_with=f'{TYPE} == "a"', neighbours_on="pool"),
        rule("b", "b", compatible_only_with=f'{TYPE} == "b"'),
    ]
    assert sided(rules, *slices) == [("a", "b")]
