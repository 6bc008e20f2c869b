"""Claims of PodGroups on kubelets with and without the gate DRAWorkloadResourceClaims, as docs/concepts/workloads.md has them."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Final

import pytest
import pytest_asyncio
from dra_extender.ledger.pod_groups import START_LABEL
from dra_extender.model.resource_claim import OWN_ENTRIES

from tests.controlplane.cluster import DEFAULT_OPTIONS
from tests.controlplane.node.options import WITH_POD_GROUP_CLAIMS, WITHOUT_POD_GROUP_CLAIMS, NodeOptions
from tests.controlplane.objects import Object, device
from tests.controlplane.options import ControlPlaneOptions, default_gates
from tests.controlplane.resources import NODES, RESOURCE_CLAIMS, RESOURCE_SLICES
from tests.support.e2e.installed_extender import Setup
from tests.support.e2e.workloads import create_group, delete_group, member
from tests.support.node.nodes import NodesSetup
from tests.support.node.pod_scene import RUN_SECONDS, PodScene

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="module")]

GATE: Final = "DRAWorkloadResourceClaims"
ABLE: Final = "127.0.0.2"
UNABLE: Final = "127.0.0.3"
TRIAL_SECONDS: Final = 20
FABRIC: Final = 100
"""The index of the device that both nodes reach."""
NODES_OF_BOTH_KINDS: Final = {
    ABLE: NodeOptions(WITH_POD_GROUP_CLAIMS, "admin"),
    UNABLE: NodeOptions(WITHOUT_POD_GROUP_CLAIMS, "admin"),
}
PREFIX: Final = "DRA_EXTENDER_SCHEDULING__"
RESERVATION: Final = f"{PREFIX}RESERVE_FOR_POD_GROUPS"
WORLDS: Final = {
    "always": Setup(environment={RESERVATION: "always"}),
    "never": Setup(environment={RESERVATION: "never"}),
    "auto": Setup(environment={f"{PREFIX}POD_GROUP_TRIAL_SECONDS": str(TRIAL_SECONDS)}),
    "fields dropped": Setup(),
    "made by the service": Setup(
        environment={
            f"{PREFIX}GROUP_CLAIMS_ENABLED": "true",
            f"{PREFIX}GROUP_CLAIMS_GRACE_SECONDS": "1",
        },
        applied=("../components/group-claims/rbac",),
    ),
}
WITHOUT_GATE: Final = default_gates() | {GATE: False}
PLANES: Final = {
    "fields dropped": ControlPlaneOptions(feature_gates=WITHOUT_GATE),
    "made by the service": ControlPlaneOptions(controller_manager_feature_gates=WITHOUT_GATE),
}


def where(*worlds: str) -> pytest.MarkDecorator:
    """The test's worlds."""
    return pytest.mark.parametrize("setup", worlds, indirect=True, scope="module")


@pytest.fixture(scope="module")
def setup(request: pytest.FixtureRequest) -> NodesSetup:
    return NodesSetup(NODES_OF_BOTH_KINDS, WORLDS[request.param], PLANES.get(request.param, DEFAULT_OPTIONS))


@pytest_asyncio.fixture(loop_scope="module")
async def groups(scene: PodScene) -> AsyncIterator[PodScene]:
    """A device that both nodes reach, a claim for it and a template of such claims."""
    shared = device("domain-0", attributes={"index": FABRIC})
    await scene.publish(scene.slice_of("fabric", allNodes=True, pool="fabric", devices=[shared]))
    wanted = f"{scene.attribute('index')} == {FABRIC}"
    await scene.claim("named", wanted)
    await scene.template("generated", wanted)
    yield scene
    await scene.clear()
    await scene.api.delete(RESOURCE_SLICES, f"{scene.name}-fabric")


async def member_on(scene: PodScene, node: str, name: str, **fields: str) -> None:
    """A member of the group `workers` for one node."""
    await member(scene, "workers", name, nodeSelector={"kubernetes.io/hostname": node}, **fields)


async def entries(scene: PodScene, name: str) -> list[tuple[str, str]]:
    """For whom the pod's claim is reserved: kind and name."""
    reserved = (await scene.claim_of(name))["status"].get("reservedFor", ())
    return sorted((each["resource"], each["name"]) for each in reserved)


