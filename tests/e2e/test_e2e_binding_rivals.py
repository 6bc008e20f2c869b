"""Two writers of claims in one cluster: a second extender that acts at the same time, and a scheduler that knows nothing of us."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Final

import pytest
import pytest_asyncio

from tests.controlplane.extender import ExtenderProcess
from tests.controlplane.objects import Object, device
from tests.controlplane.planes import SECOND_DEFAULTS
from tests.controlplane.resources import PODS, RESOURCE_CLAIMS
from tests.controlplane.schedulers import IN_TREE
from tests.support.e2e.fabric import ATTACHED, FAILED, FakeDriver, allocated_claim, fabric, wait_for_any_event
from tests.support.e2e.gpus import gpu, partition
from tests.support.e2e.installed_extender import NAMESPACE, InstalledExtender, Setup, page, shipped_configuration, total
from tests.support.e2e.namespace_fixture import PROMPT_SECONDS, SECONDS, NamespaceFixture
from tests.support.e2e.relay import Relay
from tests.support.e2e.scenes import carry_out_apart

pytestmark = [pytest.mark.e2e, pytest.mark.plane(SECOND_DEFAULTS), pytest.mark.asyncio(loop_scope="module")]

DEVICES: Final = 8
ROUNDS: Final = 6
RIVAL: Final = "rival-scheduler"
NEVER: Final = ("no-device", "no-node", "too-many")


@pytest.fixture(scope="module")
def setup() -> Setup:
    return Setup(relayed=True, api_relayed=True)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def rival(world: InstalledExtender, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Relay]:
    """A second extender that is no standby (leader election is off), with a scheduler of its own; the relay between the two."""
    async with AsyncExitStack() as stack:
        extender = ExtenderProcess(tmp_path_factory.mktemp("rival"), world.kubeconfig, name="rival-extender")
        await stack.enter_async_context(extender)
        relay = await stack.enter_async_context(Relay(extender.url))
        await world.cluster.start_scheduler(shipped_configuration(relay.url, RIVAL), RIVAL)
        stack.push_async_callback(world.cluster.stop_scheduler, RIVAL)
        yield relay


async def yielded(*urls: str) -> float:
    """How often these extenders have given something back to another writer."""
    pages = [await page(f"{url}/metrics") for url in urls]
    return sum(total(each, "dra_extender_allocation_overlaps_total", {"outcome": "yielded"}) for each in pages)


async def bound_devices(scene: NamespaceFixture) -> list[str]:
    """The devices of all pods that are bound, sorted."""
    pods = [each["metadata"]["name"] for each in await scene.api.list(PODS, scene.name) if each["spec"].get("nodeName")]
    return sorted([await scene.device_of(each) for each in pods])


async def test_no_device_is_bound_twice_by_two_extenders_that_are_both_active(
    scene: NamespaceFixture, world: InstalledExtender, rival: Relay
) -> None:
    """Both have promised the same devices to pods of their own, and are told to bind them all at the same moment."""
    assert world.relay is not None
    urls = [world.extender.url, await rival.where()]
    node = await scene.node_with_devices("a", *(device(f"gpu-{index}") for index in range(DEVICES)))
    await scene.template("one")
    before = await yielded(*urls)
    for _ in range(ROUNDS):
        async with world.relay.holding("bind") as ours, rival.holding("bind") as theirs:
            for index in range(DEVICES):
                await scene.pod(f"ours-{index}", template="one")
                await scene.pod(f"theirs-{index}", template="one", scheduler=RIVAL)
            for held in (ours, theirs):
                await scene.api.wait_for(lambda held=held: held.arrived(DEVICES), SECONDS, "all binds have come")  # type: ignore[misc]
            ours.release()
            theirs.release()

        async def all_bound() -> bool:
            return len(await bound_devices(scene)) >= DEVICES

        await scene.api.wait_for(all_bound, SECONDS, "as many pods are bound as there are devices")
        assert await bound_devices(scene) == sorted(f"{node}/gpu-{index}" for index in range(DEVICES))
        for each in await scene.api.list(PODS, scene.name):
            await scene.delete_pod(each["metadata"]["name"])
        await scene.wait_until_free()
        if await yielded(*urls) > before:
            break
    assert await yielded(*urls) > before


async def foreign_claim(scene: NamespaceFixture, like: Object, device: str | None = None) -> None:
    """Somebody else allocates the device of this claim, or another one of its pool, to a claim of theirs."""
    await scene.claim("foreign")
    (result,) = like["status"]["allocation"]["devices"]["results"]
    taken = {key: result[key] for key in ("request", "driver", "pool", "device")}
    taken |= {} if device is None else {"device": device}
    consumer = {"resource": "pods", "name": "somebody", "uid": "00000000-0000-4000-8000-000000000001"}
    change = {"status": {"allocation": {"devices": {"results": [taken]}}, "reservedFor": [consumer]}}
    await scene.api.patch(RESOURCE_CLAIMS, "foreign", change, scene.name, subresource="status")


async def foreign_claim_ends(scene: NamespaceFixture) -> None:
    await scene.api.delete(RESOURCE_CLAIMS, "foreign", scene.name)


async def waiting_claim(scene: NamespaceFixture) -> Object:
    """The claim of a pod `worker` that waits for its device to be attached."""
    await scene.pod("worker", claim="one")
    claim = await allocated_claim(scene)
    await scene.wait_for_event("worker", "waits for")
    return claim


async def takes_the_device(scene: NamespaceFixture) -> None:
    """The pod gets another one."""
    await fabric(scene, "gpu-0", "gpu-1")
    await scene.claim("one")
    taken = await waiting_claim(scene)
    await foreign_claim(scene, taken)
    await wait_for_any_event(scene, "worker", f"another writer allocated device {scene.driver}/fabric/gpu-0 first")
    again = await allocated_claim(scene, after=taken)
    assert await scene.device_of("worker") == "fabric/gpu-1"
    await FakeDriver(scene).report(again, ATTACHED)
    await scene.wait_until_bound("worker", PROMPT_SECONDS)
    await foreign_claim_ends(scene)


async def takes_a_neighbour(scene: NamespaceFixture) -> None:
    """Not the same device, but the same GPU, in another mode (compatibility groups)."""
    slow = {"bindingConditions": [ATTACHED], "bindingFailureConditions": [FAILED]}
    vgpu, mig = partition("vgpu", 0, "50") | slow, partition("mig", 0, "20")
    node = await scene.node_with_counters("a", [gpu()], [vgpu, mig])
    await scene.claim("one", f'{scene.attribute("type")} == "vgpu"')
    taken = await waiting_claim(scene)
    await foreign_claim(scene, taken, "gpu-0-mig-0")
    await wait_for_any_event(scene, "worker", f"another writer allocated groups {scene.driver}/{node}/gpu-0 first")
    await scene.wait_until_unschedulable("worker", "compatibility groups in conflict")
    assert await scene.allocated() == [f"{node}/gpu-0-mig-0"]
    await foreign_claim_ends(scene)
    again = await allocated_claim(scene, after=taken)
    await FakeDriver(scene).report(again, ATTACHED)
    assert await scene.wait_until_bound("worker", PROMPT_SECONDS) == node


async def takes_it_of_a_bound_pod(scene: NamespaceFixture) -> None:
    """Nothing can be undone any more: people are told."""
    node = await scene.node_with_devices("a", device("gpu-0"))
    await scene.claim("one")
    await scene.pod("worker", claim="one")
    await scene.wait_until_bound("worker")
    await foreign_claim(scene, await scene.stored_claim("one"))
    await scene.wait_for_event(
        "worker", f"device {scene.driver}/{node}/gpu-0 of claim {scene.name}/one", "by another writer"
    )
    assert await scene.allocated() == [f"{node}/gpu-0"] * 2
    await scene.world.wait_for_metric("allocation_overlaps_total", 1, kind="device", outcome="reported")
    await foreign_claim_ends(scene)


async def test_what_a_foreign_writer_takes_is_given_up_before_the_binding_and_reported_after_it(
    scene: NamespaceFixture,
) -> None:
    await carry_out_apart(
        scene, {"device": takes_the_device, "neighbour": takes_a_neighbour, "bound": takes_it_of_a_bound_pod}
    )


async def wait_until_guarded(scene: NamespaceFixture) -> None:
    async def guarded() -> bool:
        claims = await scene.api.list(RESOURCE_CLAIMS, NAMESPACE)
        return await scene.allocated() == ["fabric/gpu-0"] and any(
            "allocation" in claim.get("status", {}) for claim in claims
        )

    await scene.api.wait_for(guarded, SECONDS, "our claim is released, and a guard claim allocated")


async def wait_until_unguarded(scene: NamespaceFixture) -> None:
    async def unguarded() -> bool:
        return await scene.api.list(RESOURCE_CLAIMS, NAMESPACE) == []

    await scene.api.wait_for(unguarded, SECONDS, "no guard claim is left")


async def test_an_in_tree_scheduler_does_not_give_a_device_away_again_that_ours_releases(
    scene: NamespaceFixture, world: InstalledExtender
) -> None:
    """Its set of allocated devices loses the device with our release; the guard claim puts it back.

    While a pod of it waits for the device, ours stays allocated beside the foreign one, reserved for the guard claim, also when our
    pod is deleted and kube-controller-manager has removed its reservation.
    """
    async with world.cluster.in_tree_scheduler():
        await fabric(scene, "gpu-0")
        for name in ("one", "next"):
            await scene.claim(name)
        taken = await waiting_claim(scene)
        await scene.pod("theirs", claim="next", scheduler=IN_TREE)
        await scene.wait_until_unschedulable("theirs", "cannot allocate all claims")
        await foreign_claim(scene, taken)

        async def reserved_for(*kinds: str) -> bool:
            consumers = (await scene.stored_claim("one"))["status"].get("reservedFor", [])
            return [each["resource"] for each in consumers] == [*kinds]

        await scene.api.wait_for(
            lambda: reserved_for("pods", "resourceclaims"), SECONDS, "the claim is reserved for a guard claim"
        )
        await scene.delete_pod("worker")
        await scene.api.wait_for(
            lambda: reserved_for("resourceclaims"), SECONDS, "kube-controller-manager has removed the pod's reservation"
        )
        assert await scene.allocated() == ["fabric/gpu-0"] * 2
        await scene.delete_pod("theirs")
        await wait_until_guarded(scene)
        await scene.pod("later", claim="next", scheduler=IN_TREE)
        await scene.wait_until_unschedulable("later", "cannot allocate all claims")
        await foreign_claim_ends(scene)
        await allocated_claim(scene, "next")
        await scene.delete_pod("later")
        await scene.api.delete(RESOURCE_CLAIMS, "next", scene.name)
        # A guard that was on its way out when the device got its next owner guards that one to its end.
        await wait_until_unguarded(scene)


async def test_pod_that_loses_its_device_is_bound_elsewhere_beside_in_tree_pods_that_never_run(
    scene: NamespaceFixture, world: InstalledExtender
) -> None:
    """The in-tree scheduler allocates while the extender sees no claim; the pods that never run delay nothing."""
    assert world.relay is not None
    assert world.api_relay is not None
    async with world.cluster.in_tree_scheduler():
        slow = device(
            "gpu-0", attributes={"model": "large"}, bindingConditions=[ATTACHED], bindingFailureConditions=[FAILED]
        )
        lost = await scene.node_with_devices("a", slow)
        await scene.claim("one")
        await scene.claim("theirs")
        await scene.claim("no-device", f'{scene.attribute("model")} == "none"')
        await scene.claim("no-node")
        await scene.claim("too-many", count=DEVICES)
        for name in NEVER:
            selector = {"zone": "none"} if name == "no-node" else {}
            await scene.pod(name, claim=name, scheduler=IN_TREE, nodeSelector=selector)
            await scene.wait_until_unschedulable(name)
        async with world.relay.holding("bind") as held:
            await scene.pod("ours", claim="one")
            await scene.api.wait_for(held.arrived, SECONDS, "the bind has come")
            with world.api_relay.holding(RESOURCE_CLAIMS.plural):
                await scene.pod("theirs", claim="theirs", scheduler=IN_TREE)
                await allocated_claim(scene, "theirs")
                free = await scene.node_with_devices("b", device("gpu-0"))
                held.release()
                await allocated_claim(scene)
                assert await scene.allocated() == [f"{lost}/gpu-0"] * 2
        assert await scene.wait_until_bound("ours", SECONDS) == free
        said = await wait_for_any_event(scene, "ours", f"allocated device {scene.driver}/{lost}/gpu-0 first")
        assert "waits for such a device" not in said
        assert await scene.allocated() == [f"{lost}/gpu-0", f"{free}/gpu-0"]
        for name in (*NEVER, "theirs"):
            await scene.delete_pod(name)
            await scene.api.delete(RESOURCE_CLAIMS, name, scene.name)
        await wait_until_unguarded(scene)
