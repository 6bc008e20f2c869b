"""What others do to pods, claims, nodes and the API server while a bind is at work: it ends well or in words, nothing is lost."""

import asyncio

import pytest
from dra_extender.ledger.sinks import sinks_of
from dra_extender.model.resource_claim import FINALIZER
from dra_extender.scheduling.ports.cluster import ConflictError, RequestRejectedError, ServerUnavailableError
from dra_extender.scheduling.ports.errors import RetryableError
from dra_extender.simulator.apiserver.objects import Key, StoredKind

from tests.support.scheduling.adversity import edit, node_of, troubled_world
from tests.support.scheduling.seam import Seam, restart
from tests.support.scheduling.world import DRIVER, InMemoryExtender

pytestmark = pytest.mark.virtual_time
LAG = 0.2


@pytest.fixture
def world() -> InMemoryExtender:
    return troubled_world()


async def test_no_bind_goes_past_a_watch_that_is_behind_however_often_it_is_repeated() -> None:
    """Another writer may have allocated the same before; only the watch would tell."""
    world = troubled_world(LAG)
    for _ in range(3):
        with pytest.raises(RetryableError, match="the claim watch is behind"):
            await world.bind("p1", "n1")
    with pytest.raises(RetryableError, match="the claim watch is behind"):
        await world.bind("p2", "n1")
    assert (node_of(world), node_of(world, "p2")) == ("", "")

    async with world.watching():
        await asyncio.gather(world.bind("p1", "n1"), world.bind("p2", "n1"))
    assert world.devices("c1") == ["n1/gpu-0"]


async def test_a_watch_that_comes_back_brings_the_allocation_to_which_a_repeated_bind_gives_way() -> None:
    world = troubled_world(LAG)
    world.add_claim("foreign")
    world.allocate("foreign", "gpu-0")
    with pytest.raises(RetryableError, match="the claim watch is behind"):
        await world.bind("p1", "n1")
    async with world.watching():
        with pytest.raises(RetryableError, match="another writer allocated device"):
            await world.bind("p1", "n1")
        await world.bind("p1", "n1")

    assert world.devices("c1") == ["n1/gpu-1"]


@pytest.mark.parametrize("step", ["update", "update_status"])
async def test_a_pod_made_anew_under_its_name_gets_nothing_of_the_bind_of_the_first(
    world: InMemoryExtender, step: str
) -> None:
    claims = Seam(world.cluster.claims)
    restart(world, claims=claims)
    first = world.pod("p1")["metadata"]["uid"]

    def replace() -> None:
        world.cluster.store.delete(Key(StoredKind.POD, "default", "p1"))
        world.add_pod("p1", "c1")

    claims.before(step, replace)
    async with world.watching():
        with pytest.raises(RetryableError, match="does not exist any more"):
            await world.bind("p1", "n1")
        assert node_of(world) == ""
        await world.bind("p1", "n1")

    uids = [each["uid"] for each in world.claim("c1")["status"]["reservedFor"]]
    assert world.pod("p1")["metadata"]["uid"] in uids
    assert first != world.pod("p1")["metadata"]["uid"]


async def test_a_pod_made_anew_before_the_watch_tells_is_not_bound_by_the_uid_of_the_first(
    world: InMemoryExtender,
) -> None:
    pods = Seam(world.cluster.pods)
    restart(world, pods=pods)
    uid = world.pod("p1")["metadata"]["uid"]

    def replace() -> None:
        world.cluster.store.delete(Key(StoredKind.POD, "default", "p1"))
        world.cluster.store.create(
            StoredKind.POD,
            {
                "metadata": {"name": "p1"},
                "spec": {"containers": [{"name": "main", "image": "pause"}], "resourceClaims": []},
            },
        )

    pods.before("bind", replace)
    async with world.watching():
        with pytest.raises(RetryableError, match="UID"):
            await world.extender.bind("default", "p1", uid, "n1", asyncio.Event())

    assert node_of(world) == ""


@pytest.mark.parametrize("step", ["update", "update_status"])
async def test_a_claim_made_anew_under_its_name_is_not_given_what_was_decided_for_the_first(
    world: InMemoryExtender, step: str
) -> None:
    claims = Seam(world.cluster.claims)
    restart(world, claims=claims)

    def replace() -> None:
        edit(world, lambda claim: claim["metadata"].update(finalizers=[]))()
        world.cluster.store.delete(Key(StoredKind.CLAIM, "default", "c1"))
        spec = {"devices": {"requests": [{"name": "req", "exactly": {"deviceClassName": "gpu", "count": 1}}]}}
        world.cluster.store.create(StoredKind.CLAIM, {"metadata": {"name": "c1"}, "spec": spec})

    claims.before(step, replace)
    async with world.watching():
        with pytest.raises(RetryableError, match="replaced by another of the same name"):
            await world.bind("p1", "n1")
        assert world.devices("c1") == []
        assert "finalizers" not in world.claim("c1")["metadata"]
        await world.cluster.watch.caught_up()
        await world.bind("p1", "n1")

    assert world.devices("c1") == ["n1/gpu-0"]
    assert world.claim("c1")["metadata"]["finalizers"] == [FINALIZER]


async def test_a_finalizer_that_is_taken_off_between_the_two_writes_is_put_back(world: InMemoryExtender) -> None:
    claims = Seam(world.cluster.claims)
    restart(world, claims=claims)
    claims.before("update_status", edit(world, lambda claim: claim["metadata"].update(finalizers=[])))
    async with world.watching():
        await world.bind("p1", "n1")

    assert world.claim("c1")["metadata"]["finalizers"] == [FINALIZER]
    assert world.devices("c1") == ["n1/gpu-0"]


