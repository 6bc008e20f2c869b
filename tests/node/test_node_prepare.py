"""A driver that fails: the kubelet tries again, and what a claim was allocated stays its own meanwhile."""

from collections.abc import Iterator
from typing import Final

import pytest

from tests.controlplane.node.options import NodeOptions, gpus
from tests.support.e2e.fabric import wait_for_any_event
from tests.support.node.nodes import NodesSetup, RealNodes
from tests.support.node.pod_scene import PodScene

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.usefixtures("never_twice"),
]


NODE: Final = "127.0.0.2"
SECONDS: Final = 120.0
BROKEN: Final = "the device does not answer"
IN_USE: Final = "matching devices are in use"


@pytest.fixture(scope="module")
def setup() -> NodesSetup:
    """Two devices, so that one pod can fail beside one that runs."""
    return NodesSetup(nodes={NODE: NodeOptions(devices=gpus(2))})


@pytest.fixture(autouse=True)
def well_again(scene: PodScene, nodes: RealNodes) -> Iterator[None]:
    """Whatever a test lets the driver do ends with it, so that everything can be unprepared."""
    yield
    nodes[NODE].behave()


async def wait_for_log(nodes: RealNodes, *words: str) -> None:
    """Wait until a line of the driver's log has all these words."""
    log = nodes[NODE].log("driver")

    async def told() -> bool:
        return any(all(word in line for word in words) for line in log.read_text().splitlines())

    await nodes.api.wait_for(told, SECONDS, f"the driver has logged {words}")


async def test_pod_whose_device_cannot_be_prepared_keeps_it_and_runs_once_the_driver_is_well(
    scene: PodScene, nodes: RealNodes
) -> None:
    await scene.template("one")
    nodes[NODE].behave(prepare_error=BROKEN)
    await scene.pod("failing", template="one")
    await wait_for_any_event(scene, "failing", "prepare", BROKEN)
    before = await scene.device_of("failing")
    assert nodes[NODE].prepared() == {}
    assert (await scene.read("failing"))["status"]["phase"] == "Pending"
    nodes[NODE].behave()
    assert await scene.expect_devices("failing") == {"DRA_GPU_0": before}


async def test_error_for_one_claim_leaves_other_pods_of_the_node_alone(scene: PodScene, nodes: RealNodes) -> None:
    await scene.claim("bad")
    await scene.claim("good")
    nodes[NODE].behave(prepare_error=BROKEN, claim=f"{scene.name}/bad")
    await scene.pod("failing", claim="bad")
    await wait_for_any_event(scene, "failing", "prepare", BROKEN)
    await scene.pod("running", claim="good")
    await scene.expect_devices("running")
    await scene.template("one")
    await scene.pod("waiting", template="one")
    await scene.wait_until_unschedulable("waiting", IN_USE)
    await scene.delete_pod("failing")
    await scene.wait_until_gone("failing")
    await scene.expect_devices("waiting")


async def test_pod_deleted_while_its_device_cannot_be_prepared_goes_and_gives_the_device_back(
    scene: PodScene, nodes: RealNodes
) -> None:
    await scene.template("both", count=2)
    nodes[NODE].behave(prepare_error=BROKEN)
    await scene.pod("failing", template="both")
    await wait_for_any_event(scene, "failing", "prepare", BROKEN)
    await scene.pod("next", template="both")
    await scene.wait_until_unschedulable("next", IN_USE)
    await scene.delete_pod("failing")
    await scene.wait_until_gone("failing")
    nodes[NODE].behave()
    assert len(await scene.expect_devices("next")) == 2


async def test_device_that_cannot_be_unprepared_is_given_to_nobody_until_it_is(
    scene: PodScene, nodes: RealNodes
) -> None:
    """The pod stays on its way out, and its claim allocated; the next one waits."""
    await scene.template("both", count=2)
    await scene.pod("first", template="both")
    given = await scene.expect_devices("first")
    nodes[NODE].behave(unprepare_error=BROKEN)
    claim = await scene.claim_of("first")
    await scene.delete_pod("first")
    await wait_for_log(nodes, "unprepare", claim["metadata"]["uid"], BROKEN)
    await scene.pod("next", template="both")
    await scene.wait_until_unschedulable("next", IN_USE)
    assert (await scene.read("first"))["metadata"]["deletionTimestamp"]
    assert len(nodes[NODE].prepared()) == 1
    nodes[NODE].behave()
    await scene.wait_until_gone("first")
    assert await scene.expect_devices("next") == given
