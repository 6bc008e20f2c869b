"""kube-scheduler is told of what helps a refused pod and of nothing else, a bounded number of times, until it has heard it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from dra_extender.model.resource_claim import MAX_RESERVATIONS
from dra_extender.scheduling.ports.cluster import ServerUnavailableError
from dra_extender.scheduling.ports.options import Options
from dra_extender.scheduling.requeue.unschedulable import EvaluatedNodes
from dra_extender.simulator.apiserver.objects import Key, StoredKind

from tests.support.background import background_failures
from tests.support.scheduling.world import DRIVER, InMemoryExtender

QUICK = Options(hold_wait_seconds=0.0, wake_delay_seconds=0.0, wake_interval_seconds=0.01, device_backoff_seconds=0.05)


async def pokes(world: InMemoryExtender) -> int:
    """Deliver what waits and let the wake-up task act; the number of pokes so far."""
    world.sync()
    for _ in range(10):
        await asyncio.sleep(0.005)
    return world.cluster.waker.calls


@asynccontextmanager
async def started(*nodes: str) -> AsyncIterator[InMemoryExtender]:
    """An extender at work over these nodes with a GPU each, and pods p1 and p2 with a claim for one."""
    world = InMemoryExtender(QUICK).furnish(**dict.fromkeys(nodes, 1))
    await world.extender.start()
    await pokes(world)
    for name in ("1", "2"):
        world.add_claim(f"c{name}")
        world.add_pod(f"p{name}", f"c{name}")
    with background_failures() as failures:
        try:
            yield world
        finally:
            await world.extender.stop()
    assert failures == []


@asynccontextmanager
async def refused() -> AsyncIterator[InMemoryExtender]:
    """The one GPU of node n0 is p1's, and p2 was turned away there; there is a node n1 without devices."""
    async with started("n0") as world:
        world.node("n1")
        await world.filter("p1", "n0")
        await world.bind_through("p1", "n0")
        assert list((await world.filter("p2", "n0")).fitting) == []
        assert await pokes(world) == 0
        yield world


def add_device(world: InMemoryExtender, name: str, **fields: object) -> None:
    """One more device on n0."""
    raw = world.cluster.store.get(Key(StoredKind.SLICE, "", "n0-devices"))
    raw["spec"]["devices"].append({"name": name, **fields})
    world.update(StoredKind.SLICE, raw)


def touch_slice(world: InMemoryExtender, generation: int) -> None:
    """A change of the slice that adds nothing."""
    raw = world.cluster.store.get(Key(StoredKind.SLICE, "", "n0-devices"))
    raw["spec"]["pool"]["generation"] = generation
    world.update(StoredKind.SLICE, raw)


async def test_a_changed_slice_wakes_kube_scheduler_once() -> None:
    async with refused() as world:
        add_device(world, "gpu-1")
        assert await pokes(world) == 1
        assert await pokes(world) == 1


async def test_a_slice_of_a_node_that_kube_scheduler_did_not_offer_wakes_nobody() -> None:
    """Its own filters have ruled the node out; when that changes it tries again by itself."""
    async with refused() as world:
        world.gpus("n1", 4)
        assert await pokes(world) == 0
        assert list((await world.filter("p2", "n0", "n1")).fitting) == ["n1"]


async def test_a_slice_of_another_driver_or_without_free_devices_wakes_nobody() -> None:
    async with refused() as world:
        spec = {
            "driver": "nic.example.com",
            "pool": {"name": "n0", "generation": 1, "resourceSliceCount": 1},
            "nodeName": "n0",
            "devices": [{"name": "nic-0"}],
        }
        world.create(StoredKind.SLICE, {"metadata": {"name": "nics"}, "spec": spec})
        assert await pokes(world) == 0
        add_device(world, "gpu-1", taints=[{"key": "example.com/broken", "effect": "NoSchedule"}])
        touch_slice(world, 2)
        assert await pokes(world) == 0


async def test_a_change_that_may_concern_any_node_wakes_after_a_turn_that_woke_nobody() -> None:
    async with refused() as world:
        add_device(world, "gpu-1", taints=[{"key": "example.com/broken", "effect": "NoSchedule"}])
        assert await pokes(world) == 0
        world.ledger.state_versions.bump(None)
        add_device(world, "gpu-2")
        assert await pokes(world) == 1


