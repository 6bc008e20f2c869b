"""Pods that wait are tried again when something helpful happened that kube-scheduler does not notice, and only then."""

import pytest

from tests.controlplane.objects import device
from tests.controlplane.resources import DEVICE_CLASSES, DEVICE_TAINT_RULES, RESOURCE_CLAIMS, RESOURCE_SLICES
from tests.support.e2e.installed_extender import InstalledExtender
from tests.support.e2e.namespace_fixture import PROMPT_SECONDS, SECONDS, NamespaceFixture
from tests.support.e2e.settled import settled
from tests.support.e2e.workloads import clear_groups, create_group, member

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="module")]

BURST = 500


async def test_waiting_pod_is_bound_soon_after_only_a_slice_appeared(
    scene: NamespaceFixture, world: InstalledExtender
) -> None:
    node = await scene.node("a")
    await scene.template("one")
    await scene.pod("waiting", template="one")
    await scene.wait_until_unschedulable("waiting", "no devices on the node", again=True)
    await settled(world)
    await scene.publish(scene.slice_of("a", node=node, devices=[device("gpu-0")]))
    assert await scene.wait_until_bound("waiting", PROMPT_SECONDS) == node
    assert await world.metric("scheduler_wakes_total", reason="devices") >= 1


async def test_waiting_pod_is_bound_soon_after_only_a_slice_changed(
    scene: NamespaceFixture, world: InstalledExtender
) -> None:
    node = await scene.node_with_devices("a", device("gpu-0", attributes={"type": "old"}))
    await scene.template("new", f'{scene.attribute("type")} == "new"')
    await scene.pod("waiting", template="new")
    await scene.wait_until_unschedulable("waiting", "no device matches the selectors", again=True)
    await settled(world)
    published = await scene.api.get(RESOURCE_SLICES, f"{scene.name}-a")
    published["spec"]["devices"] = [device("gpu-0", attributes={"type": "new"})]
    await scene.api.replace(RESOURCE_SLICES, published)
    assert await scene.wait_until_bound("waiting", PROMPT_SECONDS) == node


async def test_waiting_pod_is_bound_soon_after_only_a_taint_rule_went(
    scene: NamespaceFixture, world: InstalledExtender
) -> None:
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
    await world.wait_for_metric("watch_events_total", 1, kind="devicetaintrules", type="ADDED")
    await scene.template("one")
    await scene.pod("waiting", template="one")
    await scene.wait_until_unschedulable("waiting", "matching devices are tainted", again=True)
    await settled(world)
    await scene.api.delete(DEVICE_TAINT_RULES, scene.name)
    assert await scene.wait_until_bound("waiting", PROMPT_SECONDS) == node


async def test_pods_that_fit_nowhere_settle_and_one_helpful_change_wakes_them_all(
    scene: NamespaceFixture, world: InstalledExtender
) -> None:
    """Nothing is asked while nothing changes, however many wait and whatever the reasons; unhelpful changes end quietly too."""
    node = await scene.node_with_devices("a", device("gpu-0"))
    await scene.template("one")
    await scene.pod("holder", template="one")
    await scene.wait_until_bound("holder")
    for index in range(4):
        await scene.pod(f"waiting-{index}", template="one")
    await scene.pod("claimless", claim="absent")
    for name in (*(f"waiting-{index}" for index in range(4)), "claimless"):
        await scene.wait_until_unschedulable(name)
    before = await settled(world, 5)
    await scene.claim("unrelated")
    await scene.api.delete(RESOURCE_CLAIMS, "unrelated", scene.name)
    assert await settled(world, 5) >= before
    more = [device(f"gpu-{index}") for index in range(1, 5)]
    await scene.publish(scene.slice_of("more", node=node, pool=f"{node}-more", devices=more))
    for index in range(4):
        assert await scene.wait_until_bound(f"waiting-{index}", PROMPT_SECONDS) == node
    await settled(world, 1)


async def heard(world: InstalledExtender, kind: str, more: int, since: float) -> None:
    """Waits until the extender has heard of so many changes of this kind since it had heard of `since`."""
    await world.wait_for_metric("watch_events_total", since + more, seconds=2 * SECONDS, kind=kind)


