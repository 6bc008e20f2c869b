"""Binding conditions (KEP-5007): a pod is bound when the driver says that its devices are attached, and not before."""

import pytest

from tests.controlplane.objects import device
from tests.controlplane.planes import SECOND_DEFAULTS
from tests.controlplane.resources import NODES
from tests.support.e2e.fabric import (
    ATTACHED,
    FAILED,
    FakeDriver,
    allocated_claim,
    chosen_node,
    fabric,
    wait_for_any_event,
    wait_until_nominated,
)
from tests.support.e2e.installed_extender import InstalledExtender, Setup
from tests.support.e2e.namespace_fixture import PROMPT_SECONDS, SECONDS, NamespaceFixture

pytestmark = [pytest.mark.e2e, pytest.mark.plane(SECOND_DEFAULTS), pytest.mark.asyncio(loop_scope="module")]

COOL_DOWN_SECONDS = 20.0
"""Longer than the next attempt takes, also on a busy machine, and short enough for the one test that waits for its end."""


@pytest.fixture(scope="module")
def setup() -> Setup:
    return Setup(environment={"DRA_EXTENDER_SCHEDULING__DEVICE_COOL_DOWN_SECONDS": str(COOL_DOWN_SECONDS)})


@pytest.fixture
def driver(scene: NamespaceFixture) -> FakeDriver:
    return FakeDriver(scene)


async def counted(world: InstalledExtender, status: str) -> float:
    return await world.metric("bindingconditions_allocations_total", profile="dra-extender-scheduler", status=status)


async def test_pod_is_bound_only_after_the_driver_reports_the_device_attached(
    scene: NamespaceFixture, driver: FakeDriver, world: InstalledExtender
) -> None:
    """The allocation names the chosen node before, so that the driver knows where to attach, and so does the pod's status."""
    nodes = await fabric(scene, "gpu-0")
    await scene.claim("one")
    succeeded = await counted(world, "success")
    await scene.pod("worker", claim="one")
    claim = await allocated_claim(scene)
    (result,) = claim["status"]["allocation"]["devices"]["results"]
    assert (result["bindingConditions"], result["bindingFailureConditions"]) == ([ATTACHED], [FAILED])
    node, since = chosen_node(claim), claim["status"]["allocation"]["allocationTimestamp"]
    await scene.wait_for_event(
        "worker", f"device {scene.driver}/fabric/gpu-0 waits for {ATTACHED}", f"since {since}", node
    )
    await wait_until_nominated(scene, "worker", node)
    assert await world.metric("bindingconditions_waiting_pods") == 1
    assert await scene.node_of("worker") == ""
    await driver.report(claim, ATTACHED)
    assert await scene.wait_until_bound("worker", PROMPT_SECONDS) == node
    assert node in nodes
    assert await counted(world, "success") == succeeded + 1
    assert await world.metric("bindingconditions_waiting_pods") == 0


async def test_device_that_failed_is_given_back_and_not_tried_first_again(
    scene: NamespaceFixture, driver: FakeDriver
) -> None:
    await fabric(scene, "gpu-0", "gpu-1")
    await scene.claim("one")
    await scene.pod("worker", claim="one")
    failed = await allocated_claim(scene)
    await driver.report(failed, FAILED, message="no free port")
    await wait_for_any_event(
        scene, "worker", "binding conditions failed", f"fabric/gpu-0 reports {FAILED}: no free port"
    )
    again = await allocated_claim(scene, after=failed)
    assert await scene.device_of("worker") == "fabric/gpu-1"
    assert not again["status"].get("devices")
    assert await scene.node_of("worker") == ""
    await driver.report(again, ATTACHED)
    await scene.wait_until_bound("worker", PROMPT_SECONDS)


