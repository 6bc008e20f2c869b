"""Preemption is kube-scheduler's; the extender keeps it from evicting pods where the devices would not suffice."""

from functools import partial

import pytest
import pytest_asyncio

from tests.controlplane.apierror import ApiError
from tests.controlplane.objects import device, pod
from tests.controlplane.resources import PODS, PRIORITY_CLASSES
from tests.support.e2e.installed_extender import InstalledExtender, Setup
from tests.support.e2e.namespace_fixture import PROMPT_SECONDS, SECONDS, NamespaceFixture
from tests.support.e2e.scenes import carry_out_apart

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="module")]

PRIORITIES = {"least": 1, "low": 5, "high": 1000}
NEW_CLAIM_SECONDS = 4
"""For which preempt waits for a claim that is being made: the most that can be set."""


@pytest.fixture(scope="module")
def setup() -> Setup:
    return Setup(environment={"DRA_EXTENDER_SCHEDULING__NEW_CLAIM_WAIT_SECONDS": str(NEW_CLAIM_SECONDS)})


@pytest_asyncio.fixture(scope="module", loop_scope="module", autouse=True)
async def priorities(world: InstalledExtender) -> None:
    """The priority classes by name."""
    for name, value in PRIORITIES.items():
        metadata = {"name": name}
        body = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": metadata, "value": value}
        await world.api.create(PRIORITY_CLASSES, body)
        await world.api.wait_for(partial(admitted, world, name), SECONDS, f"pods of priority {name} are admitted")


async def admitted(world: InstalledExtender, priority: str) -> bool:
    """Whether the API server takes a pod of this priority; its admission learns of classes through a watch."""
    body = pod("tried", "default", priorityClassName=priority)
    return bool(await world.api.create(PODS, body, dryRun="All"))


def on(node: str) -> dict[str, str]:
    return {"kubernetes.io/hostname": node}


async def test_victims_are_chosen_only_where_the_devices_would_suffice(
    scene: NamespaceFixture, world: InstalledExtender
) -> None:
    """Nobody is evicted while no node has the devices; then on the node that has them, although another one has the victim of
    lower priority, which kube-scheduler alone would evict."""
    await scene.template("one")
    without = await scene.node_with_devices("a", device("gpu-0"), cpu="4")
    suffices = await scene.node("b", cpu="4")
    await scene.pod("holder", template="one", priorityClassName="high")
    assert await scene.wait_until_bound("holder") == without
    await scene.pod("spared", cpu="3", nodeSelector=on(without), priorityClassName="least")
    await scene.pod("victim", cpu="3", nodeSelector=on(suffices), priorityClassName="low")
    for name in ("spared", "victim"):
        await scene.wait_until_bound(name)
    await scene.claim("wanted")
    before = await world.metric("requests_total", verb="preempt", outcome="ok")
    await scene.pod("urgent", claim="wanted", cpu="2", priorityClassName="high")
    await scene.wait_until_unschedulable("urgent", "Insufficient cpu")
    assert await world.metric("requests_total", verb="preempt", outcome="ok") > before
    for name, node in (("spared", without), ("victim", suffices)):
        assert await scene.node_of(name) == node
    # kube-scheduler does not try a pod again that lacks CPU everywhere, whatever is published.
    await scene.delete_pod("urgent")
    await scene.publish(scene.slice_of("b", node=suffices, devices=[device("gpu-0")]))
    await scene.pod("urgent", claim="wanted", cpu="2", priorityClassName="high")
    assert await scene.wait_until_bound("urgent") == suffices
    assert await scene.node_of("spared") == without
    with pytest.raises(ApiError, match="NotFound"):
        await scene.read("victim")


async def devices_of_victims(scene: NamespaceFixture) -> None:
    """They count: they are free once the controller has released the victim's claim."""
    await scene.template("one")
    node = await scene.node_with_devices("a", device("gpu-0"), cpu="4")
    await scene.pod("victim", template="one", cpu="3", priorityClassName="low")
    assert await scene.wait_until_bound("victim") == node
    await scene.claim("wanted")
    await scene.pod("urgent", claim="wanted", cpu="2", priorityClassName="high")
    assert await scene.wait_until_bound("urgent") == node
    assert await scene.allocated() == [f"{node}/gpu-0"]


async def claim_is_being_made(scene: NamespaceFixture) -> None:
    """kube-scheduler proposes victims once, and the shortage of CPU alone parks the pod, so the claim is waited for."""
    await scene.template("one")
    node = await scene.node_with_devices("a", device("gpu-0"), cpu="4")
    await scene.pod("victim", cpu="3", priorityClassName="low")
    assert await scene.wait_until_bound("victim") == node
    await scene.pod("urgent", template="one", cpu="2", priorityClassName="high")
    assert await scene.wait_until_bound("urgent", PROMPT_SECONDS) == node


async def nominated(scene: NamespaceFixture) -> None:
    """A pod that is nominated to a node gets it, out of several on which its devices are free."""
    nodes = [await scene.node_with_devices(suffix, device("gpu-0")) for suffix in ("a", "b", "c", "d", "z")]
    for name in ("wanted", "youngest"):
        await scene.claim(name)
    # Bound with what was made last: by then the extender knows all the rest, and no first attempt spoils the nomination.
    await scene.pod("last", claim="youngest", nodeSelector=on(nodes[-1]))
    await scene.wait_until_bound("last")
    await scene.pod("nominee", claim="wanted", schedulingGates=[{"name": "example.com/wait"}])
    nomination = {"status": {"nominatedNodeName": nodes[2]}}
    await scene.api.patch(PODS, "nominee", nomination, scene.name, subresource="status")
    await scene.api.patch(PODS, "nominee", {"spec": {"schedulingGates": None}}, scene.name)
    assert await scene.wait_until_bound("nominee") == nodes[2]


async def test_pods_preempt_for_devices_of_victims_and_claims_that_are_being_made_and_nominated_ones_get_their_node(
    scene: NamespaceFixture,
) -> None:
    rows = {"own-devices": devices_of_victims, "new-claim": claim_is_being_made, "nominated": nominated}
    await carry_out_apart(scene, rows)
