"""The admin's policy file on an API server without groups (1.36): it keeps devices apart, can be changed, and survives mistakes."""

import json
from pathlib import Path

import pytest
from dra_extender.model.allocation_snapshot import SNAPSHOT_ANNOTATION

from tests.controlplane.objects import device
from tests.controlplane.planes import V1_36
from tests.controlplane.resources import NAMESPACES
from tests.support.e2e.gpus import MODES_POLICY, gpu, mig_or_vgpu
from tests.support.e2e.installed_extender import InstalledExtender, Setup
from tests.support.e2e.namespace_fixture import PROMPT_SECONDS, NamespaceFixture
from tests.support.e2e.scenes import Scenes

pytestmark = [pytest.mark.e2e, pytest.mark.plane(V1_36), pytest.mark.asyncio(loop_scope="module")]

TOGETHER = "rules: [{name: one, compatibilityGroups: [mig, vgpu]}]\n"
WRONG = "rules: [{name: mig, compatibilityGroups: mig}]\n"


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The policy file of the module's world."""
    file = tmp_path_factory.mktemp("policy") / "policy.yaml"
    file.write_text(MODES_POLICY)
    return file


@pytest.fixture(scope="module")
def setup(policy: Path) -> Setup:
    return Setup(
        environment={
            "DRA_EXTENDER_SCHEDULING__POLICY_FILE": str(policy),
            "DRA_EXTENDER_SCHEDULING__POLICY_CHECK_SECONDS": "0.1",
        },
    )


def write(policy: Path, text: str) -> None:
    """As an editor does: the service, which looks often, never sees half of it."""
    whole = policy.with_suffix(".new")
    whole.write_text(text)
    whole.replace(policy)


async def rewritten(policy: Path, text: str, world: InstalledExtender) -> None:
    """Write the file and wait until it was read."""
    before = await world.metric("policy_reads_total")
    write(policy, text)
    await world.wait_for_metric("policy_reads_total", before + 1)


async def kinds(scene: NamespaceFixture) -> str:
    """A GPU that is MIG or vGPU by the driver's idea, and a template for each; returns the node."""
    node = await scene.node_with_counters("a", [gpu()], mig_or_vgpu())
    for kind in ("mig", "vgpu"):
        await scene.template(kind, f'{scene.attribute("type")} == "{kind}"')
    return node


async def groups_keep_pods_apart_where_the_server_strips_groups(scene: NamespaceFixture) -> None:
    """The snapshot says which rule supplied the groups."""
    node = await kinds(scene)
    await scene.pod("mig", template="mig")
    assert await scene.wait_until_bound("mig") == node
    claim = await scene.claim_of("mig")
    (frozen,) = json.loads(claim["metadata"]["annotations"][SNAPSHOT_ANNOTATION])["devices"]
    assert frozen["sources"] == {"compatibilityGroups[gpu-0]": "mig"}
    assert frozen["consumesCounters"][0]["compatibilityGroups"] == ["mig"]
    (result,) = claim["status"]["allocation"]["devices"]["results"]
    assert "compatibilityGroups" not in result
    await scene.pod("vgpu", template="vgpu")
    await scene.wait_until_unschedulable("vgpu", "compatibility groups in conflict")
    await scene.wait_for_event("vgpu", "gpu-0-vgpu-0 declares [vgpu]", "gpu-0-mig-0 (in use) has [mig]")
    await scene.delete_pod("mig")
    assert await scene.wait_until_bound("vgpu", PROMPT_SECONDS) == node


async def a_pod_that_monitors_a_gpu_runs_beside_the_other_mode_and_counts_against_nobody(
    scene: NamespaceFixture,
) -> None:
    node = await kinds(scene)
    labels = {"resource.kubernetes.io/admin-access": "true"}
    await scene.api.patch(NAMESPACES, scene.name, {"metadata": {"labels": labels}})
    await scene.template("monitor", f'{scene.attribute("type")} == "vgpu"', adminAccess=True)
    for name, template in (("first", "mig"), ("monitor", "monitor"), ("second", "mig")):
        await scene.pod(name, template=template)
        assert await scene.wait_until_bound(name) == node


