"""Binding conditions (KEP-5007): a pod is bound when the driver says that its devices are attached, and not before.

They are published by the driver or supplied by the admin's policy. 1.34 and 1.35 drop them from slices and allocations: there only
the policy says what devices need, and the snapshot annotation of the claim carries it.
"""

import asyncio
from dataclasses import dataclass
from typing import Final

import pytest

from tests.controlplane.objects import Object, device
from tests.controlplane.planes import SECOND_DEFAULTS, V1_34, V1_35, V1_36
from tests.controlplane.resources import NODES, RESOURCE_SLICES
from tests.support.e2e.fabric import (
    ATTACHED,
    FAILED,
    FakeDriver,
    allocated_claim,
    chosen_node,
    fabric,
    snapshot_of,
    wait_for_any_event,
    wait_until_nominated,
)
from tests.support.e2e.installed_extender import InstalledExtender, Setup, total
from tests.support.e2e.namespace_fixture import PROMPT_SECONDS, SECONDS, NamespaceFixture, devices_of
from tests.support.e2e.scenes import carry_out_apart

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="module")]
ON_DEFAULTS: Final = pytest.mark.parametrize("plane", [SECOND_DEFAULTS], indirect=True, scope="module")

LONG_TIMEOUT: Final = {"DRA_EXTENDER_SCHEDULING__BINDING_TIMEOUT_SECONDS": "600"}
"""Of most tests: whatever a busy machine delays, only what is to time out does."""
SHORT_SECONDS: Final = 6
SHORT_TIMEOUT: Final = {"DRA_EXTENDER_SCHEDULING__BINDING_TIMEOUT_SECONDS": str(SHORT_SECONDS)}
BACKOFF_SECONDS: Final = 12
"""Longer than the next attempt takes, also on a busy machine."""
RULES: Final = f"""
rules:
  - name: fabric
    devices: device.attributes[device.driver].fabric
    bindingConditions: [{ATTACHED}]
    bindingFailureConditions: [{FAILED}]
    bindsToNode: true
"""


@pytest.fixture(scope="module")
def setup(tmp_path_factory: pytest.TempPathFactory) -> Setup:
    policy = tmp_path_factory.mktemp("policy") / "policy.yaml"
    policy.write_text(RULES)
    backoff = {"DRA_EXTENDER_SCHEDULING__DEVICE_BACKOFF_SECONDS": str(BACKOFF_SECONDS)}
    return Setup(environment={**LONG_TIMEOUT, **backoff, "DRA_EXTENDER_SCHEDULING__POLICY_FILE": str(policy)})


async def counted(world: InstalledExtender, status: str) -> float:
    labels = {"profile": "dra-extender-scheduler", "status": status}
    return total(await world.page("/metrics"), "scheduler_dra_bindingconditions_allocations_total", labels)


@ON_DEFAULTS
async def test_pod_is_bound_only_after_the_driver_reports_the_device_attached(
    scene: NamespaceFixture, world: InstalledExtender
) -> None:
    """The allocation names the chosen node before, so that the driver knows where to attach, and so does the pod's status.

    A pod that joins while the first one waits waits for the same device since the same moment; one that joins later does not wait.
    """
    nodes = await fabric(scene, "gpu-0", "gpu-1")
    await scene.claim("one")
    succeeded = await counted(world, "success")
    await scene.pod("worker", claim="one")
    claim = await allocated_claim(scene)
    (result,) = claim["status"]["allocation"]["devices"]["results"]
    assert (result["bindingConditions"], result["bindingFailureConditions"]) == ([ATTACHED], [FAILED])
    node, since = chosen_node(claim), claim["status"]["allocation"]["allocationTimestamp"]
    waits = f"device {scene.driver}/fabric/gpu-0 waits for {ATTACHED}"
    await scene.wait_for_event("worker", waits, f"since {since}", node)
    await wait_until_nominated(scene, "worker", node)
    await scene.pod("joining", claim="one")
    await scene.wait_for_event("joining", waits, f"since {since}", node)
    assert await world.metric("bindingconditions_waiting_pods") == 2

    await scene.claim("other")
    await scene.pod("deleted", claim="other")
    await allocated_claim(scene, "other")
    await scene.delete_pod("deleted")

    async def given_back() -> bool:
        return not devices_of(await scene.stored_claim("other"))

    await scene.api.wait_for(given_back, SECONDS, "the pod that is deleted while it waits gives its device back")
    assert await scene.node_of("worker") == ""
    await FakeDriver(scene).report(claim, ATTACHED)
    for name in ("worker", "joining"):
        assert await scene.wait_until_bound(name, PROMPT_SECONDS) == node
    assert node in nodes
    assert await counted(world, "success") == succeeded + 2
    assert await world.metric("bindingconditions_waiting_pods") == 0
    await scene.pod("later", claim="one")
    assert await scene.wait_until_bound("later") == node


