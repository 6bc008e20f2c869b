"""How binds run beside each other: joined, stopped, abandoned, resumed, and with as few writes as safety allows."""

import asyncio
from functools import partial
from typing import Any

import pytest
from dra_extender.model.allocation_snapshot import SNAPSHOT_ANNOTATION
from dra_extender.model.fields import Gate
from dra_extender.runtime.supervision import BackgroundTask
from dra_extender.scheduling.binding.decision import BindDecision
from dra_extender.scheduling.call_budget import Awaited
from dra_extender.scheduling.ports.cluster import ConflictError, ServerUnavailableError
from dra_extender.scheduling.ports.errors import RetryableError
from dra_extender.simulator.apiserver.cluster import MemoryClaims
from dra_extender.simulator.apiserver.objects import Key, StoredKind
from dra_extender.simulator.apiserver.served_fields import Served
from dra_extender.telemetry.decision_metrics import SearchLane

from tests.support.scheduling.adversity import edit
from tests.support.scheduling.seam import Seam, restart
from tests.support.scheduling.world import CONDITIONS, InMemoryExtender
from tests.support.turns import turns, until


class Paused(Seam):
    """A port; calls of one method wait for `go` before they act."""

    def __init__(self, inner: Any, method: str) -> None:
        super().__init__(inner)
        self.go = asyncio.Event()
        self.before(method, *[self.go.wait] * 9)

    async def reached(self, method: str, count: int = 1) -> None:
        """Return when so many calls of the method wait or are over."""
        await until(lambda: self.calls.count(method) >= count)


@pytest.fixture
def world() -> InMemoryExtender:
    world = InMemoryExtender().furnish(n1=4, n2=4, p1="c1")
    for name in ("c2", "c3"):
        world.add_claim(name)
    return world


def paused_claims(world: InMemoryExtender, method: str) -> Paused:
    paused = Paused(world.cluster.claims, method)
    restart(world, claims=paused)
    return paused


async def test_a_claim_costs_two_writes_and_a_pod_one(world: InMemoryExtender) -> None:
    claims, pods = Seam(world.cluster.claims), Seam(world.cluster.pods)
    restart(world, claims=claims, pods=pods)
    await world.bind_through("p1", "n1")

    assert (claims.calls, pods.calls) == (["update", "update_status"], ["bind"])


async def test_claims_of_one_pod_are_written_at_the_same_time(world: InMemoryExtender) -> None:
    world.add_pod("p2", "c1", "c2", "c3")
    claims = paused_claims(world, "update")
    async with world.watching():
        bind = asyncio.create_task(world.bind("p2", "n1"))
        await claims.reached("update", 3)
        claims.go.set()
        await bind

    assert {world.devices(name)[0] for name in ("c1", "c2", "c3")} == {"n1/gpu-0", "n1/gpu-1", "n1/gpu-2"}


async def test_the_wait_for_a_shared_claim_is_no_time_of_the_search_after_it(world: InMemoryExtender) -> None:
    world.add_claim("c4", count=3)
    world.add_pod("p2", "c1", "c4")
    claims = paused_claims(world, "update_status")
    async with world.watching():
        first = asyncio.create_task(world.bind("p1", "n1"))
        await claims.reached("update_status")
        second = asyncio.create_task(world.bind("p2", "n1"))
        await turns()
        world.clock.seconds += 2 * world.options.filter_budget_seconds
        claims.go.set()
        await asyncio.gather(first, second)

    assert world.devices("c4") == ["n1/gpu-1", "n1/gpu-2", "n1/gpu-3"]
    assert not any([await world.metric("dra_extender_search_seconds_total", lane=lane) for lane in SearchLane])


