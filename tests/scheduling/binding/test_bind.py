import asyncio

import pytest
from dra_extender.model.allocation_snapshot import SNAPSHOT_ANNOTATION
from dra_extender.model.resource_claim import FINALIZER
from dra_extender.scheduling.ports.cluster import ServerUnavailableError
from dra_extender.scheduling.ports.errors import RetryableError
from dra_extender.simulator.apiserver.objects import Json, Key, StoredKind

from tests.support.scheduling.seam import Seam, restart
from tests.support.scheduling.world import InMemoryExtender


@pytest.fixture
def world() -> InMemoryExtender:
    return InMemoryExtender().furnish(n1=1, n2=1, p1="c1")


async def test_bind_writes_the_held_devices_with_finalizer_snapshot_and_reservation(world: InMemoryExtender) -> None:
    await world.filter("p1", "n1", "n2")
    await world.bind_through("p1", "n2")

    claim = world.claim("c1")
    assert world.devices("c1") == ["n2/gpu-0"]
    assert claim["metadata"]["finalizers"] == [FINALIZER]
    assert SNAPSHOT_ANNOTATION in claim["metadata"]["annotations"]
    assert [each["uid"] for each in claim["status"]["reservedFor"]] == [world.uid("p1")]
    assert claim["status"]["allocation"]["allocationTimestamp"].endswith("Z")
    assert world.node_of("p1") == "n2"
    assert len(world.ledger.holds) == 0


async def test_a_bound_pod_binds_again_without_any_write(world: InMemoryExtender) -> None:
    async with world.watching():
        await world.bind("p1", "n1")
        version = world.cluster.store.version
        await world.cluster.watch.caught_up()
        await world.bind("p1", "n1")

    assert world.cluster.store.version == version


async def test_a_bound_pod_is_not_bound_elsewhere(world: InMemoryExtender) -> None:
    async with world.watching():
        await world.bind("p1", "n1")
        await world.cluster.watch.caught_up()
        with pytest.raises(RetryableError, match="bound to node n1 already"):
            await world.bind("p1", "n2")


async def test_a_pod_deleted_between_filter_and_bind_leaves_nothing_held(world: InMemoryExtender) -> None:
    await world.filter("p1", "n1", "n2")
    uid = world.uid("p1")
    world.delete(StoredKind.POD, "p1")

    with pytest.raises(RetryableError, match="does not exist any more"):
        await world.extender.bind("default", "p1", uid, "n1", asyncio.Event())

    assert len(world.ledger.holds) == 0
    assert world.devices("c1") == []


async def test_the_metric_of_held_claims_follows_what_ends_without_a_call(world: InMemoryExtender) -> None:
    await world.filter("p1", "n1", "n2")
    assert await world.metric("dra_extender_held_claims") == 1
    world.delete(StoredKind.POD, "p1")
    assert await world.metric("dra_extender_held_claims") == 0


async def test_a_pod_state_that_only_kube_scheduler_has_seen_yet_does_not_spoil_the_bind(
    world: InMemoryExtender,
) -> None:
    """The name of the generated claim came with the filter call; our own pod watch is behind when bind is called."""
    made = {"name": "gpu", "resourceClaimTemplateName": "template"}
    spec = {"containers": [{"name": "main", "image": "pause"}], "resourceClaims": [made]}
    world.create(StoredKind.POD, {"metadata": {"name": "p2"}, "spec": spec})
    world.add_claim("p2-gpu-x")

    def own(claim: Json) -> None:
        owner = {"apiVersion": "v1", "kind": "Pod", "name": "p2", "uid": world.uid("p2")}
        claim["metadata"]["ownerReferences"] = [{**owner, "controller": True}]

    def name(pod: Json) -> None:
        pod["status"]["resourceClaimStatuses"] = [{"name": "gpu", "resourceClaimName": "p2-gpu-x"}]

    world.cluster.store.edit_unchecked(Key(StoredKind.CLAIM, "default", "p2-gpu-x"), own)
    world.sync()
    world.silence("pods")
    world.cluster.store.edit_unchecked(Key(StoredKind.POD, "default", "p2"), name)
    assert list((await world.filter("p2", "n1")).fitting) == ["n1"]
    await world.bind_through("p2", "n1")

    assert world.devices("p2-gpu-x") == ["n1/gpu-0"]


async def test_a_second_pod_of_a_shared_claim_is_reserved_on_the_same_devices(world: InMemoryExtender) -> None:
    world.add_pod("p2", "c1")
    async with world.watching():
        await asyncio.gather(world.bind("p1", "n1"), world.bind("p2", "n1"))

    assert world.devices("c1") == ["n1/gpu-0"]
    assert len(world.claim("c1")["status"]["reservedFor"]) == 2
    assert world.node_of("p2") == "n1"


@pytest.mark.parametrize("step", ["update", "update_status"])
@pytest.mark.parametrize("after", [False, True])
async def test_an_unknown_outcome_of_a_write_is_read_back_and_finished(
    world: InMemoryExtender, step: str, *, after: bool
) -> None:
    claims = Seam(world.cluster.claims)
    (claims.after if after else claims.before)(step, ServerUnavailableError("connection reset"))
    restart(world, claims=claims)
    await world.bind_through("p1", "n1")

    assert world.devices("c1") == ["n1/gpu-0"]
    assert world.node_of("p1") == "n1"


@pytest.mark.parametrize("last", ["update", "update_status", "bind"])
async def test_a_process_that_dies_between_two_writes_is_resumed_by_the_next_one(
    world: InMemoryExtender, last: str
) -> None:
    """`last` is the write that it does not get to make any more."""
    claims, pods = Seam(world.cluster.claims), Seam(world.cluster.pods)
    (pods if last == "bind" else claims).before(last, asyncio.Event().wait)
    restart(world, claims=claims, pods=pods)
    await world.killed("p1", "n1")
    assert world.devices("c1") == (["n1/gpu-0"] if last == "bind" else [])

    restart(world)
    async with world.watching():
        answer = await world.filter("p1", "n1", "n2")
        assert set(answer.fitting) == ({"n1"} if last == "bind" else {"n1", "n2"})
        await world.bind("p1", "n1")

    assert world.devices("c1") == ["n1/gpu-0"]
    assert world.node_of("p1") == "n1"
