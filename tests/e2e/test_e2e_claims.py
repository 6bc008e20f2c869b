"""Claims between filter and bind, before the watch brings them, and deleted under a running pod."""

import asyncio
from functools import partial
from typing import Any, Final

import pytest

from tests.controlplane.objects import device
from tests.controlplane.planes import SECOND_DEFAULTS
from tests.controlplane.resources import PODS, RESOURCE_CLAIMS
from tests.support.e2e.api_relay import Answer, ApiCall, ApiRelay, Forward, pass_on
from tests.support.e2e.installed_extender import InstalledExtender, Setup
from tests.support.e2e.namespace_fixture import PROMPT_SECONDS, SECONDS, NamespaceFixture, devices_of
from tests.support.e2e.relay import Relay
from tests.support.e2e.scenes import carry_out_apart

pytestmark = [pytest.mark.e2e, pytest.mark.plane(SECOND_DEFAULTS), pytest.mark.asyncio(loop_scope="module")]

MISSING: Final = "does not exist"
QUIET_SECONDS: Final = 3.0


@pytest.fixture(scope="module")
def setup() -> Setup:
    environment = {"DRA_EXTENDER_SCHEDULING__NEW_CLAIM_WAIT_SECONDS": "2"}
    return Setup(relayed=True, api_relayed=True, environment=environment)


@pytest.fixture
def relay(world: InstalledExtender) -> Relay:
    assert world.relay is not None
    return world.relay


@pytest.fixture
def api_relay(world: InstalledExtender) -> ApiRelay:
    assert world.api_relay is not None
    return world.api_relay


async def wait_until_held(world: InstalledExtender, number: int) -> None:
    async def held() -> bool:
        return await world.metric("held_claims") == number

    await world.api.wait_for(held, SECONDS, f"{number} claims are held")


async def test_between_filter_and_bind_pods_share_vanish_and_lose_their_scheduler(
    scene: NamespaceFixture, relay: Relay, world: InstalledExtender
) -> None:
    """Two pods share a claim that is not allocated yet: the second joins what is held for the first.

    One that is deleted leaves nothing held, and its bind, which comes afterwards, allocates nothing. The next scheduler filters and
    binds the others again; what the first one has asked for causes no second allocation.
    """
    # As many devices on each node as claims are held, since each is held on all nodes.
    for suffix in ("a", "b", "c"):
        await scene.node_with_devices(suffix, *(device(f"gpu-{index}") for index in range(3)))
    await scene.claim("shared")
    await scene.claim("one")
    await scene.template("own")
    pods: dict[str, dict[str, Any]] = {
        "first": {"claim": "shared"},
        "second": {"claim": "shared"},
        "gone": {"claim": "one"},
        "only": {"template": "own"},
    }
    async with relay.holding("bind") as held:
        uids = {name: await scene.pod(name, **sources) for name, sources in pods.items()}
        await scene.api.wait_for(lambda: held.arrived(len(pods)), SECONDS, "all pods are about to be bound")
        assert await scene.allocated() == []
        await wait_until_held(world, 3)
        await scene.delete_pod("gone")
        await wait_until_held(world, 2)
        await world.cluster.stop_scheduler()

    async def answered() -> bool:
        return len(held.answers) == len(pods)

    await scene.api.wait_for(answered, SECONDS, "the late binds are answered")
    late = {"PodName": "gone", "PodNamespace": scene.name, "PodUID": uids["gone"], "Node": f"{scene.name}-a"}
    assert "does not exist any more" in (await relay.call("bind", late))["Error"]
    assert devices_of(await scene.stored_claim("one")) == []
    await world.start_scheduler()
    nodes = {name: await scene.wait_until_bound(name) for name in ("first", "second", "only")}
    assert nodes["first"] == nodes["second"]
    held_devices = await scene.allocated()
    assert sorted(device.partition("/")[0] for device in held_devices) == sorted((nodes["first"], nodes["only"]))
    await wait_until_held(world, 0)
    claim = await scene.stored_claim("shared")
    assert sorted(each["name"] for each in claim["status"]["reservedFor"]) == ["first", "second"]
    await scene.delete_pod("first")
    assert await scene.allocated() == held_devices
    for name in ("second", "only"):
        await scene.delete_pod(name)
    await scene.wait_until_free()
    await scene.pod("next", claim="one")
    await scene.wait_until_bound("next")


