"""`kubectl drain` under a PodDisruptionBudget: a pod leaves once the one before it has devices of another node."""

import asyncio

import pytest

from tests.controlplane.cluster import KubectlError
from tests.controlplane.node.options import NodeOptions, gpus
from tests.controlplane.objects import Object
from tests.controlplane.resources import POD_DISRUPTION_BUDGETS
from tests.support.node.nodes import NodesSetup, RealNodes
from tests.support.node.pod_scene import PodScene
from tests.support.node.replica_set import labels, pods_of, replica_set

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="module")]
DRAINED, OTHER = "127.0.0.2", "127.0.0.3"
REPLICAS = 3
DRAIN_SECONDS = 240.0


@pytest.fixture(scope="module")
def setup() -> NodesSetup:
    return NodesSetup(nodes={each: NodeOptions(devices=gpus(REPLICAS)) for each in (DRAINED, OTHER)})


async def test_drain_moves_pods_with_their_devices_one_by_one(scene: PodScene, nodes: RealNodes) -> None:
    await scene.template("one")
    await nodes.cordon(OTHER, True)
    await scene.api.create(POD_DISRUPTION_BUDGETS, budget(scene, "web", at_least=REPLICAS - 1))
    async with replica_set(scene, "web", REPLICAS, "one"):
        before = await running(scene, "web", REPLICAS)
        assert await devices(scene, before) == {f"{DRAINED}/gpu-{number}" for number in range(REPLICAS)}
        await nodes.cordon(OTHER, False)

        ready: list[int] = []
        draining = asyncio.create_task(drain(nodes, DRAINED))

        async def drained() -> bool:
            ready.append(len([each for each in await pods_of(scene, "web") if is_ready(each)]))
            return draining.done()

        await scene.api.wait_for(drained, DRAIN_SECONDS, f"node {DRAINED} is drained")
        await draining

        assert min(ready) == REPLICAS - 1
        after = await running(scene, "web", REPLICAS)
        assert await devices(scene, after) == {f"{OTHER}/gpu-{number}" for number in range(REPLICAS)}
        await scene.api.wait_for(lambda: nothing_prepared(nodes, DRAINED), 60.0, f"{DRAINED} has nothing prepared")
    await nodes.cordon(DRAINED, False)


async def test_drain_waits_while_no_other_node_has_a_device_for_the_evicted_pod(
    scene: PodScene, nodes: RealNodes
) -> None:
    """The budget keeps the rest where it is until the pod that was evicted runs, on a device that somebody gives back."""
    await scene.template("one")
    await scene.template("all", count=REPLICAS)
    await scene.pod("other", template="all", nodeSelector=on(OTHER))
    await scene.expect_devices("other")
    await scene.api.create(POD_DISRUPTION_BUDGETS, budget(scene, "web", at_least=1))
    async with replica_set(scene, "web", 2, "one"):
        await running(scene, "web", 2)
        draining = asyncio.create_task(drain(nodes, DRAINED))
        waiting = await scene.api.wait_for(lambda: pending(scene, "web"), 120.0, "a pod was evicted and made anew")
        await scene.wait_until_unschedulable(waiting)
        kept = [each for each in await pods_of(scene, "web") if is_ready(each)]
        assert [each["spec"]["nodeName"] for each in kept] == [DRAINED]
        assert not draining.done()

        await scene.delete_pod("other")
        await draining

        assert all(each.startswith(OTHER) for each in await devices(scene, await running(scene, "web", 2)))
    await nodes.cordon(DRAINED, False)


def on(node: str) -> dict[str, str]:
    return {"kubernetes.io/hostname": node}


def budget(scene: PodScene, name: str, at_least: int) -> Object:
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": name, "namespace": scene.name},
        "spec": {"minAvailable": at_least, "selector": {"matchLabels": labels(name)}},
    }


async def drain(nodes: RealNodes, node: str) -> None:
    """A drain ends with an error when its time is over; the next goes on."""

    async def drained() -> bool:
        try:
            await asyncio.to_thread(nodes.cluster.kubectl, "drain", node, "--timeout=30s")
        except KubectlError:
            return False
        return True

    await nodes.api.wait_for(drained, DRAIN_SECONDS, f"node {node} is drained")


def is_ready(pod: Object) -> bool:
    conditions = pod["status"].get("conditions", ())
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


async def running(scene: PodScene, name: str, wanted: int) -> list[str]:
    """The names of the pods, once so many are ready."""

    async def ready() -> list[str]:
        found = [each["metadata"]["name"] for each in await pods_of(scene, name) if is_ready(each)]
        return found if len(found) == wanted else []

    return await scene.api.wait_for(ready, 120.0, f"the pods of {name} are ready")


async def devices(scene: PodScene, pods: list[str]) -> set[str]:
    return {device for name in pods for device in (await scene.expect_devices(name)).values()}


async def pending(scene: PodScene, name: str) -> str:
    found = [each["metadata"]["name"] for each in await pods_of(scene, name) if not each["spec"].get("nodeName")]
    return found[0] if found else ""


async def nothing_prepared(nodes: RealNodes, node: str) -> bool:
    return not nodes[node].prepared()
