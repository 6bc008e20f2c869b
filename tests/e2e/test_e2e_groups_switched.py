"""The gate DRADeviceCompatibilityGroups goes off and on again while pods run: what docs/tasks/compatibility-groups.md says."""

from collections.abc import AsyncIterator
from typing import Final

import pytest
import pytest_asyncio
from dra_extender.model.allocation_snapshot import SNAPSHOT_ANNOTATION

from tests.controlplane.objects import Object
from tests.controlplane.options import default_gates
from tests.controlplane.planes import BROKEN
from tests.controlplane.resources import RESOURCE_SLICES
from tests.controlplane.schedulers import IN_TREE
from tests.support.e2e.gpus import gpu, partition
from tests.support.e2e.installed_extender import SCHEDULER, InstalledExtender
from tests.support.e2e.namespace_fixture import PROMPT_SECONDS, SECONDS, NamespaceFixture

pytestmark = [pytest.mark.e2e, pytest.mark.plane(BROKEN), pytest.mark.asyncio(loop_scope="module")]

GATE: Final = "DRADeviceCompatibilityGroups"
CONFLICT: Final = "compatibility groups in conflict"


async def switch(world: InstalledExtender, *, on: bool) -> None:
    """Restart the API server with the gate on or off, and those that would only try again after half a minute.

    An API server that has just started does not know its roles yet, and refuses the first watches.
    """
    world.tolerated.append("watch failed")
    await world.cluster.restart_apiserver(default_gates() | {GATE: on})
    await world.cluster.restart_controller_manager()
    world.scheduler_pages = await world.cluster.restart_scheduler(SCHEDULER)
    await world.extender.wait_ready(seconds=SECONDS)


@pytest_asyncio.fixture(autouse=True, loop_scope="module")
async def gate_is_on_again(world: InstalledExtender) -> AsyncIterator[None]:
    yield
    if not world.cluster.options.gates[GATE]:
        await switch(world, on=True)


def groups_of(stored: Object) -> dict[str, list[str]]:
    """Return the groups of each device of a slice."""
    return {
        device["name"]: consumed.get("compatibilityGroups", [])
        for device in stored["spec"]["devices"]
        for consumed in device["consumesCounters"]
    }


async def wait_until_seen_without_groups(scene: NamespaceFixture, pod: str) -> None:
    """Wait until the extender refuses the pod because the devices that it could have declare no groups."""

    async def refused() -> bool:
        await scene.retry()
        notes = [str(event.get("note", "")) for event in await scene.events(pod)]
        return any("declares no groups on counter set gpu-0" in note for note in notes)

    await scene.api.wait_for(refused, SECONDS, f"pod {pod} is refused because of devices without groups")


async def devices_slice(scene: NamespaceFixture, suffix: str) -> Object:
    return await scene.api.get(RESOURCE_SLICES, f"{scene.name}-{suffix}-devices")


async def republish(scene: NamespaceFixture, suffix: str, devices: list[Object]) -> Object:
    """Delete the slice of the devices and create it anew, as a driver does that has no older object to update."""
    stored = await devices_slice(scene, suffix)
    await scene.api.delete(RESOURCE_SLICES, stored["metadata"]["name"])
    body = scene.slice_of(f"{suffix}-devices", node=stored["spec"]["nodeName"], slice_count=2, devices=devices)
    return await scene.api.create(RESOURCE_SLICES, body)


async def test_what_holds_groups_stays_and_closes_its_gpu_while_the_gate_is_off(
    scene: NamespaceFixture, world: InstalledExtender
) -> None:
    """The roll-back is complete on a GPU whose last holder with groups has ended: there both modes share it."""
    devices = [partition("mig", 0, "20"), partition("mig", 1, "20"), partition("vgpu", 0, "20")]
    published = {"gpu-0-mig-0": ["mig"], "gpu-0-mig-1": ["mig"], "gpu-0-vgpu-0": ["vgpu"]}
    dropped: dict[str, list[str]] = {name: [] for name in published}
    for kind in ("mig", "vgpu"):
        await scene.template(kind, f'{scene.attribute("type")} == "{kind}"')
    node, other = [await scene.node_with_counters(suffix, [gpu()], devices) for suffix in ("a", "b")]

    async def pod(name: str, where: str) -> None:
        kind = name.partition("-")[0].replace("holder", "mig")
        await scene.pod(name, template=kind, nodeSelector={"kubernetes.io/hostname": where})

    for name, where in (("holder", node), ("holder-b", other)):
        await pod(name, where)
        assert await scene.wait_until_bound(name) == where
    assert "compatibilityGroups" in (await scene.claim_of("holder"))["metadata"]["annotations"][SNAPSHOT_ANNOTATION]
    allocated = await scene.allocated()

    await switch(world, on=False)
    stored = await devices_slice(scene, "a")
    assert groups_of(stored) == published
    stored["spec"]["devices"][2]["attributes"]["healthy"] = {"bool": True}
    assert groups_of(await scene.api.replace(RESOURCE_SLICES, stored)) == published
    for name, where in (("vgpu", node), ("vgpu-b", other)):
        await pod(name, where)
        await scene.wait_until_unschedulable(name, CONFLICT)

    for suffix in ("a", "b"):
        assert groups_of(await republish(scene, suffix, devices)) == dropped
    stored = await devices_slice(scene, "a")
    stored["spec"]["devices"] = devices
    assert groups_of(await scene.api.replace(RESOURCE_SLICES, stored)) == dropped
    for name in ("vgpu", "vgpu-b"):
        await wait_until_seen_without_groups(scene, name)
    await pod("mig", node)
    await scene.wait_until_unschedulable("mig", CONFLICT)
    assert await scene.allocated() == allocated
    await scene.delete_pod("holder-b")
    assert await scene.wait_until_bound("vgpu-b", PROMPT_SECONDS) == other
    await pod("mig-b", other)
    assert await scene.wait_until_bound("mig-b") == other

    await switch(world, on=True)
    stored = await devices_slice(scene, "a")
    stored["spec"]["devices"] = devices
    assert groups_of(await scene.api.replace(RESOURCE_SLICES, stored)) == published
    assert await scene.wait_until_bound("mig", SECONDS) == node
    await scene.wait_until_unschedulable("vgpu", CONFLICT)
    for name in ("holder", "mig"):
        await scene.delete_pod(name)
    assert await scene.wait_until_bound("vgpu", PROMPT_SECONDS) == node


async def test_the_in_tree_plugin_without_the_gate_leaves_the_whole_pool_alone(
    scene: NamespaceFixture, world: InstalledExtender
) -> None:
    """Also the device without groups on a GPU of its own, which the extender with groups off gives away."""
    plain = partition("plain", 0, "20", gpu="gpu-1", groups=())
    await scene.node_with_counters("a", [gpu("gpu-0"), gpu("gpu-1")], [partition("mig", 0, "20"), plain])
    await scene.template("plain", f'{scene.attribute("type")} == "plain"')
    async with world.cluster.in_tree_scheduler(feature_gates={}):
        await scene.pod("theirs", template="plain", scheduler=IN_TREE)
        await scene.wait_until_unschedulable("theirs", "cannot allocate all claims")
    await scene.pod("ours", template="plain")
    await scene.wait_until_bound("ours")
