"""A device that just failed for a pod is left alone by that pod for a while: others are tried first, and its end is told."""

import asyncio

import pytest
from dra_extender.scheduling.evaluation.backoff import DeviceBackoff
from dra_extender.scheduling.ports.errors import RetryableError
from dra_extender.scheduling.ports.options import Options
from dra_extender.simulator.apiserver.objects import StoredKind

from tests.support.scheduling.gangs import GangExtender
from tests.support.scheduling.reclaiming import OPTIONS, condition, edit_status, pass_by, small_world
from tests.support.scheduling.world import CONDITIONS, DRIVER, InMemoryExtender, Steady
from tests.support.turns import turns

COOL_DOWN = 20.0


@pytest.fixture
def world() -> InMemoryExtender:
    world = InMemoryExtender(Options(hold_wait_seconds=0.0, watch_lag_seconds=30.0, device_backoff_seconds=COOL_DOWN))
    world.node("n1")
    world.node("n2")
    world.slice("n1", [{"name": "gpu-0", **CONDITIONS}, {"name": "gpu-1", **CONDITIONS}])
    world.device_class()
    world.add_claim("c1")
    world.add_pod("p1", "c1")
    return world


async def fails(world: InMemoryExtender, device: str, pod: str = "p1", claim: str = "c1") -> None:
    """The pod's bind waits for this device, which then reports failure."""
    bind = asyncio.create_task(world.bind(pod, "n1"))
    await turns()
    assert world.devices(claim) == [f"n1/{device}"]
    stored = world.claim(claim)
    condition = {"type": "Failed", "status": "True", "reason": "Test", "message": "no port"}
    stored["status"]["devices"] = [{"driver": DRIVER, "pool": "n1", "device": device, "conditions": [condition]}]
    world.cluster.store.update_status(StoredKind.CLAIM, stored)
    with pytest.raises(
        RetryableError, match=f"binding conditions failed: device {DRIVER}/n1/{device} reports Failed: no port"
    ):
        await bind
    assert world.devices(claim) == []


async def test_other_devices_are_tried_first_and_a_pod_that_has_none_is_told_so_until_the_end(
    world: InMemoryExtender,
) -> None:
    """A bind without a hold leaves the devices alone, too."""
    async with world.watching():
        await fails(world, "gpu-0")
        assert list((await world.filter("p1", "n1", "n2")).fitting) == ["n1"]
        await fails(world, "gpu-1")
        with pytest.raises(RetryableError, match="does not fit on node n1 any more"):
            await world.bind("p1", "n1")
        answer = await world.filter("p1", "n1", "n2")
        assert answer.unresolvable["n1"] == (
            "node(s): devices have just failed for this pod and are left alone for a while"
        )
        assert "no devices on the node" in answer.unresolvable["n2"]
        world.clock.seconds += COOL_DOWN
        assert list((await world.filter("p1", "n1")).fitting) == ["n1"]


async def test_other_pods_may_have_the_device(world: InMemoryExtender) -> None:
    world.add_claim("c2")
    world.add_pod("p2", "c2")
    async with world.watching():
        await fails(world, "gpu-0")
        assert list((await world.filter("p2", "n1")).fitting) == ["n1"]
        await fails(world, "gpu-0", "p2", "c2")


async def test_end_is_told_even_if_the_timer_comes_before_the_time_has_passed() -> None:
    """The event loop's clock and ours need not agree to the last digit."""
    clock, told = Steady(), asyncio.Event()
    backoff = DeviceBackoff(clock, 0.01, lambda _: told.set())
    backoff.start("pod", [(DRIVER, "n1", "gpu-0")])
    await turns()
    assert not told.is_set()
    clock.seconds += 0.01
    await asyncio.wait_for(told.wait(), 60)
    assert not backoff.devices_of("pod")


async def test_without_a_backoff_the_device_is_tried_again_at_once(world: InMemoryExtender) -> None:
    world.options = Options(hold_wait_seconds=0.0, watch_lag_seconds=30.0, device_backoff_seconds=0)
    world.start()
    async with world.watching():
        await fails(world, "gpu-0")
        await fails(world, "gpu-0")


async def test_gang_is_planned_around_a_device_that_failed_for_a_member() -> None:
    world = GangExtender()
    world.node("n1")
    world.slice("n1", [{"name": f"gpu-{index}"} for index in range(3)])
    world.gang("g", 2, "any", ("a", "b"))
    world.extender.device_backoff.start(world.uid("a"), [(DRIVER, "n1", "gpu-0")])
    for name in ("a", "b"):
        assert list((await world.filter(name, "n1")).fitting) == ["n1"]
    held = world.ledger.holds.held_usage.pool((DRIVER, "n1"))
    assert sorted(held) == ["gpu-1", "gpu-2"]


@pytest.mark.parametrize("how", ["failed", "late"])
async def test_a_device_that_is_given_back_while_nobody_binds_is_left_alone_too(how: str) -> None:
    """The process was started anew meanwhile, or kube-scheduler was away."""
    world = small_world()
    await world.abandoned("p1", "n3")
    if how == "failed":
        edit_status(world, lambda status: status.update(devices=[condition(world, "Failed")]))
    else:
        world.clock.seconds += OPTIONS.binding_timeout_seconds + 1
    await pass_by(world, OPTIONS.reclaim_unfit_seconds)
    assert world.devices("c1") == []
    answer = await world.filter("p1", "n3")
    assert "devices have just failed for this pod" in str(answer.unresolvable)
    world.clock.seconds += OPTIONS.device_backoff_seconds
    assert list((await world.filter("p1", "n3")).fitting) == ["n3"]
