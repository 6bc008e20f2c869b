"""A gang gets all its devices or none, whichever member comes first, and whatever else is waiting."""

import asyncio
from typing import Any

import pytest
from dra_extender.allocator.state.reasons import SearchPaused
from dra_extender.ledger import hold_book
from dra_extender.scheduling.gang import coordinator
from dra_extender.scheduling.gang.members import GangSnapshot, take_snapshot
from dra_extender.simulator.apiserver.objects import StoredKind

from tests.support.scheduling.gangs import GangExtender, whole_against_halves
from tests.support.scheduling.world import DRIVER


@pytest.fixture
def world() -> GangExtender:
    return GangExtender()


async def test_no_member_is_offered_anything_where_the_gang_does_not_fit(world: GangExtender) -> None:
    world.cards("n1", 1)
    world.gang("g", 3, "half", "abc")
    assert await world.ask("abc", "n1") == {"a": [], "b": [], "c": []}
    assert not len(world.ledger.holds)
    assert "PodGroup g: no placement for 3 of 3 waiting members at once" in world.messages("a")[0]


async def test_a_member_that_does_not_fit_alone_is_rejected_with_its_own_reason(world: GangExtender) -> None:
    world.cards("n1", 1, whole=False)
    world.gang("g", 2)
    world.member("g", "a", "half")
    world.member("g", "b", "whole")
    assert await world.ask("ab", "n1") == {"a": [], "b": []}
    assert "PodGroup g: no placement for 2 of 2 waiting members at once" in world.messages("a")[0]
    assert 'size is "half", wanted "whole"' in world.messages("b")[0]
    assert not len(world.ledger.holds)


async def test_too_few_members_are_rejected_with_their_numbers(world: GangExtender) -> None:
    world.cards("n1", 2)
    world.gang("g", 3, "half", "ab")
    assert await world.ask("a", "n1") == {"a": []}
    assert "PodGroup g: 3 more members needed, 2 can be placed" in world.messages("a")[0]


async def test_a_plan_whose_devices_are_gone_is_dropped_with_all_holds(world: GangExtender) -> None:
    pods = whole_against_halves(world)
    await world.ask(pods, "n1", "n2")
    world.delete(StoredKind.SLICE, "n2-devices")
    assert await world.ask(["a"], "n1", "n2") == {"a": []}
    assert not len(world.ledger.holds)


async def test_members_beyond_the_minimum_may_stay_out(world: GangExtender) -> None:
    world.cards("n1", 1)
    world.gang("g", 2, "half", "abc")
    offered = await world.ask("abc", "n1")
    assert sorted(map(len, offered.values())) == [0, 1, 1]


async def test_members_beyond_the_minimum_come_too_where_all_fit(world: GangExtender) -> None:
    """And not those alone that come first in the search."""
    pods = whole_against_halves(world)
    world.gang("g", 2)
    assert all((await world.ask(pods, "n1", "n2")).values())


async def test_members_with_extended_resources_are_planned_with_the_others_and_bound_as_planned() -> None:
    """Where a device plugin serves the member no device is planned for it; elsewhere its claim is made by the bind."""
    world = GangExtender()
    world.device_class("half", f'device.attributes["{DRIVER}"].size == "half"', extendedResourceName="example.com/half")
    world.cards("n1", 1)
    world.node("n2", **{"example.com/half": "1"})
    world.gang("g", 3)
    world.member("g", "whole", "half")
    world.extended_member("g", "a", "example.com/half")
    world.extended_member("g", "b", "example.com/half")
    seats = await world.ask(("a", "b", "whole"), "n1", "n2")
    assert sorted(node for each in seats.values() for node in each) == ["n1", "n1", "n2"]
    assert seats["whole"] == ["n1"]
    async with world.watching():
        await asyncio.gather(*(world.bind(pod, node) for pod, (node,) in seats.items()))
    claims = world.cluster.store.all(StoredKind.CLAIM)
    assert len(claims) == 2
    results = [each["status"]["allocation"]["devices"]["results"][0] for each in claims]
    assert {(each["pool"], each["device"]) for each in results} == {("n1", "half-a-0"), ("n1", "half-b-0")}


@pytest.mark.parametrize("pauses", [0, 1])
async def test_a_deleted_member_leaves_too_few_also_if_the_plan_without_it_pauses(
    world: GangExtender, monkeypatch: pytest.MonkeyPatch, pauses: int
) -> None:
    """Or the other member would get devices beside the first one, for a gang that cannot start."""
    for node in ("n1", "n2", "n3"):
        world.cards(node, 1)
    world.gang("g", 3, "whole", "abc")
    assert await world.ask("a", "n1", "n2", "n3") == {"a": ["n1"]}
    left = [SearchPaused] * pauses

    def snapshot(*arguments: Any) -> GangSnapshot:
        if left:
            raise left.pop()
        return take_snapshot(*arguments)

    monkeypatch.setattr(coordinator, "take_snapshot", snapshot)
    world.delete(StoredKind.POD, "c")
    assert await world.ask("b", "n1", "n2", "n3") == {"b": []}
    assert "PodGroup g: 2 more members needed, 1 can be placed" in world.messages("b")[0]


async def test_the_plan_of_a_group_ends_with_the_first_plan_of_the_one_that_replaces_it(world: GangExtender) -> None:
    world.cards("n1", 2)
    world.gang("g", 2, "whole", "ab")
    assert await world.ask("a", "n1") == {"a": ["n1"]}
    world.gang("g", 2, uid="another")
    assert await world.ask("a", "n1") == {"a": ["n1"]}
    (plan,) = world.extender.hold_reporter.report(leads=True).plans
    assert {member.pod for member in plan.members} == {"default/a", "default/b"}


async def test_a_member_gets_its_node_although_the_hold_of_its_shared_claim_ends_for_its_other_claim(
    world: GangExtender, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A namespace that has as many holds as it may have loses the oldest one."""
    monkeypatch.setattr(hold_book, "MOST_OF_A_NAMESPACE", 1)
    world.cards("n1", 2)
    for claim in ("shared", "own"):
        world.add_claim(claim)
    world.add_pod("other", "shared")
    world.gang("g", 1)
    world.add_member("g", "a", "shared", "own")
    assert await world.ask(["other", "a"], "n1") == {"other": ["n1"], "a": ["n1"]}