async def notes(scene: NamespaceFixture, name: str) -> str:
    """What all Events say of the pod."""
    return "\n".join(str(each.get("note", "")) for each in await scene.events(name))


async def test_a_pod_whose_claim_the_watch_does_not_bring_is_tried_again_and_never_told_that_it_does_not_exist(
    scene: NamespaceFixture, api_relay: ApiRelay
) -> None:
    """One that comes a moment later is waited for. Otherwise kube-scheduler is told of an error, not of a pod that fits nowhere."""
    asked = asyncio.Event()

    async def listen(call: ApiCall, forward: Forward) -> Answer:
        answer = await forward()
        if call.method == "GET" and call.path.endswith("/resourceclaims/soon"):
            asked.set()
        return answer

    async def told() -> bool:
        return f"claim {scene.name}/late is not known yet" in await notes(scene, "retried")

    async def refused() -> bool:
        return (await scene.condition("retried")).get("reason") == "SchedulerError"

    await scene.node_with_devices("a", device("gpu-0"), device("gpu-1"))
    api_relay.handler = listen
    try:
        with api_relay.holding(RESOURCE_CLAIMS.plural):
            await scene.claim("soon")
            await scene.pod("waited-for", claim="soon")
            await asyncio.wait_for(asked.wait(), SECONDS)
        await scene.wait_until_bound("waited-for")
    finally:
        api_relay.handler = pass_on
    with api_relay.holding(RESOURCE_CLAIMS.plural):
        await scene.claim("late")
        await scene.pod("retried", claim="late")
        await scene.api.wait_for(told, SECONDS, "an Event says that the claim is not known yet")
        # kube-scheduler records its Event first.
        await scene.api.wait_for(refused, SECONDS, "the pod is refused for an error")
    await scene.wait_until_bound("retried")
    for name in ("waited-for", "retried"):
        assert MISSING not in await notes(scene, name)


async def strip_and_delete(scene: NamespaceFixture, claim: str) -> None:
    """What somebody who may write claims does where no admission policy refuses it."""
    await scene.api.delete(RESOURCE_CLAIMS, claim, scene.name)
    await scene.api.patch(RESOURCE_CLAIMS, claim, {"metadata": {"finalizers": None}}, scene.name)

    async def gone() -> bool:
        return all(each["metadata"]["name"] != claim for each in await scene.api.list(RESOURCE_CLAIMS, scene.name))

    await scene.api.wait_for(gone, SECONDS, f"claim {claim} is gone")


async def first_pod_ends(scene: NamespaceFixture, *, deleted: bool) -> None:
    """Its claim is deleted while it runs: the device goes to nobody else before its end."""
    node = await scene.node_with_devices("a", device("gpu-0"))
    for name in ("first", "second"):
        await scene.claim(name)
    await scene.pod("first", claim="first")
    assert await scene.wait_until_bound("first") == node
    await scene.api.patch(PODS, "first", {"status": {"phase": "Running"}}, scene.name, subresource="status")
    await strip_and_delete(scene, "first")
    told = await scene.wait_for_event("first", "was deleted while this pod uses its devices")
    assert f"{scene.driver}/{node}/gpu-0" in told
    await scene.pod("second", claim="second")
    await scene.wait_until_unschedulable("second")
    await asyncio.sleep(QUIET_SECONDS)
    assert await scene.node_of("second") == ""
    assert await scene.world.metric("orphaned_allocations") >= 1
    if deleted:
        await scene.delete_pod("first")
    else:
        await scene.api.patch(PODS, "first", {"status": {"phase": "Failed"}}, scene.name, subresource="status")
    assert await scene.wait_until_bound("second", PROMPT_SECONDS) == node


async def test_device_of_a_deleted_claim_is_given_to_the_next_pod_when_the_first_ends(
    scene: NamespaceFixture, world: InstalledExtender
) -> None:
    rows = {"deleted": partial(first_pod_ends, deleted=True), "over": partial(first_pod_ends, deleted=False)}
    await carry_out_apart(scene, rows)
    assert await world.metric("orphaned_allocations") == 0
