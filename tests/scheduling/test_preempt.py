import asyncio

from dra_extender.scheduling.ports.options import Options

from tests.support.model.reading import pod_from
from tests.support.scheduling.world import InMemoryExtender


async def prepared() -> InMemoryExtender:
    """Two nodes with one device each, taken by `low`; `other` uses the device of n1 as well."""
    world = InMemoryExtender(Options(new_claim_wait_seconds=0.0))
    world.furnish(n0=1, n1=1, low0="low0", low1="low1", high="high", other="low1")
    async with world.watching():
        await world.bind("low0", "n0")
        await world.bind("low1", "n1")
        await world.bind("other", "n1")
        await world.cluster.watch.caught_up()
    return world


async def test_nodes_are_kept_only_where_the_victims_free_enough_devices() -> None:
    world = await prepared()
    victims = {"n0": [world.uid("low0")], "n1": [world.uid("low1")]}

    kept = await world.extender.preempt(pod_from(world.pod("high")), victims)

    assert kept == {"n0": [world.uid("low0")]}


async def test_a_claim_is_free_when_all_its_consumers_are_victims() -> None:
    world = await prepared()
    victims = {"n1": [world.uid("low1"), world.uid("other")]}

    assert (await world.extender.preempt(pod_from(world.pod("high")), victims)) == victims


async def test_a_pod_without_claims_changes_nothing() -> None:
    world = await prepared()
    world.add_pod("plain")
    victims = {"n0": [world.uid("low0")], "unknown": ["x"]}

    assert await world.extender.preempt(pod_from(world.pod("plain")), victims) == victims


async def test_a_pod_whose_claim_is_missing_preempts_nobody() -> None:
    world = await prepared()
    world.add_pod("lost", "missing")

    assert await world.extender.preempt(pod_from(world.pod("lost")), {"n0": [world.uid("low0")]}) == {}


async def test_a_claim_that_is_just_being_made_is_waited_for() -> None:
    world = InMemoryExtender(Options(new_claim_wait_seconds=5.0)).furnish(n0=1)
    world.add_pod("urgent", "late")
    asked = asyncio.create_task(world.extender.preempt(pod_from(world.pod("urgent")), {"n0": ["victim"]}))
    await asyncio.sleep(0)
    world.add_claim("late")

    assert await asked == {"n0": ["victim"]}
