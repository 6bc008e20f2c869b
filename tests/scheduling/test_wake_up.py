import asyncio

from app.scheduling.options import Options
from app.simulator.objects import Key, Kind
from tests.scheduling.world import World

QUICK = Options(settle_wait_seconds=0.0, wake_delay_seconds=0.0, wake_interval_seconds=0.0)


async def settled(world: World) -> int:
    """Deliver what waits and let the wake-up task act; the number of pokes so far."""
    world.sync()
    for _ in range(10):
        await asyncio.sleep(0.005)
    return world.cluster.waker.calls


async def refused() -> World:
    world = World(QUICK)
    world.node("n0")
    world.gpus("n0", 1)
    world.device_class()
    for name in ("1", "2"):
        world.add_claim(f"c{name}")
        world.add_pod(f"p{name}", f"c{name}")
    async with world.watching():
        await world.filter("p1", "n0")
        await world.bind("p1", "n0")
        await world.cluster.watch.caught_up()
    assert list((await world.filter("p2", "n0")).fitting) == []
    await world.extender.start()
    return world


async def test_a_quiet_cluster_is_not_poked() -> None:
    world = await refused()
    try:
        assert await settled(world) == 0
    finally:
        await world.extender.stop()


async def test_a_changed_slice_wakes_kube_scheduler_once() -> None:
    world = await refused()
    try:
        raw = world.cluster.store.get(Key(Kind.SLICE, "", "n0-devices"))
        raw["spec"]["devices"].append({"name": "gpu-1"})
        world.update(Kind.SLICE, raw)

        assert await settled(world) == 1
        assert await settled(world) == 1
    finally:
        await world.extender.stop()


async def test_a_burst_of_slice_changes_is_told_few_times() -> None:
    world = await refused()
    try:
        for generation in range(2, 200):
            raw = world.cluster.store.get(Key(Kind.SLICE, "", "n0-devices"))
            raw["spec"]["pool"]["generation"] = generation
            world.update(Kind.SLICE, raw)

        assert 1 <= await settled(world) <= 3
    finally:
        await world.extender.stop()


async def test_a_freed_device_seen_after_the_refusal_wakes() -> None:
    world = await refused()
    try:
        raw = world.claim("c1")
        raw["status"] = {}
        world.cluster.store.update_status(Kind.CLAIM, raw)

        assert await settled(world) == 1
        assert list((await world.filter("p2", "n0")).fitting) == ["n0"]
    finally:
        await world.extender.stop()


async def test_a_change_that_concerns_nobody_waiting_does_not_wake() -> None:
    world = await refused()
    try:
        world.delete(Kind.POD, "p2")
        raw = world.cluster.store.get(Key(Kind.SLICE, "", "n0-devices"))
        raw["spec"]["devices"].append({"name": "gpu-1"})
        world.update(Kind.SLICE, raw)

        assert await settled(world) == 0
    finally:
        await world.extender.stop()


async def test_a_missing_claim_that_appears_wakes() -> None:
    world = await refused()
    try:
        world.add_pod("p3", "late")
        await world.filter("p3", "n0")
        before = await settled(world)
        world.add_claim("late")

        assert await settled(world) == before + 1
    finally:
        await world.extender.stop()


async def test_the_end_of_a_hold_wakes_who_was_refused_for_it() -> None:
    world = World(QUICK)
    for node in ("n0", "n1"):
        world.node(node)
        world.gpus(node, 1)
    world.device_class()
    for name in ("1", "2"):
        world.add_claim(f"c{name}")
        world.add_pod(f"p{name}", f"c{name}")
    await world.filter("p1", "n0", "n1")
    await world.filter("p2", "n0", "n1")
    await world.extender.start()
    try:
        world.delete(Kind.POD, "p1")

        assert await settled(world) == 1
    finally:
        await world.extender.stop()
