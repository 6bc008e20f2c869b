"""Pods that complete, fail, restart and are deleted with grace: who has the device when."""

from datetime import datetime

import pytest

from tests.controlplane.node.configuration import IMAGE
from tests.controlplane.objects import Object
from tests.controlplane.resources import PODS, RESOURCE_CLAIMS
from tests.support.e2e.workloads import backed
from tests.support.node.injected import injected
from tests.support.node.nodes import ADMIN_KUBELET, NodesSetup
from tests.support.node.pod_scene import PodScene

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="module")]


KEPT = "example.com/kept"


@pytest.fixture(scope="module")
def setup() -> NodesSetup:
    return ADMIN_KUBELET


async def one_device(scene: PodScene) -> None:
    """Template and claim for the same device."""
    await scene.template("one", f"{scene.attribute('index')} == 0")
    await scene.claim("named", f"{scene.attribute('index')} == 0")


def ended_at(pod: Object) -> datetime:
    return datetime.fromisoformat(_state(pod)["terminated"]["finishedAt"])


def started_at(pod: Object) -> datetime:
    return datetime.fromisoformat(_state(pod)["running"]["startedAt"])


def _state(pod: Object) -> Object:
    (status,) = pod["status"]["containerStatuses"]
    state: Object = status["state"]
    return state


@pytest.mark.parametrize(("code", "phase"), [("0", "Succeeded"), ("3", "Failed")])
async def test_a_pod_that_has_ended_gives_its_device_to_the_next(scene: PodScene, code: str, phase: str) -> None:
    await one_device(scene)
    await scene.pod("first", template="one", commands=("env", "exit", code))
    assert await scene.wait_until_ended("first") == phase
    had = injected(await scene.logs("first"))
    await scene.pod("second", template="one")
    assert await scene.expect_devices("second") == had
    assert ended_at(await scene.read("first")) <= started_at(await scene.read("second"))


async def test_a_claim_serves_one_pod_after_the_other(scene: PodScene) -> None:
    await one_device(scene)
    for name in ("first", "second", "third"):
        await scene.pod(name, claim="named", commands=("env", "exit", "0"))
        assert await scene.wait_until_ended(name) == "Succeeded"
        assert len(injected(await scene.logs(name))) == 1
    await scene.wait_until_free()


async def test_a_pod_keeps_its_device_until_its_grace_is_over(scene: PodScene) -> None:
    """The first pod is still there as an object when the second one runs, so that its end can be read."""
    await one_device(scene)
    await scene.pod("first", template="one", commands=("env", "linger", "4"))
    had = await scene.expect_devices("first")
    await scene.api.patch(PODS, "first", {"metadata": {"finalizers": [KEPT]}}, scene.name)
    try:
        await scene.pod("second", template="one")
        await scene.wait_until_unschedulable("second", "matching devices are in use")
        await scene.delete_pod("first")
        # The kubelet deletes the pod once more when it has ended, which changes both fields.
        deleted = (await scene.read("first"))["metadata"]
        assert await scene.expect_devices("second") == had
        asked = datetime.fromisoformat(deleted["deletionTimestamp"]).timestamp() - deleted["deletionGracePeriodSeconds"]
        first = await scene.read("first")
        assert ended_at(first).timestamp() - asked >= 3
        assert ended_at(first) <= started_at(await scene.read("second"))
    finally:
        await scene.api.patch(PODS, "first", {"metadata": {"finalizers": []}}, scene.name)


IMPLICIT = "deviceclass.resource.kubernetes.io/"


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