async def test_only_device_that_failed_is_tried_again_when_its_cool_down_is_over(
    scene: NamespaceFixture, driver: FakeDriver
) -> None:
    """Nothing else happens in the cluster meanwhile: the end of the cool-down wakes the pod."""
    await fabric(scene, "gpu-0")
    await scene.claim("one")
    await scene.pod("worker", claim="one")
    failed = await allocated_claim(scene)
    await driver.report(failed, FAILED)
    await scene.wait_until_unschedulable("worker", "devices have just failed for this pod")
    await wait_until_nominated(scene, "worker", "")
    assert await scene.allocated() == []
    again = await allocated_claim(scene, after=failed)
    await driver.report(again, ATTACHED)
    await scene.wait_until_bound("worker", PROMPT_SECONDS)


async def test_of_two_devices_of_a_pod_one_fails_and_both_are_given_back(
    scene: NamespaceFixture, driver: FakeDriver
) -> None:
    """That of the other claim, which is ready, stays the pod's."""
    await fabric(scene, "gpu-0", "gpu-1", "gpu-2", "gpu-3")
    await scene.claim("one", count=2)
    await scene.claim("other")
    await scene.pod("worker", claims={"gpu": "one", "more": "other"})
    ready, failed = await allocated_claim(scene, "other"), await allocated_claim(scene)
    await driver.report(ready, ATTACHED)
    bad = failed["status"]["allocation"]["devices"]["results"][1]["device"]
    await driver.report(failed, ATTACHED, failed["status"]["allocation"]["devices"]["results"][0]["device"])
    await scene.wait_for_event("worker", f"fabric/{bad} waits for {ATTACHED}")
    await driver.report(failed, FAILED, bad)
    again = await allocated_claim(scene, after=failed)
    devices = {each["device"] for each in again["status"]["allocation"]["devices"]["results"]}
    assert len(devices) == 2
    assert bad not in devices
    await driver.report(again, ATTACHED)
    await scene.wait_until_bound("worker", PROMPT_SECONDS)
    assert (await scene.stored_claim("other"))["status"]["allocation"] == ready["status"]["allocation"]


async def test_wait_survives_a_restart_of_the_scheduler_and_of_the_extender(
    scene: NamespaceFixture, driver: FakeDriver, world: InstalledExtender
) -> None:
    """The same allocation is waited for, on its node, and the clock is not started anew."""
    await fabric(scene, "gpu-0", "gpu-1")
    await scene.claim("one")
    await scene.pod("worker", claim="one")
    claim = await allocated_claim(scene)
    await scene.wait_for_event("worker", "waits for")
    await world.cluster.restart_scheduler()
    world.extender.kill()
    await world.extender.start()
    await driver.report(claim, ATTACHED)
    assert await scene.wait_until_bound("worker") == chosen_node(claim)
    stored = await scene.stored_claim("one")
    assert stored["status"]["allocation"] == claim["status"]["allocation"]


async def test_pod_that_joins_a_shared_claim_late_waits_for_the_same_devices(
    scene: NamespaceFixture, driver: FakeDriver
) -> None:
    await fabric(scene, "gpu-0", "gpu-1")
    await scene.claim("one")
    await scene.pod("first", claim="one")
    claim = await allocated_claim(scene)
    await scene.wait_for_event("first", "waits for")
    await scene.pod("second", claim="one")
    since = claim["status"]["allocation"]["allocationTimestamp"]
    await scene.wait_for_event("second", f"fabric/gpu-0 waits for {ATTACHED}", f"since {since}")
    await driver.report(claim, ATTACHED)
    for name in ("first", "second"):
        assert await scene.wait_until_bound(name, PROMPT_SECONDS) == chosen_node(claim)
    await scene.pod("third", claim="one")
    assert await scene.wait_until_bound("third") == chosen_node(claim)


async def test_device_without_conditions_is_preferred(scene: NamespaceFixture) -> None:
    """The pool of the fabric would come first by its name; both nodes can use it."""
    node = f"{scene.name}-b"
    # Who knows the slice of the fabric knows this one, which was created before.
    await scene.publish(scene.slice_of("local", node=node, pool="local", devices=[device("gpu-0")]))
    assert node in await fabric(scene, "gpu-0")
    await scene.claim("one")
    await scene.pod("worker", claim="one", nodeSelector={"kubernetes.io/hostname": node})
    assert await scene.wait_until_bound("worker") == node
    assert await scene.device_of("worker") == "local/gpu-0"


