"""Binding conditions (KEP-5007) on real nodes: no kubelet hears of a pod before its devices are attached."""

from typing import Final

import pytest

from tests.controlplane.node.options import NodeOptions
from tests.controlplane.resources import PODS
from tests.support.e2e.driver import driving
from tests.support.e2e.fabric import (
    ATTACHED,
    FAILED,
    FakeDriver,
    allocated_claim,
    attachable,
    wait_for_any_event,
    wait_until_nominated,
)
from tests.support.e2e.installed_extender import Setup
from tests.support.node.nodes import NodesSetup, RealNodes
from tests.support.node.pod_scene import PodScene

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.usefixtures("never_twice"),
]

NODES: Final = ("127.0.0.2", "127.0.0.3")


@pytest.fixture(scope="module")
def setup() -> NodesSetup:
    """Each node has one device that has to be attached first; one that has failed is left alone for long."""
    long = {"DRA_EXTENDER_SCHEDULING__DEVICE_BACKOFF_SECONDS": "600"}
    options = NodeOptions(devices=[attachable("gpu-0")])
    return NodesSetup(nodes=dict.fromkeys(NODES, options), world=Setup(environment=long))


def prepared(nodes: RealNodes) -> list[frozenset[str]]:
    """Devices that any driver has prepared, one entry for each claim."""
    return [devices for node in nodes for devices in node.prepared().values()]


async def test_nothing_is_prepared_until_the_device_is_attached_and_the_container_has_it_then(
    scene: PodScene, nodes: RealNodes
) -> None:
    await scene.claim("one")
    await scene.pod("worker", claim="one")
    claim = await allocated_claim(scene)
    (result,) = claim["status"]["allocation"]["devices"]["results"]
    await wait_until_nominated(scene, "worker", result["pool"])
    assert await scene.node_of("worker") == ""
    assert prepared(nodes) == []
    await FakeDriver(scene).report(claim, ATTACHED)
    assert await scene.expect_devices("worker") == {"DRA_GPU_0": f"{result['pool']}/gpu-0"}
    assert await scene.node_of("worker") == result["pool"]
    assert prepared(nodes) == [frozenset({f"{result['pool']}/gpu-0"})]


async def test_container_runs_on_the_other_node_if_the_device_of_the_first_cannot_be_attached(
    scene: PodScene, nodes: RealNodes
) -> None:
    driver = FakeDriver(scene)
    await scene.claim("one")
    await scene.pod("worker", claim="one")
    failed = await allocated_claim(scene)
    await driver.report(failed, FAILED, message="no free port")
    await wait_for_any_event(scene, "worker", "binding conditions failed", "no free port")
    again = await allocated_claim(scene, after=failed)
    first, second = [each["status"]["allocation"]["devices"]["results"][0]["pool"] for each in (failed, again)]
    assert {first, second} == set(NODES)
    await driver.report(again, ATTACHED)
    assert await scene.expect_devices("worker") == {"DRA_GPU_0": f"{second}/gpu-0"}
    assert nodes[first].prepared() == {}


async def test_pod_deleted_while_it_waits_for_its_device_reaches_no_kubelet(scene: PodScene, nodes: RealNodes) -> None:
    await scene.claim("one")
    await scene.pod("worker", claim="one")
    await allocated_claim(scene)
    await scene.delete_pod("worker")
    await scene.wait_until_gone("worker")
    await scene.wait_until_free()
    assert [
        node.name for node in nodes for log in ("kubelet", "driver") if scene.name in node.log(log).read_text()
    ] == []
    assert prepared(nodes) == []


async def test_pods_whose_devices_are_attached_one_by_one_all_run_in_the_end(scene: PodScene, nodes: RealNodes) -> None:
    """Four pods share two devices one after the other: each completes and leaves its device to the next."""
    await scene.template("one")
    async with driving(scene):
        names = [f"worker-{number}" for number in range(4)]
        for name in names:
            await scene.pod(name, template="one", commands=("env", "exit", "0"))
        for name in names:
            assert await scene.wait_until_ended(name) == "Succeeded"
    given = [value for name in names for value in (await scene.environment(name)).values()]
    assert len(given) == len(names)
    assert set(given) <= {f"{name}/gpu-0" for name in NODES}
    assert len(await scene.api.list(PODS, scene.name)) == len(names)
