"""Bugs of upstream's scheduler, and of designs under review: one test for each, named by its issue.

Those of the allocator are in tests/allocator/test_upstream_bugs.py.
"""

import asyncio

import msgspec
import pytest
from dra_extender.kube.client.settings import KubeSettings
from dra_extender.kube.client.transport import ApiCall, ApiTransport
from dra_extender.kube.events import POD_BURST, KubeEvents
from dra_extender.ledger.sinks import sinks_of
from dra_extender.scheduling.ports.cluster import RequestRejectedError
from dra_extender.scheduling.ports.errors import RetryableError
from dra_extender.scheduling.ports.options import Options
from dra_extender.simulator.apiserver.objects import Json, StoredKind

from tests.support.kube.recording import CountingObserver, ManualClock
from tests.support.model.reading import pod_from
from tests.support.scheduling.gangs import GangExtender, whole_against_halves
from tests.support.scheduling.seam import Seam, restart
from tests.support.scheduling.world import CONDITIONS, DRIVER, InMemoryExtender
from tests.support.turns import until


@pytest.fixture
def world() -> InMemoryExtender:
    """Node n1 with one GPU; pods p1 and p2 with a claim for one each."""
    return InMemoryExtender().furnish(n1=1, p1="c1", p2="c2")


def shared(*pods: str) -> InMemoryExtender:
    """Nodes n1 and n2 with a GPU each, and pods that share one claim."""
    return InMemoryExtender().furnish(n1=1, n2=1, **dict.fromkeys(pods, "shared"))


async def test_136269_a_device_is_not_given_again_before_the_watch_has_told_of_its_allocation(
    world: InMemoryExtender,
) -> None:
    """The first pod's claim is written and its bind done; nothing of that has come back yet when the second pod is filtered."""
    await world.filter("p1", "n1")
    bind = asyncio.create_task(world.bind("p1", "n1"))
    await until(lambda: world.devices("c1") == ["n1/gpu-0"])
    assert list((await world.filter("p2", "n1")).fitting) == []
    async with world.watching():
        await bind
    assert list((await world.filter("p2", "n1")).fitting) == []
    with pytest.raises(RetryableError):
        await world.bind("p2", "n1")


async def test_136269_two_binds_at_once_without_filter_do_not_take_one_device(world: InMemoryExtender) -> None:
    async with world.watching():
        found = await asyncio.gather(world.bind("p1", "n1"), world.bind("p2", "n1"), return_exceptions=True)
    assert found.count(None) == 1
    assert all(isinstance(each, RetryableError | None) for each in found)
    assert sorted([world.devices("c1"), world.devices("c2")]) == [[], ["n1/gpu-0"]]


async def test_138765_a_gang_that_fits_somehow_is_placed_whichever_member_comes_first() -> None:
    """Pod by pod the first members would take the halves of the only card that can be had whole."""
    for order in (["a", "b", "w"], ["w", "b", "a"], ["b", "w", "a"]):
        world = GangExtender()
        whole_against_halves(world)
        seats = await world.ask(order, "n1", "n2")
        async with world.watching():
            await asyncio.gather(*(world.bind(pod, seats[pod][0]) for pod in order))
        assert world.devices("w") == ["n1/whole-0"]
        assert {*world.devices("a"), *world.devices("b")} == {"n2/half-a-0", "n2/half-b-0"}


class CountingTransport(ApiTransport):
    """Takes every call and counts it."""

    def __init__(self, settings: KubeSettings, clock: ManualClock) -> None:
        super().__init__(settings, clock, CountingObserver())
        self.calls = 0

    async def send(self, call: ApiCall) -> bytes:
        self.calls += 1
        return b"{}"


