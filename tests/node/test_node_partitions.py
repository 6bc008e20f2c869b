"""Partitions of one GPU: compatibility groups keep containers that run apart."""

from typing import Final

import pytest

from tests.controlplane.node.options import NodeOptions
from tests.support.e2e.gpus import gpu, mig_or_vgpu
from tests.support.node.nodes import NodesSetup
from tests.support.node.pod_scene import PodScene

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.usefixtures("never_twice"),
]

FIRST: Final = "127.0.0.2"
SECOND: Final = "127.0.0.3"


@pytest.fixture(scope="module")
def setup() -> NodesSetup:
    """Each node has a GPU that is cut as MIG or as vGPU."""
    options = NodeOptions(devices=mig_or_vgpu(), counter_sets=[gpu()])
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


async def test_vgpu_pod_that_completes_leaves_its_gpu_to_mig(scene: PodScene) -> None:
    """The pod itself stays, as pods of Jobs do."""
    await templates(scene, "mig", "vgpu")
    here = {"kubernetes.io/hostname": FIRST}
    await scene.pod("vgpu", template="vgpu", commands=("env", "exit", "0"), nodeSelector=here)
    assert await scene.wait_until_ended("vgpu") == "Succeeded"
    await scene.pod("mig", template="mig", nodeSelector=here)
    assert await scene.expect_devices("mig") == {"DRA_GPU_0": f"{FIRST}/gpu-0-mig-0"}
    assert (await scene.read("vgpu"))["status"]["phase"] == "Succeeded"
