"""Between filter and bind: claims that pods share, nominations, pods that vanish, schedulers that restart."""

import pytest

from tests.controlplane.objects import device
from tests.controlplane.planes import SECOND_DEFAULTS
from tests.controlplane.resources import PODS
from tests.support.e2e.installed_extender import InstalledExtender, Setup
from tests.support.e2e.namespace_fixture import SECONDS, NamespaceFixture
from tests.support.e2e.relay import Relay

pytestmark = [pytest.mark.e2e, pytest.mark.plane(SECOND_DEFAULTS), pytest.mark.asyncio(loop_scope="module")]


@pytest.fixture(scope="module")
def setup() -> Setup:
    return Setup(relayed=True)


@pytest.fixture
def relay(world: InstalledExtender) -> Relay:
    assert world.relay is not None
    return world.relay


async def nothing_held(world: InstalledExtender) -> bool:
    return await world.metric("held_claims") == 0


async def test_two_pods_that_share_an_unallocated_claim_end_on_one_allocation(
    scene: NamespaceFixture, relay: Relay
) -> None:
    """Both are filtered before either is bound; the second joins what is held for the first."""
    for suffix in ("a", "b"):
        await scene.node_with_devices(suffix, device("gpu-0"))
    await scene.claim("shared")
    async with relay.holding("bind") as held:
        for name in ("first", "second"):
            await scene.pod(name, claim="shared")
        await scene.api.wait_for(lambda: held.arrived(2), SECONDS, "both pods are about to be bound")
        assert await scene.allocated() == []
        held.release()
        nodes = {await scene.wait_until_bound(name) for name in ("first", "second")}
    (node,) = nodes
    assert await scene.allocated() == [f"{node}/gpu-0"]
    claim = await scene.stored_claim("shared")
    assert sorted(each["name"] for each in claim["status"]["reservedFor"]) == ["first", "second"]
    await scene.delete_pod("first")
    assert await scene.allocated() == [f"{node}/gpu-0"]
    await scene.delete_pod("second")
    await scene.wait_until_free()


async def test_pod_that_is_nominated_to_a_node_gets_it(scene: NamespaceFixture) -> None:
    """Out of several on which its devices are free."""
    nodes = [await scene.node_with_devices(suffix, device("gpu-0")) for suffix in ("a", "b", "c", "d", "z")]
    for name in ("wanted", "youngest"):
        await scene.claim(name)
    # Bound with what was made last: by then the extender knows all the rest, and no first attempt spoils the nomination.
    await scene.pod("last", claim="youngest", nodeSelector={"kubernetes.io/hostname": nodes[-1]})
    await scene.wait_until_bound("last")
    await scene.pod("nominee", claim="wanted", schedulingGates=[{"name": "example.com/wait"}])
    nomination = {"status": {"nominatedNodeName": nodes[2]}}
    await scene.api.patch(PODS, "nominee", nomination, scene.name, subresource="status")
    await scene.api.patch(PODS, "nominee", {"spec": {"schedulingGates": None}}, scene.name)
    assert await scene.wait_until_bound("nominee") == nodes[2]


async def test_pod_that_is_deleted_between_filter_and_bind_leaves_nothing_held(
    scene: NamespaceFixture, relay: Relay, world: InstalledExtender
) -> None:
    """A bind that arrives afterwards allocates nothing."""
    node = await scene.node_with_devices("a", device("gpu-0"))
    await scene.claim("one")
    async with relay.holding("bind") as held:
        uid = await scene.pod("gone", claim="one")
        await scene.api.wait_for(held.arrived, SECONDS, "the pod is about to be bound")
        assert await world.metric("held_claims") == 1
        await scene.delete_pod("gone")
        await scene.api.wait_for(lambda: nothing_held(world), SECONDS, "nothing is held any more")
    late = await relay.call("bind", {"PodName": "gone", "PodNamespace": scene.name, "PodUID": uid, "Node": node})
    assert "does not exist any more" in late["Error"]
    assert await scene.allocated() == []
    await scene.pod("next", claim="one")
    assert await scene.wait_until_bound("next") == node


async def test_scheduler_that_restarts_between_filter_and_bind_causes_no_second_allocation(
    scene: NamespaceFixture, relay: Relay, world: InstalledExtender
) -> None:
    """Its successor filters and binds the pod again; the first bind, delivered late, changes nothing."""
    for suffix in ("a", "b", "c"):
        await scene.node_with_devices(suffix, device("gpu-0"), device("gpu-1"))
    await scene.template("one")
    async with relay.holding("bind") as held:
        await scene.pod("only", template="one")
        await scene.api.wait_for(held.arrived, SECONDS, "the pod is about to be bound")
        await world.cluster.stop_scheduler()
    await scene.api.wait_for(lambda: answered(held.answers), SECONDS, "the late bind is answered")
    await world.start_scheduler()
    node = await scene.wait_until_bound("only")
    assert [each.partition("/")[0] for each in await scene.allocated()] == [node]
    await scene.api.wait_for(lambda: nothing_held(world), SECONDS, "nothing is held any more")


async def answered(answers: list[str]) -> bool:
    return bool(answers)
