"""Compatibility groups (KEP-5963): who may share a GPU, decided by what was true at allocation."""

from pathlib import Path

import pytest

from app.model.snapshot import SNAPSHOT_ANNOTATION
from tests.controlplane.extender import ExtenderProcess
from tests.controlplane.resources import RESOURCE_CLAIMS, RESOURCE_SLICES
from tests.e2e.gpus import gpu, mig_or_vgpu, partition
from tests.e2e.scene import PROMPT_SECONDS, Scene
from tests.e2e.world import World, shipped_configuration

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="module")]

CONFLICT = "compatibility groups in conflict"


async def cut(scene: Scene, *suffixes: str) -> list[str]:
    """Nodes with one GPU each, and the templates `mig` and `vgpu`."""
    for kind in ("mig", "vgpu"):
        await scene.template(kind, f'{scene.attribute("type")} == "{kind}"')
    return [await scene.node_with_counters(suffix, [gpu()], mig_or_vgpu()) for suffix in suffixes]


async def test_mig_pod_is_refused_on_a_gpu_in_vgpu_mode_and_lands_on_another(scene: Scene) -> None:
    first, second = await cut(scene, "a", "b")
    await scene.pod("vgpu", template="vgpu", nodeSelector={"kubernetes.io/hostname": first})
    assert await scene.bound("vgpu") == first
    await scene.pod("mig", template="mig")
    assert await scene.bound("mig") == second
    assert await scene.device_of("mig") == f"{second}/gpu-0-mig-0"


async def test_mig_pod_waits_for_the_only_gpu_and_is_bound_soon_after_the_vgpu_pod_is_gone(scene: Scene) -> None:
    """Its Event names both groups and who holds the GPU."""
    (node,) = await cut(scene, "a")
    await scene.pod("vgpu", template="vgpu")
    await scene.bound("vgpu")
    await scene.pod("mig", template="mig")
    message = await scene.waits("mig", CONFLICT)
    assert message.startswith(f"0/1 nodes are available: 1 claim gpu: request gpu: {CONFLICT}.")
    note = await scene.told("mig", CONFLICT)
    assert "declares [mig] on counter set gpu-0" in note
    assert "gpu-0-vgpu-0 (allocated) has [vgpu]" in note
    await scene.delete_pod("vgpu")
    assert await scene.bound("mig", PROMPT_SECONDS) == node


async def test_groups_edited_after_an_allocation_do_not_change_what_was_allocated(scene: Scene) -> None:
    """The snapshot on the claim counts; when the administrator removes it, the live slice does."""
    (node,) = await cut(scene, "a")
    await scene.pod("vgpu", template="vgpu")
    await scene.bound("vgpu")
    claim = await scene.claim_of("vgpu")
    assert '"vgpu"' in claim["metadata"]["annotations"][SNAPSHOT_ANNOTATION]
    slices = f"{scene.name}-a-devices"
    published = await scene.api.get(RESOURCE_SLICES, slices)
    published["spec"]["devices"] = [
        partition(kind, index, share, groups=["mig"])
        for kind, index, share in (("mig", 0, "20"), ("mig", 1, "20"), ("vgpu", 0, "50"), ("vgpu", 1, "50"))
    ]
    await scene.api.replace(RESOURCE_SLICES, published)
    await scene.pod("mig", template="mig")
    await scene.waits("mig", CONFLICT)
    await scene.told("mig", "gpu-0-vgpu-0 (allocated) has [vgpu]")
    bare = {"metadata": {"annotations": {SNAPSHOT_ANNOTATION: None}}}
    await scene.api.patch(RESOURCE_CLAIMS, claim["metadata"]["name"], bare, scene.name)
    assert await scene.bound("mig", PROMPT_SECONDS) == node


async def test_pools_with_groups_are_not_used_while_groups_are_switched_off(
    scene: Scene, world: World, tmp_path: Path
) -> None:
    """As with the gate of released schedulers off, their slices count for nothing; a pool without groups is used."""
    name = "groups-off-scheduler"
    await cut(scene, "a")
    plain = await scene.node_with_counters("b", [gpu()], [partition("mig", 0, "20", groups=())])
    off = {"DRA_EXTENDER_FEATURES__COMPATIBILITY_GROUPS": "false"}
    async with ExtenderProcess(tmp_path, world.kubeconfig, environment=off, name="groups-off") as extender:
        await world.cluster.start_scheduler(shipped_configuration(extender.url, name), name)
        await scene.pod("mig", template="mig", scheduler=name)
        await scene.pod("vgpu", template="vgpu", scheduler=name)
        assert await scene.bound("mig") == plain
        await scene.waits("vgpu", "slices with compatibility groups are ignored")
        await world.cluster.stop_scheduler(name)
