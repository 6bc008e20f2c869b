"""Partitions of one GPU: counters and compatibility groups keep containers that run apart."""

from typing import Final

import pytest

from tests.controlplane.node.options import NodeOptions
from tests.support.e2e.gpus import gpu, mig_or_vgpu, partition
from tests.support.node.nodes import NodesSetup
from tests.support.node.pod_scene import PodScene

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.usefixtures("never_twice"),
]

FIRST: Final = "127.0.0.2"
SECOND: Final = "127.0.0.3"
CONFLICT: Final = "compatibility groups in conflict"
EXHAUSTED: Final = "shared counters are exhausted"


@pytest.fixture(scope="module")
def setup() -> NodesSetup:
    """Each node has a GPU that is cut as MIG or as vGPU, and one that is had as a whole or in parts."""
    whole = partition("whole", 0, "100", gpu="gpu-1", groups=())
    parts = [partition("part", index, "50", gpu="gpu-1", groups=()) for index in range(2)]
    options = NodeOptions(devices=[*mig_or_vgpu(), whole, *parts], counter_sets=[gpu("gpu-0"), gpu("gpu-1")])
    return NodesSetup(nodes=dict.fromkeys((FIRST, SECOND), options))


async def templates(scene: PodScene, *kinds: str) -> None:
    """A template for a device of each kind, called like it."""
    for kind in kinds:
        await scene.template(kind, f'{scene.attribute("type")} == "{kind}"')


async def test_mig_and_vgpu_run_on_different_gpus_and_neighbours_of_one_kind_on_one(scene: PodScene) -> None:
    await templates(scene, "mig", "vgpu")
    for name, kind in (("vgpu-a", "vgpu"), ("mig-a", "mig"), ("vgpu-b", "vgpu"), ("mig-b", "mig")):
        await scene.pod(name, template=kind)
        await scene.wait_until_running(name)
    devices = {
        name: set((await scene.expect_devices(name)).values()) for name in ("vgpu-a", "vgpu-b", "mig-a", "mig-b")
    }
    assert all(len(each) == 1 for each in devices.values())
    assert len(set.union(*devices.values())) == 4
    of_vgpu = {await scene.node_of(name) for name in ("vgpu-a", "vgpu-b")}
    of_mig = {await scene.node_of(name) for name in ("mig-a", "mig-b")}
    assert (len(of_vgpu), len(of_mig)) == (1, 1)
    assert of_vgpu.isdisjoint(of_mig)


async def test_mig_pod_is_refused_while_a_vgpu_pod_runs_and_runs_once_it_has_ended(scene: PodScene) -> None:
    await templates(scene, "mig", "vgpu")
    here = {"kubernetes.io/hostname": FIRST}
    await scene.pod("vgpu", template="vgpu", nodeSelector=here)
    assert await scene.expect_devices("vgpu") == {"DRA_GPU_0": f"{FIRST}/gpu-0-vgpu-0"}
    await scene.pod("mig", template="mig", nodeSelector=here)
    await scene.wait_until_unschedulable("mig", CONFLICT)
    await scene.wait_for_event("mig", "gpu-0-vgpu-0 (allocated) has [vgpu]")
    await scene.delete_pod("vgpu")
    assert await scene.expect_devices("mig") == {"DRA_GPU_0": f"{FIRST}/gpu-0-mig-0"}


async def test_vgpu_pod_that_completes_leaves_its_gpu_to_mig(scene: PodScene) -> None:
    """The pod itself stays, as pods of Jobs do."""
    await templates(scene, "mig", "vgpu")
    here = {"kubernetes.io/hostname": FIRST}
    await scene.pod("vgpu", template="vgpu", commands=("env", "exit", "0"), nodeSelector=here)
    assert await scene.wait_until_ended("vgpu") == "Succeeded"
    await scene.pod("mig", template="mig", nodeSelector=here)
    assert await scene.expect_devices("mig") == {"DRA_GPU_0": f"{FIRST}/gpu-0-mig-0"}
    assert (await scene.read("vgpu"))["status"]["phase"] == "Succeeded"


async def test_whole_gpu_waits_for_its_parts_by_counters_alone(scene: PodScene) -> None:
    await templates(scene, "whole", "part")
    here = {"kubernetes.io/hostname": FIRST}
    for name in ("part-a", "part-b"):
        await scene.pod(name, template="part", nodeSelector=here)
        await scene.expect_devices(name)
    await scene.pod("whole", template="whole", nodeSelector=here)
    await scene.wait_until_unschedulable("whole", EXHAUSTED)
    await scene.delete_pod("part-a")
    await scene.wait_until_gone("part-a")
    await scene.wait_until_unschedulable("whole", EXHAUSTED)
    await scene.delete_pod("part-b")
    assert await scene.expect_devices("whole") == {"DRA_GPU_0": f"{FIRST}/gpu-1-whole-0"}
    await scene.pod("part-c", template="part", nodeSelector=here)
    await scene.wait_until_unschedulable("part-c", EXHAUSTED)