async def test_claim_with_a_ready_and_an_attachable_device_waits_for_the_one_alone(
    scene: NamespaceFixture, driver: FakeDriver
) -> None:
    nodes = await fabric(scene, "gpu-0")
    await scene.publish(scene.slice_of("local", node=nodes[0], pool="local", devices=[device("card-0")]))
    await scene.claim("one", count=2)
    await scene.pod("worker", claim="one")
    claim = await allocated_claim(scene)
    told = await scene.wait_for_event("worker", f"fabric/gpu-0 waits for {ATTACHED}")
    assert "card-0" not in told
    await driver.report(claim, ATTACHED, "gpu-0")
    assert await scene.wait_until_bound("worker", PROMPT_SECONDS) == nodes[0]


async def test_each_pod_binds_its_devices_of_a_pool_to_its_own_node(
    scene: NamespaceFixture, driver: FakeDriver
) -> None:
    """The pool is everybody's, an allocation is one node's (bindsToNode)."""
    nodes = await fabric(scene, "gpu-0", "gpu-1")
    await scene.template("one")
    for name, node in zip(("first", "second"), nodes, strict=True):
        await scene.pod(name, template="one", nodeSelector={"kubernetes.io/hostname": node})
        await scene.wait_for_event(name, "waits for", node)
        claim = await scene.claim_of(name)
        assert chosen_node(claim) == node
        await driver.report(claim, ATTACHED)
        assert await scene.wait_until_bound(name, PROMPT_SECONDS) == node


async def test_a_shared_device_stays_on_the_node_that_it_is_bound_to(scene: NamespaceFixture) -> None:
    """A third pod with a free choice follows it; when the last share is gone the device goes to the node that waits for it."""
    first, second = [await scene.node(suffix) for suffix in ("a", "b")]
    shared = device("port-0", bindsToNode=True, allowMultipleAllocations=True)
    await scene.publish(scene.slice_of("fabric", allNodes=True, pool="fabric", devices=[shared]))
    await scene.template("one")
    await scene.pod("one", template="one", nodeSelector={"kubernetes.io/hostname": first})
    assert await scene.wait_until_bound("one") == first
    await scene.pod("apart", template="one", nodeSelector={"kubernetes.io/hostname": second})
    await scene.wait_until_unschedulable("apart", "devices are bound to another node")
    await scene.wait_for_event("apart", f"port-0 is bound to node {first} as long as a claim has a share of it there")
    await scene.pod("free", template="one")
    assert await scene.wait_until_bound("free") == first
    for name in ("one", "free"):
        await scene.delete_pod(name)
    assert await scene.wait_until_bound("apart", PROMPT_SECONDS) == second


async def test_node_that_goes_away_ends_the_wait_and_its_pod_goes_to_another(
    scene: NamespaceFixture, driver: FakeDriver
) -> None:
    """Long before the device is late."""
    await fabric(scene, "gpu-0")
    await scene.claim("one")
    await scene.pod("worker", claim="one")
    before = await allocated_claim(scene)
    await scene.wait_for_event("worker", "waits for")
    gone = chosen_node(before)
    await scene.api.delete(NODES, gone)
    await wait_for_any_event(scene, "worker", f"node {gone} does not exist any more")
    again = await allocated_claim(scene, after=before)
    assert chosen_node(again) != gone
    await driver.report(again, ATTACHED)
    assert await scene.wait_until_bound("worker", PROMPT_SECONDS) == chosen_node(again)


async def test_pod_that_is_deleted_while_it_waits_gives_its_device_back(scene: NamespaceFixture) -> None:
    await fabric(scene, "gpu-0")
    await scene.claim("one")
    await scene.pod("worker", claim="one")
    await allocated_claim(scene)
    await scene.delete_pod("worker")
    await scene.wait_until_free()

    async def nobody_waits() -> bool:
        return await scene.world.metric("bindingconditions_waiting_pods") == 0

    await scene.api.wait_for(nobody_waits, SECONDS, "no bind waits any more")