async def test_137617_members_that_wait_for_a_shared_claim_do_not_flood_the_cluster_with_events() -> None:
    """Four pods of a claim that cannot be had are tried four times a second for two minutes."""
    pods = [f"p{number}" for number in range(4)]
    world = shared(*pods)
    for node in ("n1", "n2"):
        world.delete(StoredKind.SLICE, f"{node}-devices")
    clock, settings = ManualClock(), KubeSettings(instance="replica-0")
    transport = CountingTransport(settings, clock)
    events = KubeEvents(transport, settings, clock, CountingObserver())
    writing = asyncio.create_task(events.keep_writing())
    attempts = 0
    for _ in range(2 * 60 * 4):
        for pod in pods:
            assert not (await world.filter(pod, "n1", "n2")).fitting
            attempts += 1
            about = pod_from(world.pod(pod))
            events.about_pod(about, warning=True, reason="NoDevice", message=world.messages(pod)[-1])
        clock.pass_by(0.25)
        await events.flush()
    writing.cancel()
    assert attempts == 1920
    assert len(pods) <= transport.calls <= len(pods) * (POD_BURST + 2 * 60 / 30 + 1)
    assert world.cluster.waker.calls == 0


async def test_137647_members_of_a_group_that_bind_a_shared_pending_claim_at_once_end_on_one_allocation() -> None:
    pods = [f"p{number}" for number in range(6)]
    world = shared(*pods)
    offered = [set((await world.filter(pod, "n1", "n2")).fitting) for pod in pods]
    assert all(each == {"n1", "n2"} for each in offered)
    async with world.watching():
        binds = (world.bind(pod, f"n{1 + index % 2}") for index, pod in enumerate(pods))
        found = await asyncio.gather(*binds, return_exceptions=True)
    bound = [pod for pod, problem in zip(pods, found, strict=True) if problem is None]
    assert len(world.devices("shared")) == 1
    node = world.devices("shared")[0].partition("/")[0]
    assert {world.pod(pod)["spec"]["nodeName"] for pod in bound} == {node}
    assert len(bound) == 3
    assert all(isinstance(problem, RetryableError | None) for problem in found)
    assert {each["name"] for each in world.claim("shared")["status"]["reservedFor"]} >= set(bound)


async def test_139417_a_bind_that_fails_lets_go_of_a_shared_claim_once() -> None:
    """The bind of p1 fails after the claim is allocated; p2's part in it stays, and nobody else gets the device."""
    world = shared("p1", "p2")
    world.add_claim("other")
    world.add_pod("p3", "other")
    restart(world, pods=Seam(world.cluster.pods).before("bind", *[RequestRejectedError("not this one")] * 2))
    for pod in ("p1", "p2"):
        assert list((await world.filter(pod, "n1")).fitting) == ["n1"]
    async with world.watching():
        for _ in range(2):
            with pytest.raises(RetryableError):
                await world.bind("p1", "n1")
            assert list((await world.filter("p3", "n1")).fitting) == []
        await world.bind("p2", "n1")
    assert world.devices("shared") == ["n1/gpu-0"]
    assert world.uid("p2") in {e["uid"] for e in world.claim("shared")["status"]["reservedFor"]}
    assert list((await world.filter("p3", "n1")).fitting) == []


async def pokes(world: InMemoryExtender) -> int:
    world.sync()
    for _ in range(10):
        await asyncio.sleep(0.005)
    return world.cluster.waker.calls


async def test_129698_a_refused_pod_is_woken_by_the_claim_that_frees_its_device_and_by_no_other() -> None:
    world = InMemoryExtender(Options(hold_wait_seconds=0.0, wake_delay_seconds=0.0, wake_interval_seconds=0.01))
    world.furnish(n1=1)
    await world.extender.start()
    try:
        for number in "12":
            world.add_claim(f"c{number}")
            world.add_pod(f"p{number}", f"c{number}")
        await world.filter("p1", "n1")
        await world.bind_through("p1", "n1")
        assert not (await world.filter("p2", "n1")).fitting
        before = await pokes(world)
        world.add_claim("unrelated")
        unrelated = world.claim("unrelated")
        unrelated["metadata"]["labels"] = {"a": "b"}
        world.update(StoredKind.CLAIM, unrelated)
        world.delete(StoredKind.CLAIM, "unrelated")
        assert await pokes(world) == before
        world.delete(StoredKind.POD, "p1")
        freed = world.claim("c1")
        freed["status"] = {}
        world.cluster.store.update_status(StoredKind.CLAIM, freed)
        assert await pokes(world) > before
        assert list((await world.filter("p2", "n1")).fitting) == ["n1"]
    finally:
        await world.extender.stop()