async def expect_both_started(scene: PodScene, **fields: str) -> None:
    """A member on each node runs with the device."""
    for node, name in ((ABLE, "one"), (UNABLE, "two")):
        await member_on(scene, node, name, **fields)
    await expect_started(scene, "one", "two")


async def expect_started(scene: PodScene, *names: str) -> None:
    """These pods run with the device."""
    for name in names:
        assert list((await scene.expect_devices(name)).values()) == ["fabric/domain-0"]


async def expect_refused(scene: PodScene, name: str, *words: str) -> None:
    """The pod is bound to the node whose kubelet lacks the gate, which says so and starts nothing."""
    assert await scene.wait_until_bound(name) == UNABLE

    async def said() -> bool:
        notes = [str(each.get("note")) for each in await scene.events(name) if each.get("reason") == REFUSED]
        return any(all(word in note for word in words) for note in notes)

    await scene.api.wait_for(said, RUN_SECONDS, f"the kubelet says of {name}: {words}")
    statuses = (await scene.read(name))["status"].get("containerStatuses", ())
    assert not any("running" in each["state"] or "terminated" in each["state"] for each in statuses)


REFUSED: Final = "FailedPrepareDynamicResources"


@where("always")
async def test_members_start_under_the_one_entry_of_their_group_where_the_gate_is_on(groups: PodScene) -> None:
    await create_group(groups, "workers", claims={"gpu": "named"})
    for name in ("one", "two"):
        await member_on(groups, ABLE, name, claim="named")
    await expect_started(groups, "one", "two")
    assert await entries(groups, "one") == [("podgroups", "workers")]


@where("always")
async def test_a_member_with_its_groups_entry_alone_does_not_start_where_the_gate_is_off(groups: PodScene) -> None:
    await create_group(groups, "workers", claims={"gpu": "named"})
    await member_on(groups, UNABLE, "one", claim="named")
    await expect_refused(groups, "one", "is not allowed to use ResourceClaim named")
    assert await entries(groups, "one") == [("podgroups", "workers")]


@where("never", "auto", "fields dropped")
async def test_members_with_entries_of_their_own_start_on_both_nodes(groups: PodScene) -> None:
    """Also where no node is marked, and where the API server drops the claims of groups."""
    await create_group(groups, "workers", claims={"gpu": "named"})
    await expect_both_started(groups, claim="named")
    assert await entries(groups, "one") == [("pods", "one"), ("pods", "two")]


@where("never")
async def test_a_member_with_a_claim_from_its_groups_template_is_not_bound(groups: PodScene) -> None:
    await create_group(groups, "workers", templates={"gpu": "generated"})
    await member_on(groups, ABLE, "one", template="generated")
    await groups.wait_until_unschedulable("one", "was generated for a PodGroup")
    assert await groups.node_of("one") == ""


@asynccontextmanager
async def reserving(scene: PodScene, now: str, before: str) -> AsyncIterator[None]:
    """The extender has been restarted with another setting."""
    await scene.world.extender.restart(environment={RESERVATION: now})
    try:
        yield
    finally:
        await scene.world.extender.restart(environment={RESERVATION: before})


@where("always")
async def test_after_a_downgrade_pods_start_with_entries_beside_that_of_their_group_which_stays(
    groups: PodScene,
) -> None:
    await create_group(groups, "workers", claims={"gpu": "named"})
    await member_on(groups, ABLE, "one", claim="named")
    await groups.wait_until_running("one")
    async with reserving(groups, "never", before="always"):
        await member_on(groups, UNABLE, "two", claim="named")
        await expect_started(groups, "two")
        assert await entries(groups, "two") == [("podgroups", "workers"), ("pods", "two")]
        for name in ("one", "two"):
            await groups.delete_pod(name)
            await groups.wait_until_gone(name)
        assert await groups.allocated() == ["fabric/domain-0"]
        await delete_group(groups, "workers")
        await groups.wait_until_free()


