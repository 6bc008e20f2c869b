"""Physical devices that the policy names: partitions are compared by groups, and nothing else of their pool changes."""

import dataclasses

import pytest
from dra_extender.allocator.overlay.policy import PolicyOverlay, PolicyRule
from dra_extender.allocator.state.features import Features
from dra_extender.allocator.state.reasons import Code
from dra_extender.cel.program import compile_expression
from dra_extender.model.device import CounterConsumption
from dra_extender.model.resource_slice import ResourceSlice

from tests.support.allocator.building import (
    Json,
    ask,
    claim_of,
    consuming,
    counters_of,
    exactly,
    held,
    picks,
    pools_of,
    reasons,
    slice_of,
)

GPU = "physical-device/gpu-0"


def part(name: str, kind: str, gpu: str = "gpu-0") -> Json:
    return {"name": name, "attributes": {"type": {"string": kind}, "parent": {"string": gpu}}}


def rules(parent: str = "parent") -> list[PolicyRule]:
    attributes = 'device.attributes["gpu.example.com"]'
    named = compile_expression(f"{attributes}.{parent}", derived=True)
    grouped = [
        PolicyRule(
            name=kind, devices=compile_expression(f'{attributes}.type == "{kind}"'), compatibility_groups=(kind,)
        )
        for kind in ("mig", "vgpu")
    ]
    return [PolicyRule(name="gpus", physical_device=named), *grouped]


def under(*slices: ResourceSlice, policy: list[PolicyRule] | None = None) -> list[ResourceSlice]:
    overlay = PolicyOverlay(rules() if policy is None else policy)
    return [overlay.apply(each).effective for each in slices]


def frozen(*groups: str, name: str = GPU) -> tuple[CounterConsumption, ...]:
    return (CounterConsumption(counter_set=name, compatibility_groups=groups, groups_supplied=True),)


def wanting(kind: str) -> Json:
    return exactly(expression=f'device.attributes["gpu.example.com"].type == "{kind}"')


SLICES = under(slice_of(part("m", "mig"), part("m2", "mig"), part("v", "vgpu"), part("far", "vgpu", "gpu-1")))


def test_partitions_of_one_physical_device_need_a_group_in_common() -> None:
    assert picks(ask(SLICES, claim_of(wanting("mig")), usage=[held("m")])) == [["m2"]]
    assert picks(ask(SLICES, claim_of(wanting("vgpu")), usage=[held("m")])) == [["far"]]
    found = reasons(ask(SLICES, claim_of(wanting("vgpu")), usage=[held("m"), held("far")]))
    assert found.rejections[0].code is Code.GROUPS
    assert found.rejections[0].detail == f"v declares [vgpu] on counter set {GPU}; m (in use) has [mig]"


def test_an_allocation_freezes_physical_device_and_groups() -> None:
    found = ask(SLICES, claim_of(wanting("mig")))
    picks(found)
    (holding,) = found.claims[0].holdings  # type: ignore[union-attr]
    assert holding.consumption == frozen("mig")
    assert dict(holding.sources) == {"physicalDevice": "gpus", f"compatibilityGroups[{GPU}]": "mig"}


@pytest.mark.parametrize("published", [True, False])
def test_frozen_groups_outlive_a_changed_policy_and_a_vanished_device(*, published: bool) -> None:
    devices = [part("v", "vgpu"), *([part("m", "vgpu")] if published else [])]
    found = ask(under(slice_of(*devices)), claim_of(exactly()), usage=[held("m", consumption=frozen("mig"))])
    assert reasons(found).rejections[0].code is Code.GROUPS


def test_what_was_allocated_under_another_name_is_found_under_the_new_one() -> None:
    """The expression of the policy was changed; MIG is still MIG."""
    usage = [held("m", consumption=frozen("mig", name="physical-device/old"))]
    assert picks(ask(SLICES, claim_of(wanting("vgpu")), usage=usage)) == [["far"]]
    assert picks(ask(SLICES, claim_of(wanting("mig")), usage=usage)) == [["m2"]]


def test_what_was_allocated_before_there_was_a_policy_has_no_groups() -> None:
    """As KEP-5963 has it for devices allocated before the feature: they exclude devices with groups until they are released."""
    usage = [held("m", consumption=())]
    assert reasons(ask(SLICES, claim_of(wanting("mig")), usage=usage)).rejections[0].code is Code.GROUPS
    assert picks(ask(SLICES, claim_of(wanting("vgpu")), usage=usage)) == [["far"]]


def test_without_a_snapshot_the_present_policy_counts() -> None:
    assert picks(ask(SLICES, claim_of(wanting("mig")), usage=[held("m", consumption=None)])) == [["m2"]]


def test_real_counter_sets_validity_and_completeness_are_left_alone() -> None:
    drawing = [{**consuming(name), **part(name, kind)} for name, kind in (("m", "mig"), ("v", "vgpu"))]
    plain = [counters_of(set=1), slice_of(*drawing, count=2)]
    (pool,) = pools_of(under(*plain)).pools
    (before,) = pools_of(plain).pools
    assert (pool.problem, pool.totals) == (before.problem, before.totals) == (None, before.totals)
    usage = [held("m")]
    ungrouped = under(*plain, policy=rules()[:1])
    assert reasons(ask(ungrouped, claim_of(exactly()), usage=usage)).rejections[0].code is Code.COUNTERS
    incomplete = [slice_of(*drawing, count=2)]
    assert [each.problem for each in pools_of(under(*incomplete)).pools] == [Code.POOL_INCOMPLETE]


def test_a_physical_device_cannot_be_mistaken_for_a_counter_set_of_that_name() -> None:
    drawing = consuming("d", "x", counter_set="gpu-0")
    slices = under(counters_of(**{"gpu-0": 9}), slice_of(drawing, part("v", "vgpu"), count=2))  # type: ignore[arg-type]
    assert picks(ask(slices, claim_of(wanting("vgpu")), usage=[held("d")])) == [["v"]]


def test_with_partitionable_devices_off_a_physical_device_is_no_reason_to_refuse() -> None:
    off = dataclasses.replace(Features(), partitionable_devices=False)
    assert picks(ask(SLICES, claim_of(wanting("mig")), usage=[held("m")], features=off)) == [["m2"]]
    assert picks(ask(SLICES, claim_of(wanting("vgpu")), usage=[held("m")], features=off)) == [["far"]]