async def test_waiting_pods_are_bound_soon_after_only_their_class_or_claim_appeared(
    scene: NamespaceFixture, world: InstalledExtender
) -> None:
    node = await scene.node_with_devices("a", device("gpu-0"), device("gpu-1"))
    late = scene.device_class()
    late["metadata"]["name"] = f"{scene.name}-late"
    await scene.claim("of-late-class", device_class=late["metadata"]["name"])
    await scene.pod("classless", claim="of-late-class")
    await scene.pod("claimless", claim="late")
    for name in ("classless", "claimless"):
        await scene.wait_until_unschedulable(name)
    await settled(world, 2)
    await scene.api.create(DEVICE_CLASSES, late)
    assert await scene.wait_until_bound("classless", PROMPT_SECONDS) == node
    await settled(world, 1)
    await scene.claim("late")
    assert await scene.wait_until_bound("claimless", PROMPT_SECONDS) == node


async def test_waiting_pod_is_bound_soon_after_only_its_pod_group_appeared(
    scene: NamespaceFixture, world: InstalledExtender
) -> None:
    """kube-scheduler without group scheduling does not listen to PodGroups."""
    node = await scene.node_with_devices("a", device("gpu-0"))
    await scene.template("one")
    await member(scene, "team", "waiting", template="one")
    await scene.wait_until_unschedulable("waiting", "PodGroup")
    await settled(world)
    await create_group(scene, "team")
    assert await scene.wait_until_bound("waiting", PROMPT_SECONDS) == node
    await clear_groups(scene)


async def test_slices_that_help_no_waiting_pod_wake_none_however_many_change(
    scene: NamespaceFixture, world: InstalledExtender
) -> None:
    """Another driver on the node, and devices that do not match, changed again and again: nobody is asked."""
    node = await scene.node_with_devices("a", device("gpu-0", attributes={"type": "old"}))
    await scene.template("new", f'{scene.attribute("type")} == "new"')
    await scene.pod("waiting", template="new")
    await scene.wait_until_unschedulable("waiting", "no device matches the selectors", again=True)
    before, wakes = await settled(world), await world.metric("scheduler_wakes_total")
    since = await world.metric("watch_events_total", kind="resourceslices")
    other = scene.slice_of("other", node=node, pool=f"{node}-other", devices=[device("nic-0")])
    other["spec"]["driver"] = f"other.{scene.driver}"
    await scene.publish(other)
    for generation in range(1, 50):
        patch = {"spec": {"pool": {"generation": generation + 1}}}
        await scene.api.patch(RESOURCE_SLICES, f"{scene.name}-a", patch)
    await heard(world, "resourceslices", 50, since)
    assert await settled(world) == before
    assert await world.metric("scheduler_wakes_total") == wakes


async def test_a_burst_of_helpful_changes_is_told_a_few_times_and_its_end_is_not_missed(
    scene: NamespaceFixture, world: InstalledExtender
) -> None:
    """While pods wait for more than each change brings, changes come as fast as they can; the last one brings enough."""
    node = await scene.node_with_devices("a", device("gpu-0", attributes={"type": "old"}))
    await scene.template("new", f'{scene.attribute("type")} == "new"')
    names = [f"waiting-{number}" for number in range(5)]
    for name in names:
        await scene.pod(name, template="new")
        await scene.wait_until_unschedulable(name, "no device matches the selectors", again=True)
    await settled(world, len(names))
    wakes = await world.metric("scheduler_wakes_total", reason="devices")
    binds = await world.metric("requests_total", verb="bind")
    for generation in range(2, BURST):
        devices = [device("gpu-0", attributes={"type": "old"})]
        # Each of the last changes helps one pod more.
        devices += [device(f"new-{index}", attributes={"type": "new"}) for index in range(generation + 6 - BURST)]
        spec = {"pool": {"generation": generation}, "devices": devices}
        await scene.api.patch(RESOURCE_SLICES, f"{scene.name}-a", {"spec": spec})
    for name in names:
        assert await scene.wait_until_bound(name, PROMPT_SECONDS) == node
    # One for each change that helps a pod, and for each bind that failed and gave its device back.
    wakes = await world.metric("scheduler_wakes_total", reason="devices") - wakes
    assert 0 < wakes <= max(len(names), await world.metric("requests_total", verb="bind") - binds)
