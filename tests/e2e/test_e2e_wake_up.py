"""Pods that wait are tried again when something helpful happened that kube-scheduler does not notice, and only then."""

from collections.abc import Awaitable, Callable
from functools import partial

import pytest

from tests.controlplane.objects import device, taint_rule
from tests.controlplane.resources import DEVICE_CLASSES, DEVICE_TAINT_RULES, RESOURCE_CLAIMS, RESOURCE_SLICES
from tests.support.e2e.installed_extender import InstalledExtender, Setup
from tests.support.e2e.namespace_fixture import PROMPT_SECONDS, NamespaceFixture
from tests.support.e2e.settled import settled
from tests.support.e2e.workloads import clear_groups, create_group, member

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="module")]

UNHELPFUL = 50
NOTICED = ("classless", "claimless")
"""kube-scheduler itself tries pods again for DeviceClasses and claims."""


@pytest.fixture(scope="module")
def setup() -> Setup:
    """Backoff is not the subject."""
    return Setup(scheduler={"podMaxBackoffSeconds": 1})


async def test_waiting_pod_is_bound_soon_after_the_one_change_that_helps_it(
    scene: NamespaceFixture, world: InstalledExtender
) -> None:
    """One change after the other, each when kube-scheduler has parked all pods that still wait."""
    api, of_type = scene.api, scene.attribute("type")
    bare = await scene.node("bare")
    await scene.node_with_devices("old", device("gpu-0", attributes={"type": "old"}))
    await scene.node_with_devices("tainted", device("gpu-0", attributes={"type": "tainted"}))
    await scene.node_with_devices("free", *(device(f"gpu-{index}", attributes={"type": "free"}) for index in range(3)))
    broken = {"key": "example.com/broken", "effect": "NoSchedule"}
    rule = taint_rule(scene.name, broken, driver=scene.driver, pool=f"{scene.name}-tainted")
    await api.create(DEVICE_TAINT_RULES, rule)
    await world.wait_for_metric("watch_events_total", 1, kind="devicetaintrules", type="ADDED")
    late = {**scene.device_class(), "metadata": {"name": f"{scene.name}-late"}}

    async def publish() -> None:
        new = device("gpu-0", attributes={"type": "published"})
        await scene.publish(scene.slice_of("bare", node=bare, devices=[new]))

    async def change() -> None:
        published = await api.get(RESOURCE_SLICES, f"{scene.name}-old")
        published["spec"]["devices"] = [device("gpu-0", attributes={"type": "new"})]
        await api.replace(RESOURCE_SLICES, published)

    helps: dict[str, Callable[[], Awaitable[object]]] = {
        "published": publish,
        "new": change,
        "tainted": partial(api.delete, DEVICE_TAINT_RULES, scene.name),
        "classless": partial(api.create, DEVICE_CLASSES, late),
        "claimless": partial(scene.claim, "claimless", f'{of_type} == "free"'),
        "groupless": partial(create_group, scene, "team"),
    }
    for kind in ("published", "new", "tainted"):
        await scene.claim(kind, f'{of_type} == "{kind}"')
    await scene.claim("classless", f'{of_type} == "free"', device_class=late["metadata"]["name"])
    await scene.claim("groupless", f'{of_type} == "free"')
    for name in ("published", "new", "tainted", "classless", "claimless"):
        await scene.pod(name, claim=name)
    await member(scene, "team", "groupless", claim="groupless")
    expected = {"tainted": "matching devices are tainted", "groupless": "PodGroup"}
    for name in helps:
        await scene.wait_until_unschedulable(name, expected.get(name, ""), again=True)
    for waiting, (name, helping) in zip(range(len(helps), 0, -1), helps.items(), strict=True):
        await settled(world, waiting)
        before = await world.metric("scheduler_wakes_total")
        await helping()
        await scene.wait_until_bound(name, PROMPT_SECONDS)
        assert name in NOTICED or await world.metric("scheduler_wakes_total") > before
    await clear_groups(scene)


async def test_nothing_is_asked_while_no_change_helps_and_one_that_does_wakes_all(
    scene: NamespaceFixture, world: InstalledExtender
) -> None:
    """However many wait and whatever the reasons; devices of another driver, and devices that do not match, change all the time."""
    node = await scene.node_with_devices("a", device("gpu-0"))
    await scene.template("one")
    await scene.pod("holder", template="one")
    await scene.wait_until_bound("holder")
    names = [f"waiting-{index}" for index in range(4)]
    for name in names:
        await scene.pod(name, template="one")
    await scene.pod("claimless", claim="absent")
    for name in (*names, "claimless"):
        await scene.wait_until_unschedulable(name)
    before, wakes = await settled(world, 5), await world.metric("scheduler_wakes_total")
    since = await world.metric("watch_events_total", kind="resourceslices")
    other = scene.slice_of("other", node=node, pool=f"{node}-other", devices=[device("nic-0")])
    other["spec"]["driver"] = f"other.{scene.driver}"
    await scene.publish(other)
    for generation in range(2, UNHELPFUL):
        await scene.api.patch(RESOURCE_SLICES, f"{scene.name}-a", {"spec": {"pool": {"generation": generation}}})
    await world.wait_for_metric("watch_events_total", since + UNHELPFUL - 1, kind="resourceslices")
    assert await settled(world, 5) == before
    assert await world.metric("scheduler_wakes_total") == wakes
    # kube-scheduler itself tries pods again for any claim; that ends too.
    await scene.claim("unrelated")
    await scene.api.delete(RESOURCE_CLAIMS, "unrelated", scene.name)
    await settled(world, 5)
    more = [device(f"gpu-{index}") for index in range(1, 5)]
    await scene.publish(scene.slice_of("more", node=node, pool=f"{node}-more", devices=more))
    for name in names:
        assert await scene.wait_until_bound(name, PROMPT_SECONDS) == node
    await settled(world, 1)