@pytest.mark.parametrize("order", ["forwards", "backwards"])
def test_123698_old_states_of_a_claim_that_arrive_late_change_nothing(world: InMemoryExtender, order: str) -> None:
    """What we wrote is known at once; the watch brings what was before it, in any order; answers come after a deletion.

    The watch itself brings nothing of a claim that it has said to be deleted, unless the server's store was set back.
    """
    feed = sinks_of(world.ledger)["resourceclaims"]
    states: list[Json] = [world.claim("c1")]
    result = {"request": "req", "driver": DRIVER, "pool": "n1", "device": "gpu-0"}
    for change in (
        {"allocation": {"devices": {"results": [result]}}},
        {},
        {"allocation": {"devices": {"results": [result]}}},
    ):
        raw = world.claim("c1")
        raw["status"] = change
        world.cluster.store.update_status(StoredKind.CLAIM, raw)
        states.append(world.claim("c1"))
    world.ledger.claims.store(msgspec.json.encode(states[-1]), from_watch=False)
    late = states[:-1] if order == "forwards" else states[-2::-1]
    for each in late:
        feed.changed(msgspec.json.encode(each))
        assert "gpu-0" in world.ledger.claims.usage.pool((DRIVER, "n1"))
    metadata = states[-1]["metadata"]
    feed.deleted("default", "c1", metadata["uid"])
    assert not world.ledger.claims.usage.pool((DRIVER, "n1"))
    for each in states if order == "forwards" else states[::-1]:
        world.ledger.assume_written(msgspec.json.encode(each))
        assert not world.ledger.claims.usage.pool((DRIVER, "n1"))
        assert world.ledger.claims.by_key("default", "c1") is None


@pytest.mark.parametrize("over", ["deleted", "ended"])
def test_123698_late_answers_bring_nothing_back_of_a_claim_whose_pod_ended_after_it(
    world: InMemoryExtender, over: str
) -> None:
    """While the pod runs the devices stay counted, and after it no late state of the deleted claim counts them again."""
    feed, pods = sinks_of(world.ledger)["resourceclaims"], sinks_of(world.ledger)["pods"]
    pod = world.pod("p1")
    uid = pod["metadata"]["uid"]
    pod["spec"]["nodeName"] = "n1"
    pods.changed(msgspec.json.encode(pod))
    raw = world.claim("c1")
    result = {"request": "req", "driver": DRIVER, "pool": "n1", "device": "gpu-0"}
    consumer = {"resource": "pods", "name": "p1", "uid": uid}
    raw["status"] = {"allocation": {"devices": {"results": [result]}}, "reservedFor": [consumer]}
    world.cluster.store.update_status(StoredKind.CLAIM, raw)
    stored = world.claim("c1")
    feed.changed(msgspec.json.encode(stored))
    feed.deleted("default", "c1", stored["metadata"]["uid"])
    assert "gpu-0" in world.ledger.claims.usage.pool((DRIVER, "n1"))
    world.ledger.assume_written(msgspec.json.encode(stored))
    assert len(world.ledger.claims.usage.pool((DRIVER, "n1"))["gpu-0"]) == 1
    if over == "deleted":
        pods.deleted("default", "p1", uid)
    else:
        pods.changed(msgspec.json.encode({**pod, "status": {"phase": "Succeeded"}}))
    assert not world.ledger.claims.usage.pool((DRIVER, "n1"))
    world.ledger.assume_written(msgspec.json.encode(stored))
    assert not world.ledger.claims.usage.pool((DRIVER, "n1"))


async def test_130160_a_node_with_a_ready_device_is_preferred_and_first_fit_is_kept_on_demand() -> None:
    """The worry of the review: that putting ready devices first disturbs first fit.  A setting keeps it."""
    world = InMemoryExtender(Options(hold_wait_seconds=0.0, ready_devices_first=False))
    for node in ("n1", "n2"):
        world.node(node)
    world.slice("n1", [{"name": "gpu-0", **CONDITIONS}, {"name": "gpu-1"}])
    world.gpus("n2", 1)
    world.device_class()
    world.add_claim("c1")
    world.add_pod("p1", "c1")
    answer = await world.filter("p1", "n1", "n2")
    assert set(answer.fitting) == {"n1", "n2"}
    pod = pod_from(world.pod("p1"))
    scores = dict(await world.extender.prioritize(pod, ["n1", "n2"]))
    assert scores["n2"] > scores["n1"]
