"""Claims that the pods of a PodGroup share: by entries of their own and by the group's (KEP-5729); the test plays kubelets."""

import asyncio
import json
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from typing import Final

import pytest
import pytest_asyncio
from dra_extender.ledger.pod_groups import GroupEntryPolicy

from tests.controlplane.objects import Object, device
from tests.controlplane.planes import SECOND_DEFAULTS
from tests.controlplane.resources import PODS, RESOURCE_CLAIMS
from tests.support.e2e.checker import expect_rest
from tests.support.e2e.fabric import ATTACHED, FAILED, FakeDriver, allocated_claim, fabric, wait_for_any_event
from tests.support.e2e.installed_extender import InstalledExtender
from tests.support.e2e.namespace_fixture import NamespaceFixture, devices_of
from tests.support.e2e.workloads import bound_members, clear_groups, create_group, delete_group, member

pytestmark = [pytest.mark.e2e, pytest.mark.plane(SECOND_DEFAULTS), pytest.mark.asyncio(loop_scope="module")]

CROWD: Final = 300
MOST: Final = 256
"""Entries that a claim can have."""
MANY_SECONDS: Final = 240.0
QUIET_SECONDS: Final = 3.0
"""Longer than the grace of reclaim."""
STARTED: Final = "PodReadyToStartContainers"
GROUP: Final = "workers"
CLAIM: Final = "domain"


@pytest_asyncio.fixture(loop_scope="module")
async def groups(scene: NamespaceFixture) -> AsyncIterator[NamespaceFixture]:
    """The scene of a test that makes PodGroups."""
    yield scene
    await clear_groups(scene)


async def crowd(scene: NamespaceFixture, count: int) -> list[str]:
    """So many pods of a group that share a device which three nodes reach; returns the nodes."""
    nodes = [await scene.node(suffix) for suffix in ("a", "b", "c")]
    await scene.publish(scene.slice_of("fabric", allNodes=True, pool="fabric", devices=[device("domain-0")]))
    await scene.claim(CLAIM)
    await create_group(scene, GROUP, claims={"gpu": CLAIM})
    names = (f"worker-{index}" for index in range(count))
    await asyncio.gather(*(member(scene, GROUP, name, claim=CLAIM, cpu="1m") for name in names))
    return nodes


async def set_reservation(world: InstalledExtender, setting: GroupEntryPolicy, **scheduling: str) -> None:
    """Restart the extender with this setting of whose entries kubelets accept, and with others of scheduling."""
    settings = {"RESERVE_FOR_POD_GROUPS": setting.value, **scheduling}
    await world.extender.restart(
        environment={f"DRA_EXTENDER_SCHEDULING__{name}": value for name, value in settings.items()}
    )
    world.kubelets = setting


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
            await asyncio.sleep(1)

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
        return len(pods) == CROWD and all(map(is_started, pods))

    await scene.api.wait_for(done, seconds, f"{CROWD} pods have started")


async def test_300_pods_of_a_podgroup_share_a_claim_with_shipped_defaults_where_one_kubelet_of_three_has_the_gate(
    groups: NamespaceFixture, world: InstalledExtender
) -> None:
    """Nobody stays where he is not started: pods on trial get their own entries in time, and the group's serves the able node.

    What a trial reads a tenant cannot write: conditions of pods, entries of claims, labels of nodes.
    """
    role = json.loads(world.cluster.kubectl("get", "clusterrole", "edit", "--output=json"))
    writable = {
        resource
        for rule in role["rules"]
        if {"update", "patch", "*"} & {*rule["verbs"]}
        for resource in rule.get("resources", ())
    }
    assert "pods" in writable
    assert not writable & {"pods/status", "pods/*", "resourceclaims/status", "resourceclaims/binding", "nodes", "*"}

    nodes = await crowd(groups, CROWD)
    async with kubelets(groups, nodes[:1]):
        await all_started(groups, MANY_SECONDS)
    entries = await reserved(groups)
    assert len(entries) <= MOST
    assert sum(each["resource"] == "podgroups" for each in entries) == 1
    own = {each["name"] for each in entries}
    where = await bound_members(groups)
    assert all(name in own for name, node in where.items() if node != nodes[0])
    await world.wait_for_metric("group_trials_total", 2, outcome="unable")
    await expect_rest(groups.api, world.kubelets)
    await groups.api.delete_collection(PODS, groups.name, grace_seconds=0)
    await delete_group(groups, GROUP)
    await groups.wait_until_free(MANY_SECONDS)