async def test_of_a_decision_in_slices_that_fails_all_slices_are_charged_but_no_wait_for_another_bind(
    world: InMemoryExtender, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock, slices = world.extender.binder.busy_claims.lock_claim(world.known_claim("c1").claim.metadata.uid), 0

    def decide(*_: object) -> Awaited:
        nonlocal slices
        slices += 1
        world.clock.seconds += 0.25
        if slices == 2:
            raise RetryableError("does not fit any more")
        lock.__enter__()
        return Awaited.TIME_SLICE

    monkeypatch.setattr(BindDecision, "decide", decide)
    bind = asyncio.create_task(world.bind("p1", "n1"))
    await turns()
    world.clock.seconds += 1
    lock.__exit__(None, None, None)
    with pytest.raises(RetryableError, match="does not fit any more"):
        await bind
    assert await world.metric("dra_extender_search_seconds_total", lane=SearchLane.NAMESPACE) == 0.5


async def test_a_bind_that_fails_ends_no_allocation_that_another_bind_writes(world: InMemoryExtender) -> None:
    """The claim was allocated when the first bind decided, and has been deallocated since."""
    world.add_pod("p2", "c1", "c2")
    world.allocate("c1", "gpu-0")
    claims, first_goes, second_goes = Seam(world.cluster.claims), asyncio.Event(), asyncio.Event()
    claims.before("update", first_goes.wait, second_goes.wait)
    claims.before("update_status", edit(world, lambda claim: claim.pop("status")))
    restart(world, claims=claims)
    async with world.watching():
        first = asyncio.create_task(world.bind("p2", "n1"))
        await until(lambda: not world.devices("c1"))
        await turns()
        second = asyncio.create_task(world.bind("p1", "n1"))
        await until(lambda: claims.calls.count("update") == 2)
        first_goes.set()
        with pytest.raises(RetryableError, match="claim default/c1 was deallocated meanwhile"):
            await first
        assert world.known_claim("c1").pending is not None
        second_goes.set()
        await second
    assert world.node_of("p1") == "n1"


async def test_of_several_claims_one_cannot_be_written_and_the_next_bind_writes_that_one_alone(
    world: InMemoryExtender,
) -> None:
    world.add_pod("p2", "c1", "c2")

    answers = asyncio.Event()

    class Refusing(MemoryClaims):
        async def update_status(self, namespace: str, name: str, body: bytes) -> bytes:
            if name == "c1" and not answers.is_set():
                raise ServerUnavailableError("no answer")
            return await super().update_status(namespace, name, body)

    restart(world, claims=Refusing(world.cluster.store))
    async with world.watching():
        with pytest.raises(RetryableError, match="no answer"):
            await world.bind("p2", "n1")
        assert (world.devices("c1"), world.devices("c2")) == ([], ["n1/gpu-1"])
        answers.set()
        await world.bind("p2", "n1")

    assert (world.devices("c1"), world.devices("c2")) == (["n1/gpu-0"], ["n1/gpu-1"])
    assert world.node_of("p2") == "n1"


async def test_a_write_in_flight_is_finished_when_the_caller_hangs_up_and_the_next_bind_resumes(
    world: InMemoryExtender,
) -> None:
    claims = paused_claims(world, "update_status")
    hung_up = asyncio.Event()
    async with world.watching():
        bind = asyncio.create_task(world.bind("p1", "n1", hung_up))
        await claims.reached("update_status")
        hung_up.set()
        claims.go.set()
        with pytest.raises(RetryableError, match="nobody waits"):
            await bind
        assert world.devices("c1") == ["n1/gpu-0"]
        assert not world.node_of("p1")
        claims.calls.clear()
        await world.bind("p1", "n1")

    assert claims.calls == []
    assert world.node_of("p1") == "n1"


async def test_a_bind_goes_on_while_one_of_its_callers_is_left(world: InMemoryExtender) -> None:
    claims = paused_claims(world, "update_status")
    gone, there = asyncio.Event(), asyncio.Event()
    async with world.watching():
        binds = [asyncio.create_task(world.bind("p1", "n1", each)) for each in (gone, there)]
        await claims.reached("update_status")
        gone.set()
        claims.go.set()
        await asyncio.gather(*binds)

    assert claims.calls == ["update", "update_status"]
    assert world.node_of("p1") == "n1"


async def test_a_bind_to_another_node_stops_the_first_one(world: InMemoryExtender) -> None:
    """What the first has written stays: it decides where the pod can go, so here the second is told so."""
    claims = paused_claims(world, "update_status")
    async with world.watching():
        first = asyncio.create_task(world.bind("p1", "n1"))
        await claims.reached("update_status")
        second = asyncio.create_task(world.bind("p1", "n2"))
        await asyncio.sleep(0)
        claims.go.set()
        with pytest.raises(RetryableError, match="is to be bound to node n2 now, no more to n1"):
            await first
        with pytest.raises(RetryableError, match="is allocated for another node"):
            await second

    assert not world.node_of("p1")
    assert world.devices("c1") == ["n1/gpu-0"]


async def test_a_bind_to_another_node_that_the_claim_allows_takes_over(world: InMemoryExtender) -> None:
    pool = {"name": "all", "generation": 1, "resourceSliceCount": 1}
    device = {"name": "gpu-0", **CONDITIONS}
    fabric = {"driver": "fabric.example.com", "pool": pool, "allNodes": True, "devices": [device]}
    world.create(StoredKind.SLICE, {"metadata": {"name": "all"}, "spec": fabric})
    world.device_class("fabric", 'device.driver == "fabric.example.com"')
    world.add_claim("c4", class_name="fabric")
    world.add_pod("p2", "c4")
    async with world.watching():
        first = asyncio.create_task(world.bind("p2", "n1"))
        await turns()
        second = asyncio.create_task(world.bind("p2", "n2"))
        with pytest.raises(RetryableError, match="no more to n1"):
            await first
        claim = world.claim("c4")
        attached = {"type": "Attached", "status": "True", "reason": "Test", "message": ""}
        reported = {"driver": "fabric.example.com", "pool": "all", "device": "gpu-0", "conditions": [attached]}
        claim["status"]["devices"] = [reported]
        world.cluster.store.update_status(StoredKind.CLAIM, claim)
        await second

    assert world.node_of("p2") == "n2"


@pytest.mark.parametrize("problem", [ConflictError("pod is already assigned"), ServerUnavailableError("no answer")])
async def test_a_binding_that_is_ours_already_is_success(world: InMemoryExtender, problem: Exception) -> None:
    restart(world, pods=Seam(world.cluster.pods).after("bind", problem))
    await world.bind_through("p1", "n1")

    assert world.node_of("p1") == "n1"


async def test_a_binding_to_another_node_is_no_success(world: InMemoryExtender) -> None:
    uid = world.uid("p1")
    elsewhere = partial(world.cluster.pods.bind, "default", "p1", uid, "n2")
    restart(world, pods=Seam(world.cluster.pods).before("bind", elsewhere))
    async with world.watching():
        with pytest.raises(RetryableError, match="already assigned"):
            await world.bind("p1", "n1")


async def test_a_conflict_is_read_again_and_decided_again(world: InMemoryExtender) -> None:
    """Somebody labelled the claim meanwhile: the same devices are written, over the new state."""
    claims = paused_claims(world, "update_status")
    async with world.watching():
        bind = asyncio.create_task(world.bind("p1", "n1"))
        await claims.reached("update_status")

        def label(claim: Any) -> None:
            claim["metadata"]["labels"] = {"touched": "yes"}

        world.cluster.store.edit_unchecked(Key(StoredKind.CLAIM, "default", "c1"), label)
        claims.go.set()
        await bind

    assert claims.calls == ["update", "update_status", "read", "update_status"]
    assert world.claim("c1")["metadata"]["labels"] == {"touched": "yes"}
    assert world.devices("c1") == ["n1/gpu-0"]


async def test_stop_ends_a_bind_that_waits_and_leaves_what_it_has(world: InMemoryExtender) -> None:
    world.node("n3")
    world.slice("n3", [{"name": "gpu-0", **CONDITIONS}])
    async with world.watching():
        bind = await world.waiting("p1", "n3")
        await world.extender.stop()
        with pytest.raises(RetryableError, match="the extender is stopping"):
            await bind

    assert world.devices("c1") == ["n3/gpu-0"]


def background() -> set[str]:
    """Names of the background tasks that go on."""
    return {each.get_name() for each in asyncio.all_tasks()} & (set(BackgroundTask) - {BackgroundTask.BIND})


async def test_a_stop_that_is_given_up_because_a_write_does_not_end_leaves_no_background_work(
    world: InMemoryExtender,
) -> None:
    """Else a leader that loses the lease and wins it again would do everything twice."""
    claims = paused_claims(world, "update_status")
    await world.extender.start()
    await asyncio.sleep(0)
    assert background() >= {BackgroundTask.WAKE_UP, BackgroundTask.RECLAIM}
    async with world.watching():
        bind = asyncio.create_task(world.bind("p1", "n1"))
        await claims.reached("update_status")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await world.extender.stop()
        assert background() == set()
        claims.go.set()
        await asyncio.gather(bind, return_exceptions=True)


async def test_a_binding_in_flight_is_finished_at_a_stop(world: InMemoryExtender) -> None:
    pods = Paused(world.cluster.pods, "bind")
    restart(world, pods=pods)
    async with world.watching():
        bind = asyncio.create_task(world.bind("p1", "n1"))
        await pods.reached("bind")
        stop = asyncio.create_task(world.extender.stop())
        await asyncio.sleep(0)
        pods.go.set()
        await stop
        await asyncio.gather(bind, return_exceptions=True)

    assert world.node_of("p1") == "n1"


async def test_share_that_an_earlier_process_saw_not_is_taken_back_by_the_next(world: InMemoryExtender) -> None:
    """The process was killed right after the write, before it could look at what the server had kept."""
    world.node("n3")
    world.slice("n3", [{"name": "gpu-0", "allowMultipleAllocations": True, "capacity": {"memory": {"value": "8Gi"}}}])
    world.add_claim("share", capacity={"requests": {"memory": "3Gi"}})
    world.add_pod("p2", "share")
    world.cluster.store._served = Served(off=frozenset({Gate.CONSUMABLE_CAPACITY}))

    written = asyncio.Event()

    async def die() -> None:
        written.set()
        await asyncio.Event().wait()

    restart(world, claims=Seam(world.cluster.claims).after("update_status", die))
    async with world.watching():
        bind = asyncio.create_task(world.bind("p2", "n3"))
        await written.wait()
        bind.cancel()
        await asyncio.gather(bind, return_exceptions=True)
    assert world.devices("share") == ["n3/gpu-0"]

    restart(world, claims=None)
    async with world.watching():
        with pytest.raises(RetryableError, match="does not keep shareID of a share"):
            await world.bind("p2", "n3")
    assert world.devices("share") == []
    assert SNAPSHOT_ANNOTATION not in world.claim("share")["metadata"]["annotations"]