async def node_goes_away(scene: NamespaceFixture) -> None:
    """The wait ends long before the device is late, and the pod goes to another node."""
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
    await FakeDriver(scene).report(again, ATTACHED)
    assert await scene.wait_until_bound("worker", PROMPT_SECONDS) == chosen_node(again)


async def only_device_fails(scene: NamespaceFixture) -> None:
    """Nothing else happens for the pod meanwhile: the end of the cool-down wakes it."""
    await fabric(scene, "gpu-0")
    await scene.claim("one")
    await scene.pod("worker", claim="one")
    failed = await allocated_claim(scene)
    await FakeDriver(scene).report(failed, FAILED)
    await scene.wait_until_unschedulable("worker", "devices have just failed for this pod")
    await wait_until_nominated(scene, "worker", "")
    assert await scene.allocated() == []
    again = await allocated_claim(scene, after=failed)
    await FakeDriver(scene).report(again, ATTACHED)
    await scene.wait_until_bound("worker", PROMPT_SECONDS)


async def shared_device(scene: NamespaceFixture) -> None:
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


async def devices_of_one_pool(scene: NamespaceFixture) -> None:
    """Each pod binds its device to its own node, and waits for it beside one that is ready."""
    nodes = await fabric(scene, "gpu-0", "gpu-1")
    for node in nodes:
        await scene.publish(scene.slice_of(f"local-{node}", node=node, devices=[device("card-0")]))
    await scene.template("two", count=2)
    for name, node in zip(("first", "second"), nodes, strict=True):
        await scene.pod(name, template="two", nodeSelector={"kubernetes.io/hostname": node})
        told = await scene.wait_for_event(name, "fabric/gpu-", "waits for", node)
        assert "card-0" not in told
        claim = await scene.claim_of(name)
        assert chosen_node(claim) == node
        await FakeDriver(scene).report(claim, ATTACHED)
        assert await scene.wait_until_bound(name, PROMPT_SECONDS) == node


@ON_DEFAULTS
async def test_waits_end_with_the_node_and_the_backoff_and_devices_stay_with_their_node(
    scene: NamespaceFixture,
) -> None:
    await carry_out_apart(
        scene,
        {
            "node-goes": node_goes_away,
            "only-device": only_device_fails,
            "shared": shared_device,
            "one-pool": devices_of_one_pool,
        },
    )