async def test_pod_257_is_refused_in_words_where_kubelets_accept_no_groups(
    groups: NamespaceFixture, world: InstalledExtender
) -> None:
    """It takes the place of one that goes."""
    await set_reservation(world, GroupEntryPolicy.NEVER)
    await crowd(groups, MOST)

    async def all_bound() -> bool:
        return len(await bound_members(groups)) == MOST

    await groups.api.wait_for(all_bound, MANY_SECONDS, "256 members are bound")
    entries = await reserved(groups)
    assert {each["name"] for each in entries} == (await bound_members(groups)).keys()
    assert {each["resource"] for each in entries} == {"pods"}
    await member(groups, GROUP, "one-more", claim=CLAIM, cpu="1m")
    await groups.wait_until_unschedulable("one-more", "is reserved by 256 pods already")
    await groups.delete_pod("worker-0")
    await groups.wait_until_bound("one-more")


async def test_device_of_a_group_is_given_back_while_all_wait_and_kept_for_the_group_once_a_member_is_bound(
    groups: NamespaceFixture, world: InstalledExtender
) -> None:
    """Failing devices (KEP-5007) of a claim that is reserved for its PodGroup: only the rules of groups free them.

    The reservation outlives all pods, and ends with the group.
    """
    backoff = {"DEVICE_BACKOFF_SECONDS": "60", "RECLAIM_GRACE_SECONDS": "1"}
    await set_reservation(world, GroupEntryPolicy.ALWAYS, **backoff)
    driver = FakeDriver(groups)
    await fabric(groups, "gpu-0", "gpu-1")
    await groups.template("one")
    uid = await create_group(groups, "team", templates={"gpu": "one"})
    reservation = {"apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": "team", "uid": uid}
    for name in ("first", "second"):
        await member(groups, "team", name, template="one")

    async def made() -> list[Object]:
        return await groups.api.list(RESOURCE_CLAIMS, groups.name)

    (claim,) = await groups.api.wait_for(made, MANY_SECONDS, "the claim of the group is made")
    named = claim["metadata"]["name"]
    failed = await allocated_claim(groups, named)
    assert failed["status"]["reservedFor"] == [reservation]
    await wait_for_any_event(groups, "second", f"waits for {ATTACHED}")
    await driver.report(failed, FAILED, message="no free port")

    again = await allocated_claim(groups, named, after=failed)
    assert devices_of(again) != devices_of(failed)
    assert again["status"]["reservedFor"] == [reservation]
    await driver.report(again, ATTACHED)
    assert await groups.wait_until_bound("first") == await groups.wait_until_bound("second")

    heard = await world.metric("watch_events_total", kind="resourceclaims", type="MODIFIED")
    await driver.report(again, FAILED, message="cable pulled")
    await world.wait_for_metric("watch_events_total", heard + 1, kind="resourceclaims", type="MODIFIED")
    await member(groups, "team", "late", template="one")
    await groups.wait_until_unschedulable("late", "not ready in time, and other pods use it")
    await groups.delete_pod("first")
    await asyncio.sleep(QUIET_SECONDS)
    kept = await groups.stored_claim(named)
    assert (devices_of(kept), kept["status"]["reservedFor"]) == (devices_of(again), [reservation])

    await groups.delete_pod("second")
    anew = await allocated_claim(groups, named, after=again)
    await driver.report(anew, ATTACHED)
    await groups.wait_until_bound("late")
    await groups.delete_pod("late")
    await asyncio.sleep(QUIET_SECONDS)
    kept = await groups.stored_claim(named)
    assert (devices_of(kept), kept["status"]["reservedFor"]) == (devices_of(anew), [reservation])
    await delete_group(groups, "team")
    await groups.wait_until_free()
