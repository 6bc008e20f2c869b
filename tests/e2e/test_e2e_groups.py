"""Compatibility groups (KEP-5963): who may share a GPU, decided by what was true at allocation."""

from functools import partial
from pathlib import Path

import pytest
from dra_extender.model.allocation_snapshot import SNAPSHOT_ANNOTATION

from tests.controlplane.extender import ExtenderProcess
from tests.controlplane.objects import Object, amounts
from tests.controlplane.resources import RESOURCE_CLAIMS, RESOURCE_SLICES
from tests.support.e2e.driver import driving
from tests.support.e2e.fabric import ATTACHED, FAILED
from tests.support.e2e.gpus import gpu, mig_or_vgpu, partition
from tests.support.e2e.installed_extender import InstalledExtender, shipped_configuration
from tests.support.e2e.namespace_fixture import PROMPT_SECONDS, SECONDS, NamespaceFixture
from tests.support.e2e.scenes import carry_out_apart

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="module")]

CONFLICT = "compatibility groups in conflict"
SKIPPED = "devices with compatibility groups are skipped"


async def cut(scene: NamespaceFixture, *suffixes: str) -> list[str]:
    """Nodes with one GPU each, and the templates `mig` and `vgpu`."""
    for kind in ("mig", "vgpu"):
        await scene.template(kind, f'{scene.attribute("type")} == "{kind}"')
    return [await scene.node_with_counters(suffix, [gpu()], mig_or_vgpu()) for suffix in suffixes]


async def in_this_order(scene: NamespaceFixture, earlier: str, later: str) -> None:
    """The first of two GPUs is in the mode of the earlier pod: a pod of the other mode lands on the second one.

    One that can use the first one alone waits until the earlier pod is gone; its Event names both groups and who holds the GPU.
    """
    first, second = await cut(scene, "a", "b")
    await scene.pod(earlier, template=earlier, nodeSelector={"kubernetes.io/hostname": first})
    assert await scene.wait_until_bound(earlier) == first
    claim = await scene.claim_of(earlier)
    assert "compatibilityGroups" not in claim["status"]["allocation"]["devices"]["results"][0]
    assert f'"{earlier}"' in claim["metadata"]["annotations"][SNAPSHOT_ANNOTATION]
    await scene.pod(later, template=later)
    assert await scene.wait_until_bound(later) == second
    assert await scene.device_of(later) == f"{second}/gpu-0-{later}-0"
    await scene.pod("pinned", template=later, nodeSelector={"kubernetes.io/hostname": first})
    message = await scene.wait_until_unschedulable("pinned", CONFLICT)
    assert f'1 node(s): claim "gpu", request "gpu": {CONFLICT}' in message
    note = await scene.wait_for_event("pinned", CONFLICT)
    assert f"declares [{later}] on counter set gpu-0" in note
    assert f"gpu-0-{earlier}-0 (in use) has [{earlier}]" in note
    await scene.delete_pod(earlier)
    assert await scene.wait_until_bound("pinned", PROMPT_SECONDS) == first


async def edited_afterwards(scene: NamespaceFixture) -> None:
    """The snapshot on the claim counts; when the administrator removes it, the live slice does."""
    (node,) = await cut(scene, "a")
    await scene.pod("vgpu", template="vgpu")
    await scene.wait_until_bound("vgpu")
    claim = await scene.claim_of("vgpu")
    published = await scene.api.get(RESOURCE_SLICES, f"{scene.name}-a-devices")
    published["spec"]["devices"] = [
        partition(kind, index, share, groups=["mig"])
        for kind, index, share in (("mig", 0, "20"), ("mig", 1, "20"), ("vgpu", 0, "50"), ("vgpu", 1, "50"))
    ]
    await scene.api.replace(RESOURCE_SLICES, published)
    await scene.pod("mig", template="mig")
    await scene.wait_until_unschedulable("mig", CONFLICT)
    await scene.wait_for_event("mig", "gpu-0-vgpu-0 (in use) has [vgpu]")
    bare = {"metadata": {"annotations": {SNAPSHOT_ANNOTATION: None}}}
    await scene.api.patch(RESOURCE_CLAIMS, claim["metadata"]["name"], bare, scene.name)
    assert await scene.wait_until_bound("mig", PROMPT_SECONDS) == node