@dataclass
class Waiting:
    """Four pods of a scene with a claim each, all of which wait for a device of the fabric."""

    scene: NamespaceFixture
    by_policy: bool
    claims: dict[str, Object]

    async def begin(self, *, dropped: bool) -> None:
        """Create everything; `dropped`: the API server drops the fields of conditions."""
        scene = self.scene
        await fabric(scene, *(f"gpu-{index}" for index in range(7)), policy=self.by_policy)
        stored = await scene.api.get(RESOURCE_SLICES, f"{scene.name}-fabric")
        assert ("bindingConditions" in stored["spec"]["devices"][0]) is not self.by_policy
        for name in ("ready", "failing", "resumed", "late"):
            await scene.claim(name)
            await scene.pod(name, claim=name)
        for name in ("ready", "failing", "resumed", "late"):
            claim = self.claims[name] = await allocated_claim(scene, name)
            (result,) = claim["status"]["allocation"]["devices"]["results"]
            assert ("bindingConditions" in result) is not dropped
            waits = f"fabric/{result['device']} waits for {ATTACHED}, since 20"
            await scene.wait_for_event(name, waits, chosen_node(claim))
            assert await scene.node_of(name) == ""

    async def succeed_and_fail(self) -> None:
        """One device is attached; one fails, and its pod gets another one."""
        scene, driver = self.scene, FakeDriver(self.scene)
        await driver.report(self.claims["ready"], ATTACHED)
        (failed,) = devices_of(self.claims["failing"])
        await driver.report(self.claims["failing"], FAILED, message="no free port")
        assert await scene.wait_until_bound("ready", PROMPT_SECONDS) == chosen_node(self.claims["ready"])
        reports = f"{failed} reports {FAILED}: no free port"
        await wait_for_any_event(scene, "failing", "binding conditions failed", reports)
        again = await allocated_claim(scene, "failing", after=self.claims["failing"])
        assert devices_of(again) != [failed]
        assert not again["status"].get("devices")
        await driver.report(again, ATTACHED)
        await scene.wait_until_bound("failing", PROMPT_SECONDS)

    async def be_late(self) -> None:
        """What became ready while the extender was down is used, however late; what took too long is given back at once.

        The next device of the late pod takes too long for the running extender, and the one after that is attached.
        """
        scene, late = self.scene, self.claims["late"]

        async def given_back() -> bool:
            stored = await scene.stored_claim("late")
            return "allocation" not in stored["status"] or snapshot_of(stored) != snapshot_of(late)

        await scene.api.wait_for(given_back, PROMPT_SECONDS, "the device that took too long is given back")
        assert await scene.wait_until_bound("resumed") == chosen_node(self.claims["resumed"])
        assert snapshot_of(await scene.stored_claim("resumed")) == snapshot_of(self.claims["resumed"])
        second = await allocated_claim(scene, "late", after=late)
        (slow,) = devices_of(second)
        await wait_for_any_event(scene, "late", "binding conditions timed out", f"{slow} waits for {ATTACHED}")

        async def bound() -> bool:
            claim = await scene.stored_claim("late")
            if devices_of(claim) not in ([], [slow]) and not claim["status"].get("devices"):
                await FakeDriver(scene).report(claim, ATTACHED)
            return bool(await scene.node_of("late"))

        await scene.api.wait_for(bound, 2 * SECONDS, "the pod is bound with another device")


@pytest.mark.parametrize("plane", [SECOND_DEFAULTS, V1_36, V1_35, V1_34], indirect=True, scope="module")
async def test_devices_succeed_fail_and_take_too_long_also_while_extender_and_scheduler_are_down(
    scene: NamespaceFixture, world: InstalledExtender
) -> None:
    """The same whether the driver publishes the conditions or the policy supplies them; the time counts from the allocation."""
    dropped = world.cluster.options in (V1_34, V1_35)
    sources = {"policy": True} if dropped else {"driver": False, "policy": True}
    scenes = [NamespaceFixture(world, f"{scene.name}-{source}", apart=True) for source in sources]
    rows = [Waiting(own, by_policy, {}) for own, by_policy in zip(scenes, sources.values(), strict=True)]
    await asyncio.gather(*(own.open() for own in scenes))
    await asyncio.gather(*(row.begin(dropped=dropped) for row in rows))
    await asyncio.gather(*(row.succeed_and_fail() for row in rows))
    world.extender.kill()
    await world.cluster.stop_scheduler()
    for row in rows:
        await FakeDriver(row.scene).report(row.claims["resumed"], ATTACHED)
    await asyncio.sleep(SHORT_SECONDS)
    await world.extender.restart(environment=SHORT_TIMEOUT)
    await world.start_scheduler()
    await asyncio.gather(*(row.be_late() for row in rows))
    assert await counted(world, "timeout") >= len(rows)
    await world.extender.restart(environment=LONG_TIMEOUT)
    await asyncio.gather(*(own.clear() for own in scenes))
