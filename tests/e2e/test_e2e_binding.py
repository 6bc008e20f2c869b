"""Binding conditions (KEP-5007): a pod is bound when the driver says that its devices are attached, and not before."""

import pytest

from tests.controlplane.objects import Object, device
from tests.controlplane.resources import RESOURCE_CLAIMS
from tests.e2e.scene import PROMPT_SECONDS, SECONDS, Scene, devices_of
from tests.e2e.world import World

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="module")]

ATTACHED = "example.com/attached"
FAILED = "example.com/failed"


def attachable(name: str) -> Object:
    return device(
        name, bindsToNode=True, bindingConditions=[ATTACHED], bindingFailureConditions=[FAILED], allNodes=None
    )


async def fabric(scene: Scene, *names: str) -> list[str]:
    """Two nodes, devices that can be attached to either, and a claim `one` for one of them; returns the nodes."""
    nodes = [await scene.node(suffix) for suffix in ("a", "b")]
    devices = [attachable(name) for name in names]
    await scene.publish(scene.slice_of("fabric", allNodes=True, pool="fabric", devices=devices))
    await scene.claim("one")
    return nodes


async def allocated_claim(scene: Scene, after: str = "") -> Object:
    """Waits until the claim is allocated, later than at the timestamp `after`; returns it."""

    async def claim() -> Object | None:
        found = await scene.stored_claim("one")
        return found if devices_of(found) and timestamp(found) > after else None

    found = await scene.api.wait_for(claim, SECONDS, f"claim one is allocated after {after or 'all'}")
    assert found is not None
    return found


def timestamp(claim: Object) -> str:
    return str(claim["status"]["allocation"].get("allocationTimestamp", ""))


async def report(scene: Scene, claim: Object, condition: str) -> None:
    """What the driver does: sets a condition of the allocated device to True."""
    (result,) = claim["status"]["allocation"]["devices"]["results"]
    true = {
        "type": condition,
        "status": "True",
        "reason": "Test",
        "message": "",
        "lastTransitionTime": timestamp(claim),
    }
    status = {key: result[key] for key in ("driver", "pool", "device")} | {"conditions": [true]}
    change = {"status": {"devices": [status]}}
    await scene.api.patch(RESOURCE_CLAIMS, "one", change, scene.name, subresource="status")


async def test_pod_is_bound_only_after_the_driver_reports_the_device_attached(scene: Scene) -> None:
    """The allocation names the chosen node before, so that the driver knows where to attach."""
    nodes = await fabric(scene, "gpu-0")
    await scene.pod("worker", claim="one")
    claim = await allocated_claim(scene)
    (result,) = claim["status"]["allocation"]["devices"]["results"]
    assert (result["bindingConditions"], result["bindingFailureConditions"]) == ([ATTACHED], [FAILED])
    ((term,),) = [each["matchFields"] for each in claim["status"]["allocation"]["nodeSelector"]["nodeSelectorTerms"]]
    assert (term["key"], len(term["values"])) == ("metadata.name", 1)
    await scene.told("worker", f"device {scene.driver}/fabric/gpu-0 waits for {ATTACHED}", term["values"][0])
    assert await scene.node_of("worker") == ""
    await report(scene, claim, ATTACHED)
    assert await scene.bound("worker", PROMPT_SECONDS) == term["values"][0]
    assert term["values"][0] in nodes


async def test_device_that_reports_failure_is_given_back_and_allocated_anew(scene: Scene) -> None:
    await fabric(scene, "gpu-0")
    await scene.pod("worker", claim="one")
    failed = await allocated_claim(scene)
    await report(scene, failed, FAILED)
    again = await allocated_claim(scene, after=timestamp(failed))
    assert not again["status"].get("devices")
    assert await scene.node_of("worker") == ""
    await report(scene, again, ATTACHED)
    await scene.bound("worker", PROMPT_SECONDS)


async def test_wait_survives_a_restart_of_the_scheduler_and_of_the_extender(scene: Scene, world: World) -> None:
    """The same allocation is waited for, on its node, and the clock is not started anew."""
    await fabric(scene, "gpu-0", "gpu-1")
    await scene.pod("worker", claim="one")
    claim = await allocated_claim(scene)
    await scene.told("worker", "waits for")
    await world.cluster.restart_scheduler()
    world.extender.kill()
    await world.extender.start()
    await report(scene, claim, ATTACHED)
    node = await scene.bound("worker")
    stored = await scene.stored_claim("one")
    assert stored["status"]["allocation"] == claim["status"]["allocation"]
    assert node in str(claim["status"]["allocation"]["nodeSelector"])


async def test_pod_that_is_deleted_while_it_waits_gives_its_device_back(scene: Scene) -> None:
    await fabric(scene, "gpu-0")
    await scene.pod("worker", claim="one")
    await allocated_claim(scene)
    await scene.delete_pod("worker")
    await scene.free()