async def test_a_gpu_serves_one_mode_at_a_time_by_the_groups_that_were_published_at_its_allocation(
    scene: NamespaceFixture, world: InstalledExtender
) -> None:
    """The server does not have `results[].compatibilityGroups`: groups are kept in the annotation, and written once."""
    before = await world.metric("claim_writes_total", step="allocate")
    await carry_out_apart(
        scene,
        {
            "vgpu-before-mig": partial(in_this_order, earlier="vgpu", later="mig"),
            "mig-before-vgpu": partial(in_this_order, earlier="mig", later="vgpu"),
            "edited": edited_afterwards,
        },
    )
    allocations = 3 + 3 + 2
    assert await world.metric("claim_writes_total", step="allocate") == before + allocations
    assert await world.metric("stripped_fields_total", field="compatibilityGroups") == 0
    assert "[i]allocation-groups" not in await world.page("/readyz?verbose")


async def test_groups_off_and_on_again_with_holders_and_with_shares_in_flight(
    scene: NamespaceFixture, world: InstalledExtender, tmp_path: Path
) -> None:
    """What was allocated stays, and closes its counter set meanwhile; a share that waits for its device is bound all the same."""
    name, file = "groups-switched-scheduler", tmp_path / "settings.yaml"
    node = await scene.node_with_counters("a", [gpu("gpu-0"), gpu("gpu-1")], shared_and_plain())
    for kind in ("mps", "mig", "plain"):
        capacity = {"capacity": {"requests": {"memory": "2Gi"}}} if kind == "mps" else {}
        await scene.template(kind, f'{scene.attribute("type")} == "{kind}"', **capacity)
    await scene.claim("flying", f'{scene.attribute("type")} == "mps"', capacity={"requests": {"memory": "2Gi"}})
    file.write_text("features: {compatibility_groups: true}")
    arguments = ("--config", str(file))
    async with (
        driving(scene) as driver,
        ExtenderProcess(tmp_path, world.kubeconfig, extra=arguments, name="groups-switched") as extender,
    ):
        driver.idle.add("flying")
        await world.cluster.start_scheduler(shipped_configuration(extender.url, name), name)
        await scene.pod("holder", template="mps", scheduler=name)
        assert await scene.wait_until_bound("holder") == node
        await scene.pod("flying", claim="flying", scheduler=name)
        await scene.api.wait_for(lambda: shares(scene), SECONDS, "both shares are allocated")

        file.write_text("features: {compatibility_groups: false}")
        await extender.restart()
        await scene.pod("late", template="mps", scheduler=name)
        await scene.pod("mig", template="mig", scheduler=name)
        for pod in ("late", "mig"):
            await scene.wait_until_unschedulable(pod, SKIPPED)
        await scene.pod("plain", template="plain", scheduler=name)
        assert await scene.wait_until_bound("plain") == node
        assert await scene.device_of("plain") == f"{node}/gpu-1-plain-1"
        driver.idle.clear()
        assert await scene.wait_until_bound("flying") == node

        file.write_text("features: {compatibility_groups: true}")
        await extender.restart()
        assert await scene.wait_until_bound("late") == node
        await scene.wait_until_unschedulable("mig", CONFLICT)
        for pod in ("holder", "flying", "late"):
            await scene.delete_pod(pod)
        assert await scene.wait_until_bound("mig") == node
        await world.cluster.stop_scheduler(name)


def shared_and_plain() -> list[Object]:
    """A shared partition with a group and a condition to wait for, one in another group, and one without groups on each GPU."""
    shared = partition("mps", 0, "20")
    shared |= {
        "allowMultipleAllocations": True,
        "capacity": amounts({"memory": "8Gi"}),
        "bindsToNode": True,
        "bindingConditions": [ATTACHED],
        "bindingFailureConditions": [FAILED],
    }
    plain = [partition("plain", index, "20", gpu=f"gpu-{index}", groups=()) for index in range(2)]
    return [shared, partition("mig", 0, "20"), *plain]


async def shares(scene: NamespaceFixture) -> bool:
    """Whether two claims have a share of the shared partition."""
    return [each.endswith("/gpu-0-mps-0") for each in await scene.allocated()] == [True, True]
