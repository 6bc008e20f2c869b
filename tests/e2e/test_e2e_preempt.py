"""Preemption is kube-scheduler's; the extender keeps it from evicting pods where the devices would not suffice."""

from functools import partial

import pytest
import pytest_asyncio

from tests.controlplane.apierror import ApiError
from tests.controlplane.objects import device, pod
from tests.controlplane.planes import SECOND_DEFAULTS
from tests.controlplane.resources import PODS, PRIORITY_CLASSES
from tests.support.e2e.installed_extender import InstalledExtender, Setup
from tests.support.e2e.namespace_fixture import PROMPT_SECONDS, SECONDS, NamespaceFixture

pytestmark = [pytest.mark.e2e, pytest.mark.plane(SECOND_DEFAULTS), pytest.mark.asyncio(loop_scope="module")]

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


async def test_victims_are_chosen_only_where_the_devices_would_suffice(scene: NamespaceFixture) -> None:
    """Although another node has the victim of lower priority, which kube-scheduler alone would evict."""
    await scene.template("one")
    without = await scene.node_with_devices("a", device("gpu-0"), cpu="4")
    suffices = await scene.node_with_devices("b", device("gpu-0"), cpu="4")
    await scene.pod("holder", template="one", nodeSelector=on(without), priorityClassName="high")
    assert await scene.wait_until_bound("holder") == without
    await scene.pod("spared", cpu="3", nodeSelector=on(without), priorityClassName="least")
    await scene.pod("victim", cpu="3", nodeSelector=on(suffices), priorityClassName="low")
    for name in ("spared", "victim"):
        await scene.wait_until_bound(name)
    await scene.claim("wanted")
    await scene.pod("urgent", claim="wanted", cpu="2", priorityClassName="high")
    assert await scene.wait_until_bound("urgent") == suffices
    assert await scene.node_of("spared") == without
    with pytest.raises(ApiError, match="NotFound"):
        await scene.read("victim")


async def test_nobody_is_evicted_while_no_node_has_the_devices(
    scene: NamespaceFixture, world: InstalledExtender
) -> None:
    await scene.template("one")
    node = await scene.node_with_devices("a", device("gpu-0"), cpu="4")
    await scene.pod("holder", template="one", priorityClassName="high")
    await scene.pod("spared", cpu="3", priorityClassName="least")
    for name in ("holder", "spared"):
        assert await scene.wait_until_bound(name) == node
    before = await world.metric("requests_total", verb="preempt", outcome="ok")
    await scene.claim("wanted")
    await scene.pod("urgent", claim="wanted", cpu="2", priorityClassName="high")
    await scene.wait_until_unschedulable("urgent", "Insufficient cpu")
    assert await world.metric("requests_total", verb="preempt", outcome="ok") > before
    assert await scene.node_of("spared") == node


async def test_devices_of_the_victims_themselves_count(scene: NamespaceFixture) -> None:
    """They are free once the controller has released the victim's claim."""
    await scene.template("one")
    node = await scene.node_with_devices("a", device("gpu-0"), cpu="4")
    await scene.pod("victim", template="one", cpu="3", priorityClassName="low")
    assert await scene.wait_until_bound("victim") == node
    await scene.claim("wanted")
    await scene.pod("urgent", claim="wanted", cpu="2", priorityClassName="high")
    assert await scene.wait_until_bound("urgent") == node
    assert await scene.allocated() == [f"{node}/gpu-0"]


async def test_pod_whose_claim_is_still_being_made_from_its_template_may_preempt(scene: NamespaceFixture) -> None:
    """kube-scheduler proposes victims once, and the shortage of CPU alone parks the pod, so the claim is waited for."""
    await scene.template("one")
    node = await scene.node_with_devices("a", device("gpu-0"), cpu="4")
    await scene.pod("victim", cpu="3", priorityClassName="low")
    assert await scene.wait_until_bound("victim") == node
    await scene.pod("urgent", template="one", cpu="2", priorityClassName="high")
    assert await scene.wait_until_bound("urgent", PROMPT_SECONDS) == node
