"""Kubelet and driver are away while a pod is deleted: its device stays taken until it is unprepared."""

import pytest
import pytest_asyncio

from tests.controlplane.node.node import KUBELET, Node
from tests.controlplane.node.options import NodeOptions, gpus
from tests.support.node.nodes import NodesSetup, RealNodes
from tests.support.node.pod_scene import PodScene

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="module")]
NAME = "127.0.0.2"
DEVICES = 2


@pytest.fixture(scope="module")
def setup() -> NodesSetup:
    return NodesSetup(nodes={NAME: NodeOptions(devices=gpus(DEVICES))})


@pytest_asyncio.fixture(loop_scope="module")
async def node(nodes: RealNodes) -> Node:
    """A kubelet that starts deletes the slices of its node; the driver publishes them again within half a minute."""
    await nodes[NAME].wait_until_published()
    return nodes[NAME]


async def test_device_of_a_pod_that_is_deleted_while_the_kubelet_is_down_stays_taken_until_it_is_unprepared(
    scene: PodScene, node: Node
) -> None:
    await scene.template("all", count=DEVICES)
    await scene.pod("first", template="all")
    devices = await scene.expect_devices("first")
    await node.stop_kubelet()
    await scene.delete_pod("first")
    await scene.pod("next", template="all")
    await scene.wait_until_unschedulable("next", "in use")
    assert len(node.prepared()) == 1

    await node.start_kubelet()

    assert await scene.expect_devices("next") == devices
    await scene.wait_until_gone("first")


async def test_device_of_a_pod_that_is_deleted_while_the_driver_is_down_stays_taken_until_it_is_unprepared(
    scene: PodScene, node: Node
) -> None:
    await scene.template("all", count=DEVICES)
    await scene.pod("first", template="all")
    devices = await scene.expect_devices("first")
    await node.stop_driver()
    await scene.delete_pod("first")
    await scene.api.wait_for(
        lambda: has_logged(node, f"{scene.name}/first", "unprepare dynamic resources"),
        60.0,
        "the kubelet tries in vain",
    )
    await scene.pod("next", template="all")
    await scene.wait_until_unschedulable("next")
    assert len(node.prepared()) == 1

    await node.start_driver()

    assert await scene.expect_devices("next") == devices
    await scene.wait_until_gone("first")


async def has_logged(node: Node, *words: str) -> bool:
    """The kubelet says nothing of it in the API."""
    lines = node.log(KUBELET).read_text(errors="replace").splitlines()
    return any(all(word in line for word in words) for line in lines)