@where("always")
async def test_a_group_that_is_created_again_under_its_name_has_an_entry_of_its_own(groups: PodScene) -> None:
    uids = []
    for name in ("one", "two"):
        uids.append(await create_group(groups, "workers", claims={"gpu": "named"}))
        await member_on(groups, ABLE, name, claim="named")
        await expect_started(groups, name)
        (entry,) = (await groups.claim_of(name))["status"]["reservedFor"]
        assert entry["uid"] == uids[-1]
        await groups.delete_pod(name)
        await groups.wait_until_gone(name)
        await delete_group(groups, "workers")
    assert uids[0] != uids[1]


async def change_api_server(scene: PodScene, options: ControlPlaneOptions) -> None:
    """Restart the API server with these options, and with it the extender, which an API server that starts may forbid much."""
    cluster, extender = scene.world.cluster, scene.world.extender
    await extender.terminate()
    cluster.options = options
    await cluster.restart_apiserver()
    await extender.start()


@asynccontextmanager
async def without_pod_groups(scene: PodScene) -> AsyncIterator[None]:
    """The API server serves no PodGroups."""
    before = scene.world.cluster.options
    await change_api_server(scene, replace(before, feature_gates={}, runtime_config={}))
    try:
        yield
    finally:
        await change_api_server(scene, before)


@where("always")
async def test_without_pod_groups_pods_start_with_entries_beside_that_of_a_group(groups: PodScene) -> None:
    await create_group(groups, "workers", claims={"gpu": "named"})
    await member_on(groups, ABLE, "one", claim="named")
    await groups.wait_until_running("one")
    async with without_pod_groups(groups):
        for node, name in ((ABLE, "two"), (UNABLE, "three")):
            await member_on(groups, node, name, claim="named")
            await expect_started(groups, name)
        assert await entries(groups, "two") == [("podgroups", "workers"), ("pods", "three"), ("pods", "two")]


@where("never")
async def test_after_an_upgrade_a_group_is_added_once_and_pods_with_entries_of_their_own_keep_them(
    groups: PodScene,
) -> None:
    await create_group(groups, "workers", claims={"gpu": "named"})
    await member_on(groups, UNABLE, "one", claim="named")
    await groups.wait_until_running("one")
    async with reserving(groups, "always", before="never"):
        for name in ("two", "three"):
            await member_on(groups, ABLE, name, claim="named")
            await expect_started(groups, name)
            assert await entries(groups, name) == [("podgroups", "workers"), ("pods", "one")]


@where("auto")
async def test_a_member_on_a_marked_node_starts_with_the_entry_of_its_group(groups: PodScene) -> None:
    await create_group(groups, "workers", claims={"gpu": "named"})
    await label(groups, ABLE, "true")
    try:
        await member_on(groups, ABLE, "one", claim="named")
        await expect_started(groups, "one")
        assert await entries(groups, "one") == [("podgroups", "workers")]
    finally:
        await label(groups, ABLE, None)


@where("auto")
async def test_a_claim_from_the_groups_template_is_its_groups_and_serves_where_the_gate_is_on_alone(
    groups: PodScene,
) -> None:
    """Elsewhere the kubelet refuses it whatever its reservation is, because the pod is not its owner."""
    await create_group(groups, "workers", templates={"gpu": "generated"})
    await member_on(groups, ABLE, "one", template="generated")
    await expect_started(groups, "one")
    assert await entries(groups, "one") == [("podgroups", "workers")]
    await member_on(groups, UNABLE, "two", template="generated")
    await expect_refused(groups, "two", "was not created for Pod")
    claim = await groups.claim_of("two")
    uid = (await groups.read("two"))["metadata"]["uid"]
    own = {"resource": "pods", "name": "two", "uid": uid}
    await reserve(groups, claim["metadata"]["name"], [*claim["status"]["reservedFor"], own])
    before = await refusals(groups, "two")

    async def again() -> bool:
        return await refusals(groups, "two") > before

    await groups.api.wait_for(again, RUN_SECONDS, "the kubelet refuses the pod again")
    assert (await groups.read("two"))["status"]["phase"] == "Pending"


