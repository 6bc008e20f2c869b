"""A gang that never comes together keeps devices from others for a bounded time, and gives them up as a whole."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from dra_extender.scheduling.holds.fairness import LEAST_STALE_SECONDS, MOST_STALE_SECONDS
from dra_extender.scheduling.holds.stale_holds import PERMIT_SECONDS
from dra_extender.scheduling.ports.errors import RetryableError

from tests.support.scheduling.gangs import GangExtender
from tests.support.scheduling.world import DRIVER
from tests.support.turns import turns

NODES = ("n1", "n2")


@pytest.fixture(params=[True, False], ids=["gang", "pod"])
async def world(request: pytest.FixtureRequest) -> AsyncIterator[GangExtender]:
    """Two cards, of which a gang of three halves takes both; `victim`, a gang of one or a pod, wants a whole one."""
    made = GangExtender()
    for node in NODES:
        made.cards(node, 1)
    made.gang("g", 3, "half", "abc")
    if request.param:
        made.gang("alone", 1)
        made.member("alone", "victim", "whole")
    else:
        made.add_claim("victim", selector=f'device.attributes["{DRIVER}"].size == "whole"')
        made.add_pod("victim", "victim")
    async with made.watching():
        yield made


def held(world: GangExtender) -> int:
    return sum(bool(world.ledger.holds.of_pod(world.uid(name))) for name in "abc")


async def test_plan_of_a_gang_whose_members_do_not_come_is_revoked_as_a_whole(world: GangExtender) -> None:
    assert (await world.ask("a", *NODES))["a"]
    assert held(world) == 3
    assert await world.ask(["victim"], *NODES) == {"victim": []}
    assert held(world) == 3

    world.clock.seconds += MOST_STALE_SECONDS + 0.1

    assert (await world.ask(["victim"], *NODES))["victim"]
    assert held(world) == 0


async def test_plan_of_a_gang_whose_members_come_one_after_the_other_is_kept(world: GangExtender) -> None:
    for name in "abc":
        assert (await world.ask(name, *NODES))[name]
        world.clock.seconds += LEAST_STALE_SECONDS * 0.9
        assert await world.ask(["victim"], *NODES) == {"victim": []}
    assert held(world) == 3


async def test_gang_that_is_told_the_same_seats_again_and_again_makes_no_progress(world: GangExtender) -> None:
    for _ in range(20):
        await world.ask("a", *NODES)
        world.clock.seconds += 0.5
        if (await world.ask(["victim"], *NODES))["victim"]:
            return
    pytest.fail("the victim never fitted")


async def test_members_at_the_gate_give_their_devices_back_for_a_pod_that_fits_only_then(world: GangExtender) -> None:
    seats = await world.ask("ab", *NODES)
    binds = [asyncio.create_task(world.bind(name, seats[name][0])) for name in "ab"]
    await turns()
    assert not any(bind.done() for bind in binds)
    await world.cluster.watch.caught_up()
    assert world.devices("a")
    assert world.devices("b")
    world.clock.seconds += PERMIT_SECONDS - 1
    assert await world.ask(["victim"], *NODES) == {"victim": []}
    assert not any(each.done() for each in binds)

    world.clock.seconds += 2
    await world.ask(["victim"], *NODES)

    outcomes = await asyncio.gather(*binds, return_exceptions=True)
    assert all(isinstance(each, RetryableError) for each in outcomes)
    await world.cluster.watch.caught_up()
    assert (world.devices("a"), world.devices("b"), held(world)) == ([], [], 0)
    assert (await world.ask(["victim"], *NODES))["victim"]


async def test_members_at_the_permit_give_their_devices_back_for_a_gang_when_nothing_is_held() -> None:
    world = GangExtender()
    for node in NODES:
        world.cards(node, 1)
    world.gang("g", 3, "half", "abc")
    world.gang("pair", 2, "whole", ("first", "second"))
    async with world.watching():
        seats = await world.ask("ab", *NODES)
        binds = [asyncio.create_task(world.bind(name, seats[name][0])) for name in "ab"]
        await turns()
        await world.cluster.watch.caught_up()
        world.clock.seconds += world.extender.binder.options.hold_seconds + 1

        await world.ask(["first"], *NODES)
        assert held(world) == 0

        await turns()
        assert all(bind.done() and isinstance(bind.exception(), RetryableError) for bind in binds)
        await world.cluster.watch.caught_up()
        assert all((await world.ask(["first", "second"], *NODES)).values())
