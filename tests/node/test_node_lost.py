"""A node dies at once: what ran there has its devices again when the node is back, or somewhere else when it is given up."""

import pytest

from tests.controlplane.apierror import ApiError
from tests.controlplane.node.node import Node
from tests.controlplane.node.options import NodeOptions, gpus
from tests.controlplane.resources import NODES, PODS
from tests.support.e2e.namespace_fixture import devices_of
from tests.support.node.nodes import NodesSetup, RealNodes
from tests.support.node.pod_scene import PodScene
from tests.support.node.replica_set import pods_of, replica_set

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="module")]
LOST, OTHER = "127.0.0.2", "127.0.0.3"
DEVICES = 2
AT_ONCE = [
    {"key": f"node.kubernetes.io/{key}", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 1}
    for key in ("unreachable", "not-ready")
]
"""A pod with these is to go as soon as its node is known to be away."""
LOST_SECONDS = 240.0
"""kube-controller-manager takes most of a minute to miss a node, and another one to remove the pods of a deleted one."""


@pytest.fixture(scope="module")
def setup() -> NodesSetup:
    return NodesSetup(nodes={each: NodeOptions(devices=gpus(DEVICES)) for each in (LOST, OTHER)})


@pytest.fixture
def lost(nodes: RealNodes) -> Node:
    return nodes[LOST]


async def test_pods_of_a_node_that_comes_back_have_the_same_devices_again_or_free_them(
    scene: PodScene, lost: Node
) -> None:
    await scene.template("one")
    await scene.template("all", count=DEVICES)
    there = {"kubernetes.io/hostname": LOST}
    await scene.pod("service", template="one", restartPolicy="Always", nodeSelector=there)
    await scene.pod("task", template="one", restartPolicy="Never", nodeSelector=there)
    service, task = [await scene.expect_devices(name) for name in ("service", "task")]
    container = await scene.container_id("service")

    await lost.crash()
    await lost.start_again()

    assert await scene.wait_until_ended("task") == "Failed"
    await scene.wait_until_restarted("service", container)
    assert await scene.expect_devices("service") == service
    await scene.pod("next", template="one", nodeSelector=there)
    assert await scene.expect_devices("next") == task


async def test_devices_of_a_lost_node_stay_taken_until_the_node_is_deleted(
    scene: PodScene, nodes: RealNodes, lost: Node
) -> None:
    """A node that is away may run its pods all the same: nobody else gets their devices, although the pods are to go."""
    await scene.template("one")
    await nodes.cordon(OTHER, True)
    async with replica_set(scene, "web", 1, "one", tolerations=AT_ONCE):
        await scene.api.wait_for(lambda: on_node(scene, LOST), 60.0, "the pod is placed")
        (pod,) = await pods_of(scene, "web")
        name = pod["metadata"]["name"]
        (device,) = (await scene.expect_devices(name)).values()
        (claim,) = (await scene.claims_of(await scene.read(name))).values()

        await lost.crash()
        await scene.api.wait_for(lambda: is_leaving(scene, name), LOST_SECONDS, f"pod {name} is to leave {LOST}")
        await nodes.cordon(OTHER, False)
        successor = await scene.api.wait_for(
            lambda: on_node(scene, OTHER), LOST_SECONDS, f"its successor is on {OTHER}"
        )
        assert list((await scene.expect_devices(successor)).values()) != [device]
        assert devices_of(await scene.stored_claim(claim["metadata"]["name"])) == [device]

        await nodes.api.delete(NODES, LOST)
        await scene.api.wait_for(lambda: is_absent(scene, name), LOST_SECONDS, f"pod {name} is gone")
        await scene.api.wait_for(
            lambda: is_released(scene, claim["metadata"]["name"]), LOST_SECONDS, f"device {device} is free"
        )
        await scene.api.wait_for(lambda: has_no_slices(lost), LOST_SECONDS, f"{LOST} has no slices any more")

        await lost.start_again()
        await scene.pod("next", template="one", nodeSelector={"kubernetes.io/hostname": LOST})
        assert all(each.startswith(LOST) for each in (await scene.expect_devices("next")).values())


async def on_node(scene: PodScene, node: str) -> str:
    """The name of a pod of the ReplicaSet that is bound to the node."""
    found = [each["metadata"]["name"] for each in await pods_of(scene, "web") if each["spec"].get("nodeName") == node]
    return found[0] if found else ""


async def is_leaving(scene: PodScene, name: str) -> bool:
    return "deletionTimestamp" in (await scene.read(name))["metadata"]


async def is_absent(scene: PodScene, name: str) -> bool:
    return all(each["metadata"]["name"] != name for each in await scene.api.list(PODS, scene.name))


async def is_released(scene: PodScene, claim: str) -> bool:
    try:
        return not devices_of(await scene.stored_claim(claim))
    except ApiError as absent:
        return absent.status == 404


async def has_no_slices(node: Node) -> bool:
    return not await node.slices()
