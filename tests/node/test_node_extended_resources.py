"""Extended resources that a DeviceClass backs: containers get the devices of the claim that was made for them."""

import pytest

from tests.controlplane.node.configuration import IMAGE
from tests.controlplane.resources import RESOURCE_CLAIMS
from tests.support.e2e.workloads import backed
from tests.support.node.injected import injected
from tests.support.node.nodes import ADMIN_KUBELET, NodesSetup
from tests.support.node.pod_scene import PodScene

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="module")]

IMPLICIT = "deviceclass.resource.kubernetes.io/"


@pytest.fixture(scope="module")
def setup() -> NodesSetup:
    return ADMIN_KUBELET


async def test_a_container_has_as_many_devices_as_it_asks_for(scene: PodScene) -> None:
    resource = await backed(scene)
    await scene.pod("two", extended={resource: "2"})
    assert len(set((await scene.expect_devices("two")).values())) == 2


async def test_a_class_can_be_asked_for_by_its_own_name(scene: PodScene) -> None:
    await scene.pod("one", extended={f"{IMPLICIT}{scene.name}": "1"})
    assert len(await scene.expect_devices("one")) == 1


async def test_each_container_has_devices_of_its_own(scene: PodScene) -> None:
    resource = await backed(scene)
    await scene.pod("pair", extended={resource: "1"}, containers={"first": (), "second": ()})
    found = [await scene.expect_devices("pair", name) for name in ("first", "second")]
    assert [len(each) for each in found] == [1, 1]
    assert set(found[0].values()).isdisjoint(found[1].values())


async def test_an_init_container_uses_a_device_of_the_container_after_it(scene: PodScene) -> None:
    resource = await backed(scene)
    asked = {resource: "1"}
    first = {
        "name": "first",
        "image": IMAGE,
        "imagePullPolicy": "Never",
        "args": ["env", "exit", "0"],
        "resources": {"requests": asked, "limits": asked},
    }
    await scene.pod("pod", extended=asked, initContainers=[first])
    found = await scene.expect_devices("pod")
    before = injected(await scene.logs("pod", "first"))
    assert before == await scene.expected("pod", "first")
    assert list(before.values()) == list(found.values())


async def test_resource_and_claim_of_one_pod_are_different_devices(scene: PodScene) -> None:
    resource = await backed(scene)
    await scene.template("one")
    await scene.pod("both", template="one", extended={resource: "1"})
    found = await scene.expect_devices("both")
    assert len(set(found.values())) == len(found) == 2


async def test_a_pod_gets_the_devices_of_one_that_has_ended_and_its_claim_goes_with_it(scene: PodScene) -> None:
    resource = await backed(scene)
    await scene.pod("first", extended={resource: "4"})
    await scene.expect_devices("first")
    await scene.pod("second", extended={resource: "4"})
    await scene.wait_until_unschedulable("second", "matching devices are in use")
    await scene.delete_pod("first")
    assert len(await scene.expect_devices("second")) == 4

    async def one_claim() -> bool:
        return len(await scene.api.list(RESOURCE_CLAIMS, scene.name)) == 1

    await scene.api.wait_for(one_claim, 60, "the claim of the first pod is gone")