@asynccontextmanager
async def crowded(scene: PodScene) -> AsyncIterator[None]:
    """The named claim has 200 entries: that of a member that runs, and others that no controller takes away."""
    await create_group(scene, "workers", claims={"gpu": "named"})
    await member_on(scene, ABLE, "first", claim="named")
    await scene.wait_until_running("first")
    others = [
        {"apiGroup": "example.com", "resource": "users", "name": f"u{n}", "uid": f"u{n}"} for n in range(OWN_ENTRIES)
    ]
    held = (await scene.stored_claim("named"))["status"]["reservedFor"]
    await reserve(scene, "named", [*held, *others[len(held) :]])
    try:
        yield
    finally:
        stored = (await scene.stored_claim("named"))["status"]["reservedFor"]
        await reserve(scene, "named", [each for each in stored if each["resource"] != "users"])


async def entries_beside_others(scene: PodScene) -> list[tuple[str, str]]:
    return [each for each in await entries(scene, "first") if each[0] != "users"]


@where("auto")
async def test_behind_200_entries_a_pod_finds_out_on_each_node_and_one_that_did_not_start_gets_its_own(
    groups: PodScene,
) -> None:
    async with crowded(groups):
        await expect_both_started(groups, claim="named")
        found = await entries_beside_others(groups)
        assert found == [("podgroups", "workers"), ("pods", "first"), ("pods", "two")]
        assert await groups.world.metric("group_trials_total", outcome="unable") == 1


@where("auto")
async def test_behind_200_entries_a_pod_on_a_node_that_is_marked_as_unable_has_its_own_at_once(
    groups: PodScene,
) -> None:
    before = await groups.world.metric("group_trials_total")
    await label(groups, UNABLE, "false")
    try:
        async with crowded(groups):
            await member_on(groups, UNABLE, "two", claim="named")
            await expect_started(groups, "two")
            assert await entries_beside_others(groups) == [("pods", "first"), ("pods", "two")]
            assert await groups.world.metric("group_trials_total") == before
    finally:
        await label(groups, UNABLE, None)


@where("fields dropped")
async def test_a_template_makes_a_claim_for_each_member_where_the_api_server_drops_the_claims_of_groups(
    groups: PodScene,
) -> None:
    await groups.template("each")
    await create_group(groups, "workers", templates={"gpu": "each"})
    for node, name in ((ABLE, "one"), (UNABLE, "two")):
        await member_on(groups, node, name, template="each")
    for node, name in ((ABLE, "one"), (UNABLE, "two")):
        (found,) = (await groups.expect_devices(name)).values()
        assert found.partition("/")[0] == node or found == "fabric/domain-0"
        assert await entries(groups, name) == [("pods", name)]


@where("made by the service")
async def test_a_claim_that_the_service_makes_for_a_group_serves_where_the_gate_is_on_alone(groups: PodScene) -> None:
    await create_group(groups, "workers", templates={"gpu": "generated"})
    await member_on(groups, ABLE, "one", template="generated")
    await expect_started(groups, "one")
    (claim,) = [
        each for each in await groups.api.list(RESOURCE_CLAIMS, groups.name) if each["metadata"]["name"] != "named"
    ]
    assert claim["metadata"]["ownerReferences"][0]["kind"] == "PodGroup"
    await member_on(groups, UNABLE, "two", template="generated")
    await expect_refused(groups, "two", "was not created for Pod")


async def label(scene: PodScene, node: str, value: str | None) -> None:
    """Mark the node, or take the mark away."""
    await scene.api.patch(NODES, node, {"metadata": {"labels": {START_LABEL: value}}})


async def reserve(scene: PodScene, claim: str, reserved: list[Object]) -> None:
    change = {"status": {"reservedFor": reserved}}
    await scene.api.patch(RESOURCE_CLAIMS, claim, change, scene.name, subresource="status")


async def refusals(scene: PodScene, name: str) -> int:
    """How often the kubelet has said that it cannot prepare the pod's devices."""
    found = [each for each in await scene.events(name) if each.get("reason") == REFUSED]
    return sum(
        int(each.get("deprecatedCount") or 1) + int((each.get("series") or {}).get("count", 0)) for each in found
    )