async def test_two_thousand_changes_with_a_queueing_hint_wake_few_times() -> None:
    async with refused() as world:
        add_device(world, "gpu-1")
        for generation in range(2, 2_002):
            touch_slice(world, generation)
            if generation % 20 == 0:
                await asyncio.sleep(0)
        assert 1 <= await pokes(world) <= 20


async def test_a_freed_device_seen_after_the_refusal_wakes() -> None:
    async with refused() as world:
        raw = world.claim("c1")
        raw["status"] = {}
        world.cluster.store.update_status(StoredKind.CLAIM, raw)
        assert await pokes(world) == 1
        assert list((await world.filter("p2", "n0")).fitting) == ["n0"]


async def test_a_missing_claim_that_appears_wakes_if_the_pod_fits_then() -> None:
    async with refused() as world:
        for name in ("p3", "p4"):
            world.add_pod(name, f"late-{name}")
            await world.filter(name, "n0", "n1")
        world.gpus("n1", 1)
        assert await pokes(world) == 0
        world.add_claim("late-p3", count=2)
        assert await pokes(world) == 0
        world.add_claim("late-p4")
        assert await pokes(world) == 1


async def test_a_claim_that_has_room_for_one_more_consumer_wakes_who_waited_for_that() -> None:
    async with started("n0") as world:
        await world.filter("p1", "n0")
        await world.bind_through("p1", "n0")
        full = world.claim("c1")
        others = [
            {"resource": "pods", "name": f"x{index}", "uid": f"x{index}"} for index in range(MAX_RESERVATIONS - 1)
        ]
        full["status"]["reservedFor"] += others
        full = world.cluster.store.update_status(StoredKind.CLAIM, full)
        world.add_pod("p3", "c1")
        assert list((await world.filter("p3", "n0")).fitting) == []
        assert await pokes(world) == 0
        full["status"]["reservedFor"] = full["status"]["reservedFor"][:-1]
        world.cluster.store.update_status(StoredKind.CLAIM, full)
        assert await pokes(world) == 1


async def test_a_class_that_selects_free_devices_now_wakes_and_one_that_does_not_does_not() -> None:
    async with started("n0") as world:
        world.add_claim("c3", class_name="special")
        world.add_pod("p3", "c3")
        assert list((await world.filter("p3", "n0")).fitting) == []
        world.device_class("special", "false")
        assert await pokes(world) == 0
        raw = world.cluster.store.get(Key(StoredKind.CLASS, "", "special"))
        raw["spec"]["selectors"][0]["cel"]["expression"] = f'device.driver == "{DRIVER}"'
        world.update(StoredKind.CLASS, raw)
        assert await pokes(world) == 1


