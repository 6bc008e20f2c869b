"""KEP-5007 switched off: devices with binding conditions are like others, and no bind waits for what a claim was allocated with."""

import asyncio

import pytest
from dra_extender.allocator.state.features import Features
from dra_extender.scheduling.ports.errors import RetryableError
from dra_extender.scheduling.ports.options import Options
from dra_extender.simulator.apiserver.objects import Json

from tests.support.scheduling.world import CONDITIONS, InMemoryExtender

OFF = Features(device_binding_and_status=False)


def a_world(*, on: bool) -> InMemoryExtender:
    world = InMemoryExtender(Options(hold_wait_seconds=0.0, watch_lag_seconds=30.0, device_backoff_seconds=0))
    if not on:
        world.features = OFF
        world.start()
    world.node("n1")
    world.slice("n1", [{"name": "gpu-0", **CONDITIONS, "bindsToNode": True}])
    world.device_class()
    world.add_claim("c1")
    world.add_pod("p1", "c1")
    return world


def restart_with(world: InMemoryExtender, features: Features) -> None:
    world.features = features
    world.start()


async def results(world: InMemoryExtender) -> list[Json]:
    return list(world.claim("c1")["status"]["allocation"]["devices"]["results"])


async def test_a_device_with_conditions_is_chosen_and_bound_at_once() -> None:
    world = a_world(on=False)
    async with world.watching():
        assert list((await world.filter("p1", "n1")).fitting) == ["n1"]
        await asyncio.wait_for(world.bind("p1", "n1"), 30)
    assert world.node_of("p1") == "n1"
    assert [set(each) & set(CONDITIONS) for each in await results(world)] == [set()]


async def test_a_claim_that_was_allocated_with_conditions_is_waited_for_no_more() -> None:
    world = a_world(on=True)
    await world.killed()
    assert (await results(world))[0]["bindingConditions"] == ["Attached"]
    restart_with(world, OFF)
    async with world.watching():
        assert list((await world.filter("p1", "n1")).fitting) == ["n1"]
        await asyncio.wait_for(world.bind("p1", "n1"), 30)
    assert world.node_of("p1") == "n1"


async def test_a_failed_device_of_a_shared_claim_is_no_reason_to_refuse_while_off_and_one_again_when_on() -> None:
    world = a_world(on=True)
    async with world.watching():
        bind = await world.waiting()
        world.report("Attached")
        await bind
        world.report("Failed")
        await world.cluster.watch.caught_up()
    world.add_pod("p2", "c1")
    restart_with(world, OFF)
    async with world.watching():
        assert list((await world.filter("p2", "n1")).fitting) == ["n1"]
    restart_with(world, Features())
    async with world.watching():
        answer = await world.filter("p2", "n1")
        assert "not ready in time, and other pods use it" in answer.unresolvable["n1"]
        with pytest.raises(RetryableError, match="binding conditions failed"):
            await world.bind("p2", "n1")
    restart_with(world, OFF)
    async with world.watching():
        await asyncio.wait_for(world.bind("p2", "n1"), 30)
    assert world.node_of("p2") == "n1"


async def test_reclaim_leaves_a_claim_alone_whose_conditions_are_late_while_off() -> None:
    world = a_world(on=True)
    await world.killed()
    world.clock.seconds += world.options.binding_timeout_seconds + 1
    restart_with(world, OFF)
    claim = world.ledger.claims.by_uid(world.claim("c1")["metadata"]["uid"])
    assert claim is None or claim.claim.status.allocation is not None
    async with world.watching():
        await world.cluster.watch.caught_up()
        known = world.ledger.claims.by_uid(world.claim("c1")["metadata"]["uid"])
        assert known is not None
        found = world.extender.reclaim.facts.find(known.claim, frozenset())
        assert found is None or "device" not in found.releasable.reason.value
