"""Claims of PodGroups that the service makes beside a kube-controller-manager without the gate DRAWorkloadResourceClaims."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
import pytest_asyncio
from dra_extender.model.allocation_snapshot import SNAPSHOT_ANNOTATION
from dra_extender.model.templated_claim import ENTRY_ANNOTATION

from tests.controlplane import objects
from tests.controlplane.objects import Object, device
from tests.controlplane.options import default_gates
from tests.controlplane.planes import BROKEN
from tests.controlplane.resources import POD_GROUPS, RESOURCE_CLAIM_TEMPLATES, RESOURCE_CLAIMS
from tests.support.e2e.installed_extender import InstalledExtender, Setup
from tests.support.e2e.namespace_fixture import SECONDS, NamespaceFixture
from tests.support.e2e.scenes import carry_out_apart
from tests.support.e2e.workloads import clear_groups, create_group, delete_group, member

GATE = "DRAWorkloadResourceClaims"
WITHOUT_CLAIMS_OF_GROUPS = replace(BROKEN, controller_manager_feature_gates=default_gates() | {GATE: False})
pytestmark = [pytest.mark.e2e, pytest.mark.plane(WITHOUT_CLAIMS_OF_GROUPS), pytest.mark.asyncio(loop_scope="module")]

GRACE = 1
MEMBERS = 5


@pytest.fixture(scope="module")
def setup() -> Setup:
    return Setup(
        environment={
            "DRA_EXTENDER_SCHEDULING__RESERVE_FOR_POD_GROUPS": "always",
            "DRA_EXTENDER_SCHEDULING__GROUP_CLAIMS_ENABLED": "true",
            "DRA_EXTENDER_SCHEDULING__GROUP_CLAIMS_GRACE_SECONDS": str(GRACE),
            "DRA_EXTENDER_SCHEDULING__RECLAIM_GRACE_SECONDS": "1",
        },
        applied=("../components/group-claims/rbac", "admission-policy"),
    )


async def furnish(scene: NamespaceFixture, *devices: str) -> None:
    """Two nodes that reach these devices, and a template for one."""
    for suffix in ("a", "b"):
        await scene.node(suffix)
    fabric = scene.slice_of("fabric", allNodes=True, pool="fabric", devices=[device(name) for name in devices])
    await scene.publish(fabric)
    await scene.template("domain")


@pytest_asyncio.fixture(loop_scope="module")
async def groups(scene: NamespaceFixture) -> AsyncIterator[NamespaceFixture]:
    """The scene of a test that makes PodGroups, on two nodes that reach one device."""
    await furnish(scene, "domain-0")
    yield scene
    await clear_groups(scene)


async def recorded(scene: NamespaceFixture, group: str) -> dict[str, str]:
    """What the status of a PodGroup says of its claims."""
    found = (await scene.api.get(POD_GROUPS, group, scene.name))["status"].get("resourceClaimStatuses", ())
    return {each["name"]: each["resourceClaimName"] for each in found}


async def claims(scene: NamespaceFixture) -> list[Object]:
    return await scene.api.list(RESOURCE_CLAIMS, scene.name)


async def none_left(scene: NamespaceFixture) -> None:
    """Waits until there are no claims."""

    async def gone() -> bool:
        return not await claims(scene)

    await scene.api.wait_for(gone, 2 * SECONDS, "all claims are deleted")


async def test_group_is_bound_on_one_claim_and_leaves_it_to_the_next_group(
    groups: NamespaceFixture, world: InstalledExtender
) -> None:
    """Also when the service is killed as soon as the claim is made, and when the group is deleted before its pods: the API server
    protects it, and its reservation stays with it."""
    uid = await create_group(groups, "workers", templates={"gpu": "domain"})
    names = [f"worker-{index}" for index in range(MEMBERS)]
    await member(groups, "workers", names[0], template="domain")

    async def made() -> bool:
        return bool(await claims(groups))

    await groups.api.wait_for(made, SECONDS, "the claim is made")
    world.extender.kill()
    await asyncio.gather(*(member(groups, "workers", name, template="domain") for name in names[1:]))
    await world.extender.start()
    for name in names:
        await groups.wait_until_bound(name, 2 * SECONDS)
    (claim,) = await claims(groups)
    consumer = {"apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": "workers", "uid": uid}
    assert claim["status"]["reservedFor"] == [consumer]
    assert await recorded(groups, "workers") == {"gpu": claim["metadata"]["name"]}
    assert {each["manager"] for each in claim["metadata"]["managedFields"]} == {"dra-extender"}
    await member(groups, "workers", "late", template="domain")
    await groups.wait_until_bound("late")

    await create_group(groups, "next", templates={"gpu": "domain"})
    await member(groups, "next", "other", template="domain")
    await groups.wait_until_unschedulable("other", "matching devices are in use", again=True)
    assert len(await claims(groups)) == 2
    await groups.api.delete(POD_GROUPS, "workers", groups.name)
    await asyncio.gather(*(groups.delete_pod(name) for name in names))
    await asyncio.sleep(3 * GRACE)
    assert await groups.allocated() == ["fabric/domain-0"]
    assert await groups.node_of("other") == ""
    await groups.delete_pod("late")
    await groups.wait_until_bound("other", 2 * SECONDS)
    assert len(await claims(groups)) == 1
    await world.wait_for_metric("reclaims_total", 1, reason="group_gone", outcome="done")
    await groups.delete_pod("other")
    await delete_group(groups, "next")
    await none_left(groups)


async def beside_claims_of_pods(scene: NamespaceFixture) -> None:
    """kube-controller-manager gives up on the pod's own claim at the group's entry, whatever the order."""
    await furnish(scene, "a", "b", "c")
    await create_group(scene, "workers", templates={"gpu": "domain"})
    for name, order in (("before", ("own", "gpu")), ("behind", ("gpu", "own"))):
        await member(scene, "workers", name, templates=dict.fromkeys(order, "domain"))
    for name in ("before", "behind"):
        await scene.wait_until_bound(name)
    assert len(await scene.allocated()) == 3
    await clear_groups(scene)


async def forged_template(scene: NamespaceFixture) -> None:
    """A snapshot of a template never arrives, also beside the shipped policy, from which the service's account is exempt."""
    await furnish(scene, "domain-0")
    forged = objects.resource_claim_template("forged", scene.name, scene.request())
    forged["spec"]["metadata"] = {"annotations": {SNAPSHOT_ANNOTATION: "forged", "note": "kept"}}
    await scene.api.create(RESOURCE_CLAIM_TEMPLATES, forged)
    await create_group(scene, "forgers", templates={"gpu": "forged"})

    async def made() -> list[Object]:
        return await claims(scene)

    (claim,) = await scene.api.wait_for(made, SECONDS, "a claim is made for the group")
    assert claim["metadata"]["annotations"] == {"note": "kept", ENTRY_ANNOTATION: "gpu"}
    await member(scene, "forgers", "forger", template="forged")
    await scene.wait_until_bound("forger")
    (claim,) = await claims(scene)
    assert "forged" not in claim["metadata"]["annotations"][SNAPSHOT_ANNOTATION]
    await clear_groups(scene)


