"""Pods that complete, fail, restart and are deleted with grace: who has the device when."""

from datetime import datetime

import pytest

from tests.controlplane.objects import Object
from tests.controlplane.resources import PODS
from tests.support.node.injected import injected
from tests.support.node.nodes import ADMIN_KUBELET, NodesSetup
from tests.support.node.pod_scene import RUN_SECONDS, PodScene

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


async def test_a_container_has_the_same_device_after_each_restart(scene: PodScene) -> None:
    await scene.template("any")
    await scene.pod("first", template="any", commands=("env", "exit", "1"), restartPolicy="Always")

    async def restarted() -> bool:
        statuses = (await scene.read("first"))["status"].get("containerStatuses", ())
        return any(each["restartCount"] >= 2 for each in statuses)

    await scene.pod("beside", template="any")
    beside = await scene.expect_devices("beside")
    await scene.api.wait_for(restarted, RUN_SECONDS, "the container has been started three times")
    expected = await scene.expected("first")
    path = PODS.path(scene.name, "first", "log")
    for previous in ("true", "false"):
        assert injected(await scene.api.text(f"{path}?container=main&previous={previous}")) == expected
    assert set(expected.values()).isdisjoint(beside.values())


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


async def test_a_pod_that_is_deleted_before_its_container_starts_leaves_nothing_prepared(scene: PodScene) -> None:
    await one_device(scene)
    node = next(iter(scene.nodes))
    node.behave(prepare_error="not yet")
    try:
        await scene.pod("first", template="one")
        await scene.wait_until_bound("first")
        await scene.delete_pod("first")
        await scene.wait_until_gone("first")
    finally:
        node.behave()
    await scene.pod("second", template="one")
    assert len(await scene.expect_devices("second")) == 1