async def test_no_pod_is_bound_to_a_node_that_went_away_while_its_claim_was_written(world: InMemoryExtender) -> None:
    claims = Seam(world.cluster.claims)
    restart(world, claims=claims)
    claims.before("update_status", lambda: world.delete(StoredKind.NODE, "n1"))
    async with world.watching():
        with pytest.raises(RetryableError, match="node n1 does not exist any more"):
            await world.bind("p1", "n1")

    assert node_of(world) == ""


@pytest.mark.parametrize("step", ["update", "update_status"])
async def test_a_claim_that_another_scheduler_allocates_first_is_used_as_it_is_by_the_next_bind(
    world: InMemoryExtender, step: str
) -> None:
    """What we froze for other devices does not count for these."""
    claims = Seam(world.cluster.claims)
    restart(world, claims=claims)

    def allocate() -> None:
        world.allocate("c1", "gpu-1", writer="other")

    claims.before(step, allocate)
    async with world.watching():
        with pytest.raises(RetryableError, match="claim default/c1 was allocated by another scheduler"):
            await world.bind("p1", "n1")
        assert world.devices("c1") == ["n1/gpu-1"]
        await world.bind("p1", "n1")

    assert world.devices("c1") == ["n1/gpu-1"]
    assert [each["name"] for each in world.claim("c1")["status"]["reservedFor"]] == ["p1"]
    assert node_of(world) == "n1"


@pytest.mark.parametrize("step", ["update", "update_status"])
async def test_a_write_that_is_denied_is_told_in_the_servers_words_and_takes_nothing_from_others(
    world: InMemoryExtender, step: str
) -> None:
    """A quota, a webhook, or a right that is missing."""
    claims = Seam(world.cluster.claims)
    restart(world, claims=claims)
    claims.before(step, RequestRejectedError("403 Forbidden: admission webhook denied the request: quota exceeded"))
    world.add_claim("all", count=2)
    world.add_pod("p3", "all")
    async with world.watching():
        with pytest.raises(RetryableError, match="quota exceeded"):
            await world.bind("p1", "n1")
        assert claims.calls.count(step) == 1
        await world.bind("p3", "n1")

    assert world.devices("all") == ["n1/gpu-0", "n1/gpu-1"]
    assert world.devices("c1") == []


@pytest.mark.parametrize(
    "fault",
    [ConflictError("the object has been modified"), ServerUnavailableError("500"), ServerUnavailableError("429")],
)
async def test_a_server_that_never_lets_a_write_through_is_asked_a_few_times_and_no_more(
    world: InMemoryExtender, fault: Exception
) -> None:
    claims = Seam(world.cluster.claims)
    restart(world, claims=claims)
    claims.before("update_status", *[fault] * 50)
    async with world.watching():
        with pytest.raises(RetryableError, match=str(fault)):
            await world.bind("p1", "n1")

    assert claims.calls.count("update_status") <= 5
    assert node_of(world) == ""


@pytest.mark.parametrize("stored", [False, True])
async def test_devices_stay_taken_while_nobody_knows_whether_they_were_written(
    world: InMemoryExtender, *, stored: bool
) -> None:
    """The server stored the allocation and went away before it answered, or it did not; then it comes back."""
    silent = ServerUnavailableError("connection refused")
    claims = Seam(world.cluster.claims).before("read", *[silent] * 5)
    (claims.after if stored else claims.before)("update_status", silent)
    restart(world, claims=claims)
    world.add_claim("all", count=2)
    world.add_pod("p3", "all")
    async with world.watching():
        world.silence("resourceclaims")
        with pytest.raises(RetryableError, match="connection refused"):
            await world.bind("p1", "n1")
        with pytest.raises(RetryableError, match="does not fit on node n1 any more"):
            await world.bind("p3", "n1")
        world.cluster.watch.attach(sinks_of(world.ledger))
        await world.bind("p1", "n1")

    assert world.devices("c1") == ["n1/gpu-0"]
    assert node_of(world) == "n1"


async def test_a_stop_does_not_wait_for_a_server_that_is_gone(world: InMemoryExtender) -> None:
    silent = [ServerUnavailableError("connection refused")] * 100
    restart(world, claims=Seam(world.cluster.claims).before("read", *silent).before("update_status", *silent))
    async with world.watching():
        with pytest.raises(RetryableError, match="connection refused"):
            await world.bind("p1", "n1")
        await asyncio.wait_for(world.extender.stop(), 60)

    assert not world.ledger.usage().pool((DRIVER, "n1"))


@pytest.mark.parametrize("step", ["update", "update_status", "bind"])
async def test_a_write_of_the_leader_before_that_arrives_late_harms_nothing(world: InMemoryExtender, step: str) -> None:
    """It left the process before the end of the term, and the next leader has bound the pod meanwhile."""
    late = asyncio.Event()
    arrived = asyncio.Event()

    async def held_up() -> None:
        arrived.set()
        await late.wait()

    claims, pods = Seam(world.cluster.claims), Seam(world.cluster.pods)
    (pods if step == "bind" else claims).before(step, held_up)
    restart(world, claims=claims, pods=pods)
    before = world.extender
    uid = world.pod("p1")["metadata"]["uid"]
    async with world.watching():
        old = asyncio.create_task(before.bind("default", "p1", uid, "n1", asyncio.Event()))
        await arrived.wait()
        stop = asyncio.create_task(before.stop("this replica stands by, another leads"))
        with pytest.raises(RetryableError, match="this replica stands by, another leads; the next bind"):
            await old
        restart(world)
        await world.bind("p1", "n1")
        stored = world.claim("c1")
        late.set()
        await stop
        await world.cluster.watch.caught_up()

    assert node_of(world) == "n1"
    assert world.claim("c1") == stored
    assert len(stored["status"]["reservedFor"]) == 1
