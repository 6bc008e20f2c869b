"""Older API servers: what they strip is noticed and said, and pods are placed by what is left."""

import pytest

from tests.controlplane.objects import device, device_class
from tests.controlplane.planes import V1_34, V1_35, V1_36
from tests.controlplane.resources import DEVICE_CLASSES, RESOURCE_CLAIMS, RESOURCE_SLICES
from tests.support.e2e.gpus import gpu, mig_or_vgpu
from tests.support.e2e.installed_extender import InstalledExtender
from tests.support.e2e.namespace_fixture import PROMPT_SECONDS, NamespaceFixture

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="module")]

WITHOUT_GROUPS = pytest.mark.parametrize("plane", [V1_36], indirect=True, scope="module")
WITHOUT_COUNTERS = pytest.mark.parametrize("plane", [V1_35, V1_34], indirect=True, scope="module")


@WITHOUT_GROUPS
async def test_without_groups_both_pods_share_a_gpu_as_before_the_kep(scene: NamespaceFixture) -> None:
    """The API server strips the groups without a word, so the counters alone decide, and they allow both."""
    node = await scene.node_with_counters("a", [gpu()], mig_or_vgpu())
    stored = await scene.api.get(RESOURCE_SLICES, f"{scene.name}-a-devices")
    assert all(set(each["consumesCounters"][0]) == {"counterSet", "counters"} for each in stored["spec"]["devices"])
    for kind in ("vgpu", "mig"):
        await scene.template(kind, f'{scene.attribute("type")} == "{kind}"')
        await scene.pod(kind, template=kind)
        assert await scene.wait_until_bound(kind) == node
    assert await scene.allocated() == [f"{node}/gpu-0-mig-0", f"{node}/gpu-0-vgpu-0"]


@WITHOUT_GROUPS
async def test_it_is_told_that_groups_are_not_served(world: InstalledExtender) -> None:
    """By the readiness page (which stays ready), a metric, and the log."""
    words = "not served by this API server (behaves as 1.36): drivers cannot publish groups"
    assert f"[i]compatibility-groups: {words}" in (await world.page("/readyz?verbose")).splitlines()
    metrics = (await world.page("/metrics")).splitlines()
    assert 'dra_extender_field_served{field="compatibility-groups"} 0.0' in metrics
    assert 'dra_extender_field_served{field="partitionable-devices"} 1.0' in metrics
    assert [line["compatibility-groups"] for line in world.log_lines() if "compatibility-groups" in line] == [words]


@WITHOUT_GROUPS
async def test_without_podgroups_pods_that_name_one_are_placed_one_by_one(scene: NamespaceFixture) -> None:
    """What fits is bound, whatever becomes of the others; that is said on the readiness page and once in the log."""
    node = await scene.node_with_devices("a", device("gpu-0"))
    await scene.template("one")
    await scene.pod("first", template="one", schedulingGroup={"podGroupName": "team"})
    assert await scene.wait_until_bound("first") == node
    await scene.pod("second", template="one", schedulingGroup={"podGroupName": "team"})
    await scene.wait_until_unschedulable("second", "matching devices are in use")
    assert [each["resource"] for each in (await scene.claim_of("first"))["status"]["reservedFor"]] == ["pods"]
    words = "not served by this API server: pods are placed one by one"
    assert f"[i]pod-groups: {words}" in (await scene.world.page("/readyz?verbose")).splitlines()
    assert [line["pod-groups"] for line in scene.world.log_lines() if "pod-groups" in line] == [words]


@WITHOUT_COUNTERS
async def test_without_counters_a_claim_is_allocated_released_and_allocated_again(scene: NamespaceFixture) -> None:
    node = await scene.node_with_devices("a", device("gpu-0"))
    assert "[i]partitionable-devices: not served" in await scene.world.page("/readyz?verbose")
    await scene.template("one")
    await scene.pod("first", template="one")
    assert await scene.wait_until_bound("first") == node
    await scene.pod("second", template="one")
    await scene.wait_until_unschedulable("second", "matching devices are in use")
    await scene.delete_pod("first")
    assert await scene.wait_until_bound("second", PROMPT_SECONDS) == node
    assert await scene.allocated() == [f"{node}/gpu-0"]


@WITHOUT_COUNTERS
async def test_extended_resources_are_left_to_nodes_that_list_them_where_no_class_can_back_them(
    scene: NamespaceFixture,
) -> None:
    """kube-scheduler of these releases checks the resource on every node by itself, and no claim is made."""
    resource = f"{scene.driver}/gpu"
    await scene.node_with_devices("a", device("gpu-0"))
    backing = device_class(f"{scene.name}-backing", f'device.driver == "{scene.driver}"', extendedResourceName=resource)
    await scene.api.create(DEVICE_CLASSES, backing)
    assert "[i]extended-resources: not served" in await scene.world.page("/readyz?verbose")
    await scene.pod("extended", extended={resource: "1"})
    await scene.wait_until_unschedulable("extended", f"Insufficient {resource}")
    listed = await scene.node("b", extended={resource: "1"})
    assert await scene.wait_until_bound("extended") == listed
    assert list(await scene.api.list(RESOURCE_CLAIMS, scene.name)) == []
