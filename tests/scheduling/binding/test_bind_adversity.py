"""What others do to pods, claims, nodes and the API server while a bind is at work: it ends well or in words, nothing is lost."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from dra_extender.model.resource_claim import FINALIZER
from dra_extender.scheduling.binding.condition_wait import ConditionWait
from dra_extender.scheduling.ports.cluster import ConflictError, RequestRejectedError, ServerUnavailableError
from dra_extender.scheduling.ports.errors import RetryableError
from dra_extender.scheduling.ports.options import YieldPolicy
from dra_extender.simulator.apiserver.objects import Json, Key, StoredKind

from tests.controlplane import objects
from tests.support.scheduling.adversity import edit, troubled_world
from tests.support.scheduling.seam import Seam, restart
from tests.support.scheduling.world import DRIVER, InMemoryExtender
from tests.support.turns import turns, until

pytestmark = pytest.mark.virtual_time


@pytest.fixture
def world() -> InMemoryExtender:
    return troubled_world()


async def test_a_pod_made_anew_before_the_watch_tells_is_not_bound_by_the_uid_of_the_first(
    world: InMemoryExtender,
) -> None:
    pods = Seam(world.cluster.pods)
    restart(world, pods=pods)
    uid = world.uid("p1")

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

    assert world.node_of() == ""


async def test_a_claim_that_another_scheduler_allocates_anew_for_another_node_binds_no_pod_here(
    world: InMemoryExtender,
) -> None:
    claims = Seam(world.cluster.claims)
    restart(world, claims=claims)
    world.allocate("c1", "gpu-0")

    def move(claim: Json) -> None:
        allocation = claim["status"]["allocation"]
        allocation["devices"]["results"][0]["pool"] = "n2"
        allocation["nodeSelector"] = objects.on_node("n2")

    claims.before("update_status", edit(world, move))
    async with world.watching():
        with pytest.raises(RetryableError, match=r"node n1 cannot be used any more: .* allocated for another node"):
            await world.bind("p1", "n1")
        assert world.node_of() == ""
        await world.bind("p1", "n2")
    assert world.node_of() == "n2"


@pytest.mark.parametrize("conditions", [True, False])
async def test_a_claim_that_is_deallocated_after_its_reservation_binds_no_pod(
    world: InMemoryExtender, *, conditions: bool
) -> None:
    world.features = replace(world.features, device_binding_and_status=conditions)
    claims = Seam(world.cluster.claims)
    restart(world, claims=claims)
    world.allocate("c1", "gpu-0")

    async def deallocate() -> None:
        edit(world, lambda claim: claim["status"].clear())()
        await world.cluster.watch.caught_up()

    claims.after("update_status", deallocate)
    async with world.watching():
        with pytest.raises(RetryableError, match="claim default/c1 was deallocated meanwhile"):
            await world.bind("p1", "n1")
    assert world.node_of() == ""


@pytest.mark.parametrize("conditions", [True, False])
async def test_a_claim_that_is_deallocated_after_the_wait_binds_no_pod(
    world: InMemoryExtender, monkeypatch: pytest.MonkeyPatch, *, conditions: bool
) -> None:
    world.features = replace(world.features, device_binding_and_status=conditions)
    restart(world)
    wait = ConditionWait.wait_until_ready

    async def wait_and_deallocate(self: ConditionWait, bind: Any) -> None:
        await wait(self, bind)
        edit(world, lambda claim: claim["status"].clear())()
        await world.cluster.watch.caught_up()

    monkeypatch.setattr(ConditionWait, "wait_until_ready", wait_and_deallocate)
    async with world.watching():
        with pytest.raises(RetryableError, match="was deallocated while pod"):
            await world.bind("p1", "n1")
    assert world.node_of() == ""


async def test_a_claim_that_comes_into_conflict_while_the_bind_waits_for_another_claim_binds_no_pod(
    world: InMemoryExtender, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.options = replace(world.options, yield_policy=YieldPolicy.WAIT)
    restart(world)
    for name in ("first", "second", "others-0", "others-1"):
        world.add_claim(name)
    world.add_pod("p3", "first", "second")
    wait = ConditionWait.wait_until_ready

    async def wait_and_allocate(self: ConditionWait, bind: Any) -> None:
        await wait(self, bind)
        world.allocate("others-1", "gpu-1")
        await world.cluster.watch.caught_up()

    monkeypatch.setattr(ConditionWait, "wait_until_ready", wait_and_allocate)
    async with world.watching():
        bind = asyncio.create_task(world.bind("p3", "n1"))
        await until(lambda: world.devices("others-1"))
        assert world.devices("first") == ["n1/gpu-0"]
        await asyncio.sleep(1)
        world.allocate("others-0", "gpu-0")
        await asyncio.sleep(1)
        edit(world, lambda claim: claim["status"].clear(), "others-1")()
        await asyncio.sleep(1)
        assert world.node_of("p3") == ""
        edit(world, lambda claim: claim["status"].clear(), "others-0")()
        await bind
    assert world.node_of("p3") == "n1"


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
    assert world.node_of() == ""


_CONFLICT = ConflictError("the object has been modified")


@pytest.mark.parametrize(
    ("conflicts", "denied"),
    [
        pytest.param(4, (), id="at-the-last-try"),
        pytest.param(0, (RequestRejectedError("403 Forbidden"),), id="before-a-denied-read"),
    ],
)
async def test_a_write_that_was_sent_twice_and_is_in_conflict_with_itself_keeps_its_devices(
    world: InMemoryExtender, conflicts: int, denied: tuple[Exception, ...]
) -> None:
    """Clients and proxies repeat a PUT whose connection is cut; the watch may not have told of the first one yet."""
    world.add_claim("all", count=2)
    world.add_pod("p3", "all")
    claims = Seam(world.cluster.claims)
    restart(world, claims=claims)
    await world.filter("p1", "n1")
    claims.before("update_status", *[_CONFLICT] * conflicts).after("update_status", _CONFLICT)
    claims.before("read", *[None] * conflicts, *denied)
    with pytest.raises(RetryableError):
        await world.bind("p1", "n1")
    assert world.devices("c1") == ["n1/gpu-0"]
    for _ in range(2):
        assert (await world.filter("p3", "n1")).fitting == ()
        await turns()


async def test_a_stop_does_not_wait_for_a_server_that_is_gone(world: InMemoryExtender) -> None:
    silent = [ServerUnavailableError("connection refused")] * 100
    restart(world, claims=Seam(world.cluster.claims).before("read", *silent).before("update_status", *silent))
    async with world.watching():
        with pytest.raises(RetryableError, match="connection refused"):
            await world.bind("p1", "n1")
        await asyncio.wait_for(world.extender.stop(), 60)

    assert not world.ledger.usage().pool((DRIVER, "n1"))
