"""Filter and the check after the write judge alike: no allocation is written and taken back over and over."""

import pytest
from dra_extender.model.snapshot import SNAPSHOT_ANNOTATION

from tests.controlplane.objects import Object
from tests.controlplane.resources import RESOURCE_CLAIMS, RESOURCE_SLICES
from tests.support.e2e.gpus import gpu, partition
from tests.support.e2e.installed_extender import InstalledExtender
from tests.support.e2e.namespace_fixture import NamespaceFixture

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="module")]

CONFLICT = "compatibility groups in conflict"


def shared(groups: list[str]) -> Object:
    """A partition that several claims may share."""
    return partition("mig", 0, "20", groups=groups) | {
        "allowMultipleAllocations": True,
        "capacity": {"memory": {"value": "8Gi"}},
    }


async def undone(world: InstalledExtender) -> float:
    """How often the extender took an allocation of its own back because it overlaps another one."""
    return await world.metric("allocation_overlaps_total", outcome="yielded")


async def test_pods_share_a_device_while_its_driver_begins_to_publish_groups_and_changes_them(
    scene: NamespaceFixture, world: InstalledExtender
) -> None:
    """The upgrade of a driver to KEP-5963, with a pod on the device: the next pods share it at the first attempt."""
    node = await scene.node_with_counters("a", [gpu()], [shared([])])
    await scene.template("share", capacity={"requests": {"memory": "1Gi"}})
    await scene.pod("first", template="share")
    assert await scene.wait_until_bound("first") == node
    before = await undone(world)
    for name, groups in (("second", ["mig"]), ("third", ["vgpu"]), ("fourth", [])):
        published = await scene.api.get(RESOURCE_SLICES, f"{scene.name}-a-devices")
        published["spec"]["devices"] = [shared(groups)]
        await scene.api.replace(RESOURCE_SLICES, published)
        await scene.pod(name, template="share")
        assert await scene.wait_until_bound(name) == node
        claim = await scene.claim_of(name)
        assert not {"mig", "vgpu"} & set(claim["metadata"]["annotations"][SNAPSHOT_ANNOTATION].split('"'))
    assert await undone(world) == before


async def test_gpu_on_which_another_scheduler_mixed_none_with_groups_is_left_for_the_next_node(
    scene: NamespaceFixture, world: InstalledExtender
) -> None:
    """A partition without groups is listed first and held first, so that one without groups looked as if it would fit."""
    parts = [
        partition("plain", 0, "10", groups=()),
        partition("mig", 0, "10"),
        partition("plain", 1, "10", groups=()),
        partition("mig", 1, "10"),
    ]
    first = await scene.node_with_counters("a", [gpu()], parts)
    for kind in ("plain", "mig"):
        await scene.template(kind, f'{scene.attribute("type")} == "{kind}"')
        await scene.claim(f"foreign-{kind}")
        result = {"request": "gpu", "driver": scene.driver, "pool": first, "device": f"gpu-0-{kind}-0"}
        consumer = {"resource": "pods", "name": "somebody", "uid": "00000000-0000-4000-8000-000000000001"}
        change = {"status": {"allocation": {"devices": {"results": [result]}}, "reservedFor": [consumer]}}
        await scene.api.patch(RESOURCE_CLAIMS, f"foreign-{kind}", change, scene.name, subresource="status")
    before = await undone(world)
    for kind in ("plain", "mig"):
        await scene.pod(kind, template=kind)
        await scene.wait_until_unschedulable(kind, CONFLICT)
        await scene.wait_for_event(kind, CONFLICT, "they contradict each other")
    second = await scene.node_with_counters(
        "b", [gpu("gpu-0"), gpu("gpu-1")], [parts[2], partition("mig", 1, "10", "gpu-1")]
    )
    assert [await scene.wait_until_bound(kind) for kind in ("plain", "mig")] == [second, second]
    assert await undone(world) == before
    for kind in ("plain", "mig"):
        await scene.api.delete(RESOURCE_CLAIMS, f"foreign-{kind}", scene.name)
