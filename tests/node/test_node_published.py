"""A driver publishes other devices than before while containers run."""

from collections.abc import Sequence
from typing import Final

import pytest
from dra_extender.model.allocation_snapshot import SNAPSHOT_ANNOTATION

from tests.controlplane.node.options import NodeOptions
from tests.controlplane.objects import Object, counter_set, device
from tests.support.e2e.gpus import gpu, partition
from tests.support.node.nodes import NodesSetup, RealNodes, republish
from tests.support.node.pod_scene import PodScene

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.usefixtures("never_twice"),
]

NODE: Final = "127.0.0.2"


@pytest.fixture(scope="module")
def setup() -> NodesSetup:
    """What is published each test says first."""
    return NodesSetup(nodes={NODE: NodeOptions(devices=[])})


def typed(**kinds: str) -> list[Object]:
    """Devices by name, each with its type; `_` in a name stands for `-`."""
    return [device(name.replace("_", "-"), attributes={"type": kind}) for name, kind in kinds.items()]


async def started(scene: PodScene, name: str) -> tuple[str, int]:
    """Which container of a pod runs, and how often it has been restarted."""
    (status,) = (await scene.read(name))["status"]["containerStatuses"]
    return str(status["containerID"]), int(status["restartCount"])


async def test_container_keeps_a_device_that_is_published_no_more_and_nobody_else_gets_it(
    scene: PodScene, nodes: RealNodes
) -> None:
    await republish(nodes, NODE, typed(gpu_0="a"))
    await scene.template("one")
    await scene.pod("first", template="one")
    given = await scene.expect_devices("first")
    before = await started(scene, "first")
    await republish(nodes, NODE, typed(gpu_1="a"))
    await scene.pod("second", template="one")
    assert await scene.expect_devices("second") == {"DRA_GPU_0": f"{NODE}/gpu-1"}
    await republish(nodes, NODE, typed(gpu_0="a", gpu_1="a"))
    await scene.pod("third", template="one")
    await scene.wait_until_unschedulable("third", "matching devices are in use")
    assert await started(scene, "first") == before
    assert await scene.environment("first") == given
    await scene.delete_pod("first")
    assert await scene.expect_devices("third") == given


async def test_waiting_pod_runs_with_a_device_that_is_published_while_it_waits(
    scene: PodScene, nodes: RealNodes
) -> None:
    await republish(nodes, NODE, typed(gpu_0="old"))
    await scene.template("new", f'{scene.attribute("type")} == "new"')
    await scene.pod("waiting", template="new")
    await scene.wait_until_unschedulable("waiting", "no device matches the selectors")
    await republish(nodes, NODE, typed(gpu_0="old", gpu_1="new"))
    assert await scene.expect_devices("waiting") == {"DRA_GPU_0": f"{NODE}/gpu-1"}


async def test_attribute_changed_under_a_running_pod_counts_for_the_next_one_alone(
    scene: PodScene, nodes: RealNodes
) -> None:
    await republish(nodes, NODE, typed(gpu_0="fast", gpu_1="slow"))
    for kind in ("fast", "slow"):
        await scene.template(kind, f'{scene.attribute("type")} == "{kind}"')
    await scene.pod("fast", template="fast")
    assert await scene.expect_devices("fast") == {"DRA_GPU_0": f"{NODE}/gpu-0"}
    before = await started(scene, "fast")
    await republish(nodes, NODE, typed(gpu_0="slow", gpu_1="fast"))
    await scene.pod("slow", template="slow")
    await scene.wait_until_unschedulable("slow", "matching devices are in use")
    await scene.pod("again", template="fast")
    assert await scene.expect_devices("again") == {"DRA_GPU_0": f"{NODE}/gpu-1"}
    assert await started(scene, "fast") == before


async def test_groups_edited_under_a_running_pod_are_as_they_were_when_it_was_placed(
    scene: PodScene, nodes: RealNodes
) -> None:
    """The snapshot on its claim counts until the pod has ended."""
    kinds = (("mig", "20"), ("vgpu", "50"))
    await republish(nodes, NODE, [partition(kind, 0, share) for kind, share in kinds], [gpu()])
    for kind, _ in kinds:
        await scene.template(kind, f'{scene.attribute("type")} == "{kind}"')
    await scene.pod("vgpu", template="vgpu")
    assert await scene.expect_devices("vgpu") == {"DRA_GPU_0": f"{NODE}/gpu-0-vgpu-0"}
    assert '"vgpu"' in (await scene.claim_of("vgpu"))["metadata"]["annotations"][SNAPSHOT_ANNOTATION]
    await republish(nodes, NODE, [partition(kind, 0, share, groups=["mig"]) for kind, share in kinds], [gpu()])
    await scene.pod("mig", template="mig")
    await scene.wait_until_unschedulable("mig", "compatibility groups in conflict")
    await scene.delete_pod("vgpu")
    assert await scene.expect_devices("mig") == {"DRA_GPU_0": f"{NODE}/gpu-0-mig-0"}
    await scene.pod("vgpu-again", template="vgpu")
    assert await scene.expect_devices("vgpu-again") == {"DRA_GPU_0": f"{NODE}/gpu-0-vgpu-0"}


async def test_counters_cut_under_running_pods_end_nobody_and_admit_nobody_until_there_is_room(
    scene: PodScene, nodes: RealNodes
) -> None:
    """The GPU has less than its partitions in use take, as after a fault of its memory."""
    halves = [partition("half", index, "50", groups=()) for index in range(2)]
    small = partition("small", 0, "10", groups=())
    await republish(nodes, NODE, halves, [counter_set("gpu-0", multiprocessors="100")])
    for kind in ("half", "small"):
        await scene.template(kind, f'{scene.attribute("type")} == "{kind}"')
    for name in ("a", "b"):
        await scene.pod(name, template="half")
        await scene.expect_devices(name)
    before = await started(scene, "a"), await started(scene, "b")
    await republish(nodes, NODE, [*halves, small], [counter_set("gpu-0", multiprocessors="80")])
    await scene.pod("small", template="small")
    await scene.wait_until_unschedulable("small", "shared counters are exhausted")
    assert (await started(scene, "a"), await started(scene, "b")) == before
    await scene.delete_pod("a")
    assert await scene.expect_devices("small") == {"DRA_GPU_0": f"{NODE}/gpu-0-small-0"}
    assert await started(scene, "b") == before[1]


async def test_pools_published_ten_times_while_pods_come_lose_and_double_no_device(
    scene: PodScene, nodes: RealNodes
) -> None:
    """Each time in another order, and with one device more."""
    await republish(nodes, NODE, typed(gpu_0="a"))
    await scene.template("one")
    names: list[str] = []
    for count in range(1, 11):
        devices: Sequence[Object] = [device(f"gpu-{index}", attributes={"type": "a"}) for index in range(count)]
        await republish(nodes, NODE, devices if count % 2 else [*reversed(devices)])
        names.append(f"pod-{count}")
        await scene.pod(names[-1], template="one")
    given = [tuple((await scene.expect_devices(name)).values()) for name in names]
    assert sorted(given) == sorted((f"{NODE}/gpu-{index}",) for index in range(10))
