"""Pods that wait are tried again when something helpful happened that kube-scheduler does not notice, and only then."""

import asyncio

import pytest

from tests.controlplane.objects import device
from tests.controlplane.resources import DEVICE_TAINT_RULES, RESOURCE_CLAIMS, RESOURCE_SLICES
from tests.e2e.scene import PROMPT_SECONDS, SECONDS, Scene
from tests.e2e.world import World

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="module")]

QUIET_SECONDS = 3.0


async def settled(world: World, pods: int = 1) -> float:
    """Waits until kube-scheduler has parked these pods and asks no more; returns how often it has called filter."""

    async def parked() -> bool:
        queues = {
            queue: await world.scheduler_metric("scheduler_pending_pods", queue=queue)
            for queue in ("active", "backoff", "unschedulable")
        }
        return queues == {"active": 0, "backoff": 0, "unschedulable": pods}

    async def quiet() -> float:
        if not await parked():
            return 0.0
        before = await calls(world)
        await asyncio.sleep(QUIET_SECONDS)
        return before if await calls(world) == before and await parked() else 0.0

    return await world.api.wait_for(quiet, 2 * SECONDS, "kube-scheduler asks no more about pods that fit nowhere")


async def calls(world: World) -> float:
    return await world.metric("requests_total", verb="filter")


async def test_waiting_pod_is_bound_soon_after_only_a_slice_appeared(scene: Scene, world: World) -> None:
    node = await scene.node("a")
    await scene.template("one")
    await scene.pod("waiting", template="one")
    await scene.waits("waiting", "no devices on this node")
    await settled(world)
    await scene.publish(scene.slice_of("a", node=node, devices=[device("gpu-0")]))
    assert await scene.bound("waiting", PROMPT_SECONDS) == node
    assert await world.metric("scheduler_wakes_total", reason="devices") >= 1


async def test_waiting_pod_is_bound_soon_after_only_a_slice_changed(scene: Scene, world: World) -> None:
    node = await scene.node_with_devices("a", device("gpu-0", attributes={"type": "old"}))
    await scene.template("new", f'{scene.attribute("type")} == "new"')
    await scene.pod("waiting", template="new")
    await scene.waits("waiting", "no device matches the selectors")
    await settled(world)
    published = await scene.api.get(RESOURCE_SLICES, f"{scene.name}-a")
    published["spec"]["devices"] = [device("gpu-0", attributes={"type": "new"})]
    await scene.api.replace(RESOURCE_SLICES, published)
    assert await scene.bound("waiting", PROMPT_SECONDS) == node


async def test_waiting_pod_is_bound_soon_after_only_a_taint_rule_went(scene: Scene, world: World) -> None:
    node = await scene.node_with_devices("a", device("gpu-0"))
    rule = {
        "apiVersion": DEVICE_TAINT_RULES.group_version,
        "kind": "DeviceTaintRule",
        "metadata": {"name": scene.name},
        "spec": {
            "deviceSelector": {"driver": scene.driver},
            "taint": {"key": "example.com/broken", "effect": "NoSchedule"},
        },
    }
    await scene.api.create(DEVICE_TAINT_RULES, rule)

    async def known() -> bool:
        return await world.metric("watch_events_total", kind="devicetaintrules", type="ADDED") > 0

    await scene.api.wait_for(known, SECONDS, "the extender has heard of the rule")
    await scene.template("one")
    await scene.pod("waiting", template="one")
    await scene.waits("waiting", "matching devices are tainted")
    await settled(world)
    await scene.api.delete(DEVICE_TAINT_RULES, scene.name)
    assert await scene.bound("waiting", PROMPT_SECONDS) == node


async def test_pods_that_fit_nowhere_settle_and_one_helpful_change_wakes_them_all(scene: Scene, world: World) -> None:
    """Nothing is asked while nothing changes, however many wait and whatever the reasons; unhelpful changes end quietly too."""
    node = await scene.node_with_devices("a", device("gpu-0"))
    await scene.template("one")
    await scene.pod("holder", template="one")
    await scene.bound("holder")
    for index in range(4):
        await scene.pod(f"waiting-{index}", template="one")
    await scene.pod("claimless", claim="absent")
    for name in (*(f"waiting-{index}" for index in range(4)), "claimless"):
        await scene.waits(name)
    before = await settled(world, 5)
    await scene.claim("unrelated")
    await scene.api.delete(RESOURCE_CLAIMS, "unrelated", scene.name)
    assert await settled(world, 5) >= before
    more = [device(f"gpu-{index}") for index in range(1, 5)]
    await scene.publish(scene.slice_of("more", node=node, pool=f"{node}-more", devices=more))
    for index in range(4):
        assert await scene.bound(f"waiting-{index}", PROMPT_SECONDS) == node
    await settled(world, 1)
