"""Planning for a large group leaves the event loop to other tasks, and what happens meanwhile is respected."""

import asyncio

from dra_extender.scheduling.podgroup_claims.plan import MEMBERS_PER_TURN
from dra_extender.simulator.apiserver.objects import Key, StoredKind
from dra_extender.simulator.controllers.claims import create_claim

from tests.support.scheduling.grouped import GROUP
from tests.support.scheduling.making_groups import GPU, ClaimMakingExtender

BATCHES = 3
ENTRY = {"name": "gpu", "resourceClaimTemplateName": "template"}


def large_world() -> ClaimMakingExtender:
    """A group with two members more than two batches."""
    world = ClaimMakingExtender()
    world.group(GPU)
    for number in range((BATCHES - 1) * MEMBERS_PER_TURN + 2):
        world.member(f"p{number}", GPU)
    world.sync()
    return world


async def test_other_tasks_get_a_turn_after_each_batch() -> None:
    world = large_world()
    turns = 0

    async def count_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count_turns())
    world.extender.group_claims.begin()
    world.extender.group_claims.sweep()
    await world.extender.group_claims.reconcile_due()
    counting.cancel()

    assert turns >= BATCHES - 1


async def test_a_stop_during_a_plan_ends_the_work_without_a_further_write() -> None:
    """A claim that another controller created would make this one withdraw its own."""
    world = large_world()
    store = world.cluster.store
    while not world.made("gpu"):
        await world.work(seconds=0.25, step=0.25)
    (ours,) = world.made("gpu")
    create_claim(
        store,
        StoredKind.POD_GROUP,
        store.get(Key(StoredKind.POD_GROUP, "default", GROUP)),
        ENTRY,
    )
    world.sync()
    controller = world.extender.group_claims
    controller.sweep()
    reconciling = asyncio.create_task(controller.reconcile_due())
    await asyncio.sleep(0)
    assert not reconciling.done()
    before = store.version
    await controller.stop()
    await reconciling

    assert store.version == before
    assert ours in world.made("gpu")