async def test_a_pod_group_that_appears_wakes_its_members(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another group's appearance wakes nobody."""
    async with started("n0") as world:
        monkeypatch.setattr(world.ledger.pod_groups, "served", True)
        world.add_member("team", "member", "c1")
        assert list((await world.filter("member", "n0")).fitting) == []
        world.add_group("other")
        assert await pokes(world) == 0
        world.add_group("team")
        assert await pokes(world) == 1
        assert list((await world.filter("member", "n0")).fitting) == ["n0"]


async def test_a_member_that_makes_its_gang_complete_wakes_the_others() -> None:
    """Also one that kube-scheduler never asks about, because its own filters reject every node for it."""
    async with started("n0", "n1") as world:
        world.add_group("team", 2)
        for name in ("first", "second"):
            world.add_claim(name)
        world.add_member("team", "first", "first")
        assert list((await world.filter("first", "n0", "n1")).fitting) == []
        assert await pokes(world) == 0
        world.add_member("team", "second", "second")
        async with asyncio.timeout(60):
            while not await pokes(world):
                pass
        assert await pokes(world) == 1


async def test_the_end_of_a_hold_wakes_who_was_refused_for_it() -> None:
    async with started("n0", "n1") as world:
        await world.filter("p1", "n0", "n1")
        assert list((await world.filter("p2", "n0", "n1")).fitting) == []
        world.delete(StoredKind.POD, "p1")
        assert await pokes(world) == 1


async def test_a_hold_that_ends_as_an_allocation_wakes_nobody() -> None:
    async with started("n0") as world:
        await world.filter("p1", "n0")
        assert list((await world.filter("p2", "n0")).fitting) == []
        await world.bind_through("p1", "n0")
        assert await pokes(world) == 0


async def test_pods_that_an_earlier_process_rejected_are_woken_once_at_the_start() -> None:
    """After a restart or a change of leader the rejected pods are not known."""
    async with refused() as world:
        await world.extender.stop()
        world.start()
        await world.extender.start()
        assert await pokes(world) == 1
        assert await pokes(world) == 1


async def test_a_wake_up_that_fails_is_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    async with refused() as world:
        wake, failures = world.cluster.waker.wake, [ServerUnavailableError("away"), ServerUnavailableError("away")]

        async def sometimes() -> None:
            if failures:
                raise failures.pop()
            await wake()

        monkeypatch.setattr(world.cluster.waker, "wake", sometimes)
        add_device(world, "gpu-1")
        assert await world.cluster.waker.called_since(0, 10.0)
        assert (failures, await pokes(world)) == ([], 1)


async def test_the_end_of_a_backoff_wakes_the_pod_of_the_device() -> None:
    async with started("n0") as world:
        uid = world.uid("p1")
        world.extender.device_backoff.start(uid, [(DRIVER, "n0", "gpu-0")])
        assert list((await world.filter("p1", "n0")).fitting) == []
        world.clock.seconds += 1.0
        assert await world.cluster.waker.called_since(0, 10.0)
        assert list((await world.filter("p1", "n0")).fitting) == ["n0"]


@pytest.mark.parametrize("asked", [[], ["a"], ["a", "b", "c"], ["a", "b", "c", "d"], ["a", "gone"]])
def test_asked_nodes_are_found_among_others_however_they_are_kept(asked: list[str]) -> None:
    known = dict.fromkeys("abcd")
    kept = EvaluatedNodes(dict.fromkeys(asked), known)
    assert list(kept.among(known)) == [name for name in known if name in asked]
    assert set(asked) != set(known) or kept.names == frozenset()


@pytest.mark.parametrize("asked", [["a"], ["a", "b", "c", "d"]])
def test_a_node_that_comes_later_was_not_asked_about(asked: list[str]) -> None:
    known = dict.fromkeys("abcd")
    kept = EvaluatedNodes(dict.fromkeys(asked), known)
    known["later"] = None
    assert list(kept.among(known)) == asked


async def rejected(*, delivered: bool) -> InMemoryExtender:
    """A world whose extender rejected a pod, which the watch has or has not delivered."""
    world = InMemoryExtender()
    world.node("n0")
    world.device_class()
    world.add_claim("c1")
    if not delivered:
        world.silence("pods")
    world.add_pod("p1", "c1")
    assert list((await world.filter("p1", "n0")).fitting) == []
    assert len(world.extender.unschedulable) == 1
    return world


async def test_a_pod_that_was_deleted_in_a_gap_of_the_watch_is_forgotten_after_a_minute() -> None:
    world = await rejected(delivered=False)
    world.cluster.store.delete(Key(StoredKind.POD, "default", "p1"))
    world.clock.seconds += 59
    world.extender.unschedulable.forget_resolved()
    assert len(world.extender.unschedulable) == 1
    world.clock.seconds += 1
    world.extender.unschedulable.forget_resolved()
    assert len(world.extender.unschedulable) == 0


async def test_a_pod_that_the_watch_has_is_remembered_as_long_as_it_waits() -> None:
    world = await rejected(delivered=True)
    world.clock.seconds += 3600
    world.extender.unschedulable.forget_resolved()
    assert len(world.extender.unschedulable) == 1
    world.delete(StoredKind.POD, "p1")
    world.extender.unschedulable.forget_resolved()
    assert len(world.extender.unschedulable) == 0


async def test_a_pod_waits_since_its_first_rejection_under_the_name_of_its_scheduler() -> None:
    world = await rejected(delivered=True)
    world.clock.seconds += 30
    assert list((await world.filter("p1", "n0")).fitting) == []
    world.clock.seconds += 12
    labels = {"plugin": "DynamicResources", "profile": "dra-extender-scheduler"}
    assert await world.metric("scheduler_unschedulable_pods", **labels) == 1
    assert await world.metric("dra_extender_waiting_pods_longest_seconds") == 42

    world.delete(StoredKind.POD, "p1")
    world.extender.unschedulable.forget_resolved()
    assert await world.metric("dra_extender_waiting_pods_longest_seconds") == 0
    assert world.metrics.registry.get_sample_value("scheduler_unschedulable_pods", labels) is None