async def test_pods_get_claims_of_their_own_beside_the_groups_and_no_forged_snapshot(scene: NamespaceFixture) -> None:
    await carry_out_apart(scene, {"own": beside_claims_of_pods, "forged": forged_template})


async def its_controller_works(scene: NamespaceFixture) -> None:
    """Waits until kube-controller-manager makes claims: it is healthy before, and has the grace of the service for its own."""
    before = len(await claims(scene))
    await scene.pod("probe", template="domain", scheduler="nobody")

    async def made() -> bool:
        return len(await claims(scene)) > before

    await scene.api.wait_for(made, SECONDS, "kube-controller-manager makes the claim of a pod")
    await scene.delete_pod("probe")

    async def gone() -> bool:
        return len(await claims(scene)) == before

    await scene.api.wait_for(gone, SECONDS, "the claim of the pod is gone")


async def test_it_stops_when_the_gate_is_switched_on_and_the_other_controller_carries_on(
    groups: NamespaceFixture, world: InstalledExtender
) -> None:
    """What was made is used on; the next group's claim is kube-controller-manager's, and one alone.

    Before, kube-controller-manager knows no PodGroups at all (without GenericWorkload): it leaves the protection finalizer on.
    """
    await world.cluster.restart_controller_manager({})
    await create_group(groups, "early", templates={"gpu": "domain"})
    await delete_group(groups, "early")
    await none_left(groups)
    await world.cluster.restart_controller_manager(default_gates() | {GATE: False})
    world.tolerated.append("left to another controller")
    await create_group(groups, "old", templates={"gpu": "domain"})
    await member(groups, "old", "a", template="domain")
    await groups.wait_until_bound("a")
    (before,) = await claims(groups)
    await world.cluster.restart_controller_manager(default_gates())
    await its_controller_works(groups)
    await create_group(groups, "new", templates={"gpu": "domain"})

    async def stopped() -> bool:
        return await world.metric("group_claims_refused") == 1

    await groups.api.wait_for(stopped, SECONDS, "the service has stopped to make claims")
    assert "another controller makes the claims" in await world.page("/readyz?verbose")
    await asyncio.sleep(GRACE + 2)
    after = await claims(groups)
    (new,) = (each for each in after if each["metadata"]["name"] != before["metadata"]["name"])
    assert await recorded(groups, "new") == {"gpu": new["metadata"]["name"]}
    assert "generateName" in new["metadata"]
    await world.extender.restart()
    await create_group(groups, "third", templates={"gpu": "domain"})
    await groups.api.wait_for(stopped, SECONDS, "the service has stopped to make claims again")
    assert len(await claims(groups)) == 3
    await groups.delete_pod("a")
    for name in ("old", "new", "third"):
        await delete_group(groups, name)
    await none_left(groups)
