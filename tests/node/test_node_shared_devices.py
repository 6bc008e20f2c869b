"""One device in several containers that run: by one claim, and by an administrator's access."""

from typing import Final

import pytest

from tests.controlplane.node.options import NodeOptions, gpus
from tests.controlplane.resources import NAMESPACES
from tests.support.node.nodes import NodesSetup
from tests.support.node.pod_scene import PodScene

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="module")]

NODE: Final = "127.0.0.2"
PODS_OF_A_CLAIM: Final = 6


@pytest.fixture(scope="module")
def setup() -> NodesSetup:
    """One node with two devices."""
    return NodesSetup(nodes={NODE: NodeOptions(devices=gpus(2))})


async def test_pods_share_one_claim_and_it_is_unprepared_after_the_last(scene: PodScene) -> None:
    await scene.claim("one", f"has({scene.attribute('index')})")
    names = [f"pod-{number}" for number in range(PODS_OF_A_CLAIM)]
    for name in names:
        await scene.pod(name, claim="one")
    found = [await scene.expect_devices(name) for name in names]
    assert all(each == found[0] for each in found)
    uid = (await scene.stored_claim("one"))["metadata"]["uid"]
    for name in names[1:]:
        await scene.delete_pod(name)
        await scene.wait_until_gone(name)
    assert scene.nodes[NODE].prepared() == {uid: set(found[0].values())}
    assert (await scene.read(names[0]))["status"]["phase"] == "Running"
    await scene.delete_pod(names[0])
    await scene.wait_until_gone(names[0])
    assert scene.nodes[NODE].prepared() == {}


async def test_an_administrator_has_a_device_beside_the_pod_that_has_it(scene: PodScene) -> None:
    label = {"metadata": {"labels": {"resource.kubernetes.io/admin-access": "true"}}}
    await scene.api.patch(NAMESPACES, scene.name, label)
    only = f"{scene.attribute('index')} == 0"
    await scene.claim("used", only)
    await scene.pod("user", claim="used")
    assert await scene.expect_devices("user") == {"DRA_GPU_0": f"{NODE}/gpu-0"}
    for name in ("monitor", "second-monitor"):
        await scene.claim(name, only, adminAccess=True)
        await scene.pod(name, claim=name)
        assert await scene.expect_devices(name) == {"DRA_GPU_0": f"{NODE}/gpu-0!admin"}
    await scene.claim("rival", only)
    await scene.pod("rival", claim="rival")
    await scene.wait_until_unschedulable("rival")
    await scene.delete_pod("user")
    assert await scene.expect_devices("rival") == {"DRA_GPU_0": f"{NODE}/gpu-0"}