async def test_groups_of_the_policy_keep_pods_apart(scenes: Scenes) -> None:
    await scenes.carry_out(
        groups_keep_pods_apart_where_the_server_strips_groups,
        a_pod_that_monitors_a_gpu_runs_beside_the_other_mode_and_counts_against_nobody,
    )


async def test_a_file_that_changes_is_read_within_the_process_a_wrong_one_is_told_and_frozen_groups_outlive_it(
    scene: NamespaceFixture, policy: Path, world: InstalledExtender
) -> None:
    node = await kinds(scene)
    await scene.pod("mig", template="mig")
    await scene.wait_until_bound("mig")
    try:
        await rewritten(policy, WRONG, world)
        expected = "rules[0].compatibilityGroups (rule mig): expected a list, got 'mig'"
        lines = (await world.page("/readyz?verbose")).splitlines()
        assert f"[i]policy: 2 rules in force; policy file {policy}: {expected}" in lines
        assert await world.metric("policy_current") == 0
        assert any(expected in str(line) for line in world.log_lines())
        await scene.pod("vgpu", template="vgpu")
        await scene.wait_until_unschedulable("vgpu", "compatibility groups in conflict")
        await rewritten(policy, TOGETHER, world)
        assert await scene.wait_until_bound("vgpu", PROMPT_SECONDS) == node
        await scene.delete_pod("vgpu")
        write(policy, MODES_POLICY.replace("[mig]", "[any]").replace("[vgpu]", "[any]"))
        await world.extender.restart()
        await scene.pod("again", template="vgpu")
        await scene.wait_until_unschedulable("again", "compatibility groups in conflict")
        await scene.wait_for_event("again", "gpu-0-vgpu-0 declares [any]", "gpu-0-mig-0 (in use) has [mig]")
    finally:
        await rewritten(policy, MODES_POLICY, world)


BY_ATTRIBUTES = """
rules:
  - name: whole
    devices: device.attributes[device.driver].kind == "whole"
    compatibleOnlyWith: device.attributes[device.driver].physicalDevice != "dev-0"
    neighbours:
      within: pool
  - name: partitions
    devices: device.attributes[device.driver].kind == "partition"
    compatibleOnlyWith: device.attributes[device.driver].kind == "partition"
    neighbours:
      within: pool
      devices: device.attributes[device.driver].physicalDevice == "dev-0"
"""


async def test_devices_that_only_attributes_tell_apart_exclude_each_other(
    scene: NamespaceFixture, policy: Path, world: InstalledExtender
) -> None:
    """Patterns 1 and 2 of the proposal: no counters, no groups, and another physical device in the same pool that nobody minds."""
    attributes = {
        "whole": {"kind": "whole", "physicalDevice": "dev-0"},
        "partition": {"kind": "partition", "physicalDevice": "dev-0"},
        "beside": {"kind": "beside", "physicalDevice": "dev-1"},
    }
    node = await scene.node_with_devices("a", *(device(name, attributes=each) for name, each in attributes.items()))
    for name, each in attributes.items():
        await scene.template(name, f'{scene.attribute("kind")} == "{each["kind"]}"')
    try:
        await rewritten(policy, BY_ATTRIBUTES, world)
        for name in ("partition", "beside"):
            await scene.pod(name, template=name)
            assert await scene.wait_until_bound(name) == node
        claim = await scene.claim_of("partition")
        (frozen,) = json.loads(claim["metadata"]["annotations"][SNAPSHOT_ANNOTATION])["devices"]
        assert frozen["neighboursOn"] == "pool"
        assert frozen["sources"] == {"compatibleOnlyWith": "partitions"}
        await scene.pod("whole", template="whole")
        await scene.wait_until_unschedulable("whole", "devices are not compatible with their neighbours")
        await scene.delete_pod("partition")
        assert await scene.wait_until_bound("whole", PROMPT_SECONDS) == node
        await scene.pod("partition", template="partition")
        await scene.wait_until_unschedulable("partition", "devices are not compatible with their neighbours")
        await scene.delete_pod("whole")
        assert await scene.wait_until_bound("partition", PROMPT_SECONDS) == node
    finally:
        await rewritten(policy, MODES_POLICY, world)
