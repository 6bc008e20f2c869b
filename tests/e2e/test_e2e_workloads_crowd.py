"""More pods than a claim has entries share it through their PodGroup, with every setting as shipped; the test plays kubelets."""

import asyncio
import json
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from typing import Final

import pytest
import pytest_asyncio

from tests.controlplane.objects import Object, device
from tests.controlplane.planes import SECOND_DEFAULTS
from tests.controlplane.resources import PODS
from tests.support.e2e.checker import expect_rest
from tests.support.e2e.installed_extender import InstalledExtender, Setup
from tests.support.e2e.namespace_fixture import NamespaceFixture
from tests.support.e2e.workloads import bound_members, clear_groups, create_group, delete_group, member

pytestmark = [pytest.mark.e2e, pytest.mark.plane(SECOND_DEFAULTS), pytest.mark.asyncio(loop_scope="module")]

PODS_OF_ALL: Final = 300
OWN: Final = 200
MOST: Final = 256
MANY_SECONDS: Final = 240.0
STARTED: Final = "PodReadyToStartContainers"
GROUP: Final = "workers"
CLAIM: Final = "domain"
NAMES: Final = [f"worker-{index}" for index in range(PODS_OF_ALL)]


@pytest.fixture(scope="module")
def setup() -> Setup:
    return Setup()


@pytest_asyncio.fixture(loop_scope="module")
async def groups(scene: NamespaceFixture) -> AsyncIterator[NamespaceFixture]:
    """A device that all nodes reach, a claim for it, and a PodGroup with that."""
    await scene.publish(scene.slice_of("fabric", allNodes=True, pool="fabric", devices=[device("domain-0")]))
    await scene.claim(CLAIM)
    await create_group(scene, GROUP, claims={"gpu": CLAIM})
    yield scene
    await clear_groups(scene)


@asynccontextmanager
async def kubelets(scene: NamespaceFixture, able: Collection[str]) -> AsyncIterator[None]:
    """Kubelets, which start a pod that has an entry of its own, and on the nodes `able` also one whose group has one."""

    async def work() -> None:
        while True:
            entries = await reserved(scene)
            own, group = {each["uid"] for each in entries}, any(each["resource"] == "podgroups" for each in entries)
            for pod in await scene.api.list(PODS, scene.name):
                node = pod["spec"].get("nodeName")
                accepted = pod["metadata"]["uid"] in own or (group and node in able)
                if node and accepted and not is_started(pod):
                    await start(scene, pod["metadata"]["name"])
            await asyncio.sleep(0.2)

    task = asyncio.create_task(work())
    try:
        yield
    finally:
        task.cancel()
        outcome = await asyncio.gather(task, return_exceptions=True)
    assert isinstance(outcome[0], asyncio.CancelledError), outcome


async def reserved(scene: NamespaceFixture) -> list[Object]:
    """The entries of the claim."""
    status = (await scene.stored_claim(CLAIM)).get("status", {})
    return list(status.get("reservedFor", ()))


def is_started(pod: Object) -> bool:
    return any(
        each["type"] == STARTED and each["status"] == "True" for each in pod.get("status", {}).get("conditions", ())
    )


async def start(scene: NamespaceFixture, name: str) -> None:
    """The kubelet reports that the pod's sandbox is there."""
    condition = {"type": STARTED, "status": "True"}
    change = {"status": {"conditions": [condition]}}
    await scene.api.patch(PODS, name, change, scene.name, kind="strategic", subresource="status")


async def all_started(scene: NamespaceFixture, seconds: float) -> None:
    async def done() -> bool:
        pods = await scene.api.list(PODS, scene.name)
        return len(pods) == PODS_OF_ALL and all(map(is_started, pods))

    await scene.api.wait_for(done, seconds, f"{PODS_OF_ALL} pods have started")


async def test_300_pods_of_a_podgroup_share_a_named_claim_with_shipped_defaults(
    groups: NamespaceFixture, world: InstalledExtender
) -> None:
    """Each node is tried by one pod; the group's entry ends with the group."""
    nodes = [await groups.node(suffix) for suffix in ("a", "b", "c")]
    async with kubelets(groups, nodes):
        await asyncio.gather(*(member(groups, GROUP, name, claim=CLAIM, cpu="1m") for name in NAMES))
        await all_started(groups, MANY_SECONDS)
    entries = await reserved(groups)
    assert sum(each["resource"] == "podgroups" for each in entries) == 1
    assert len(entries) <= OWN + 1
    assert await world.metric("group_trials_total", outcome="unable") == 0
    await expect_rest(groups.api, world.kubelets)
    await groups.api.delete_collection(PODS, groups.name, grace_seconds=0)
    await delete_group(groups, GROUP)
    await groups.wait_until_free(MANY_SECONDS)


async def test_where_kubelets_lack_the_gate_pods_on_trial_get_their_own_entries_in_time(
    groups: NamespaceFixture, world: InstalledExtender
) -> None:
    """One node of three is able; nobody stays where he is not started."""
    nodes = [await groups.node(suffix) for suffix in ("a", "b", "c")]
    async with kubelets(groups, nodes[:1]):
        await asyncio.gather(*(member(groups, GROUP, name, claim=CLAIM, cpu="1m") for name in NAMES))
        await all_started(groups, MANY_SECONDS)
    entries = await reserved(groups)
    assert len(entries) <= MOST
    by_own = {each["name"] for each in entries}
    where = await bound_members(groups)
    assert all(name in by_own for name, node in where.items() if node != nodes[0])
    await world.wait_for_metric("group_trials_total", 2, outcome="unable")
    await expect_rest(groups.api, world.kubelets)


async def test_the_role_edit_may_not_write_what_a_trial_reads(world: InstalledExtender) -> None:
    """Conditions of pods, entries of claims, labels of nodes: a tenant cannot say of a node what is not so."""
    role = json.loads(world.cluster.kubectl("get", "clusterrole", "edit", "--output=json"))
    writable = {
        resource
        for rule in role["rules"]
        if {"update", "patch", "*"} & {*rule["verbs"]}
        for resource in rule.get("resources", ())
    }
    assert "pods" in writable
    assert not writable & {"pods/status", "pods/*", "resourceclaims/status", "resourceclaims/binding", "nodes", "*"}
