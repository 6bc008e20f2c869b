"""A gang that has lost a member keeps its devices no longer than the grace of reclaim, also if its claims are allocated already."""

import asyncio
import dataclasses
from collections.abc import AsyncIterator

import pytest
from dra_extender.scheduling.gang.permit import WaitingMembers
from dra_extender.scheduling.ports.errors import RetryableError
from dra_extender.simulator.apiserver.objects import StoredKind

from tests.support.scheduling.gangs import GangExtender
from tests.support.scheduling.reclaiming import GRACE, pass_by, reclaimed
from tests.support.turns import until

LACKING = "PodGroup g: 1 more members needed, 0 can be placed"


class LostMemberExtender(GangExtender):
    """A gang of three, each with a card of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.options = dataclasses.replace(self.options, reclaim_pause_seconds=0.0)
        self.start()
        self.cards("n1", 2)
        self.gang("g", 3, "half", "abc")

    async def allocated(self, *pods: str) -> None:
        """The claims of these are allocated, and nobody waits for their binds any more."""
        for pod in pods:
            await self.abandoned(pod)
            assert self.devices(pod)

    def restart(self) -> None:
        """A new process, which hears of the gang first."""
        self.start()
        self.gang("g", 3)
        self.sync()


@pytest.fixture
async def world() -> AsyncIterator[LostMemberExtender]:
    made = LostMemberExtender()
    async with made.watching():
        await made.ask("abc", "n1")
        yield made


@pytest.mark.parametrize("restarted", [False, True])
async def test_members_with_allocated_claims_are_refused_without_one_and_give_back_their_devices_after_the_grace(
    world: LostMemberExtender, *, restarted: bool
) -> None:
    await world.allocated("a", "b", "c")
    world.delete(StoredKind.POD, "c")
    if restarted:
        world.restart()
    assert await world.ask("ab", "n1") == {"a": [], "b": []}
    assert LACKING in world.messages("a")[-1]
    await pass_by(world, GRACE - 1)
    assert world.devices("a")
    await pass_by(world, 1)
    assert not any(map(world.devices, "ab"))
    assert await reclaimed(world, "pod_idle") == 2


async def test_with_another_member_the_gang_is_offered_its_nodes_again(world: LostMemberExtender) -> None:
    await world.allocated("a", "b", "c")
    world.delete(StoredKind.POD, "c")
    assert await world.ask("ab", "n1") == {"a": [], "b": []}
    world.member("g", "d", "half")
    assert await world.ask("abd", "n1") == {"a": ["n1"], "b": ["n1"], "d": ["n1"]}
    await asyncio.gather(*(world.bind(pod, "n1") for pod in "abd"))


async def test_members_at_the_gate_release_their_devices_after_the_grace(world: LostMemberExtender) -> None:
    first = [asyncio.create_task(world.bind(pod, "n1")) for pod in "ab"]
    await arrived(world, 2)
    world.delete(StoredKind.POD, "c")
    await wait_out(world, first)
    for bind in first:
        with pytest.raises(RetryableError, match="PodGroup g: 2 of 3 members exist for 30 s"):
            await bind
    world.sync()
    assert not any(map(world.devices, "ab"))


async def test_members_at_the_gate_keep_their_devices_for_one_that_is_replaced_within_the_grace(
    world: LostMemberExtender,
) -> None:
    first = [asyncio.create_task(world.bind(pod, "n1")) for pod in "ab"]
    await arrived(world, 2)
    world.delete(StoredKind.POD, "c")
    await counted(world)
    world.member("g", "d", "half")
    world.clock.seconds += GRACE
    await counted(world)
    assert not any(bind.done() for bind in first)
    assert await world.ask("d", "n1") == {"d": ["n1"]}
    await asyncio.gather(*first, world.bind("d", "n1"))


async def test_members_that_follow_a_bound_one_are_not_refused(world: LostMemberExtender) -> None:
    """As the gate has it: while a member is bound, those that follow pass alone."""
    await asyncio.gather(*(world.bind(pod, "n1") for pod in "abc"))
    world.member("g", "late", "half")
    await world.ask(["late"], "n1")
    await world.abandoned("late")
    for pod in "bc":
        world.delete(StoredKind.POD, pod)
    world.sync()
    assert await world.ask(["late"], "n1") == {"late": ["n1"]}
    await world.bind("late", "n1")


async def test_a_refused_member_is_woken_when_the_gang_is_complete(world: LostMemberExtender) -> None:
    await world.allocated("a", "b", "c")
    world.delete(StoredKind.POD, "c")
    assert await world.ask("ab", "n1") == {"a": [], "b": []}
    before = world.ledger.changes.claims
    world.sync()
    assert world.ledger.changes.claims == before
    world.member("g", "d", "half")
    assert world.ledger.changes.claims > before


async def test_a_claim_that_members_share_stays_held_for_a_later_one_when_the_first_is_lost() -> None:
    world = GangExtender()
    world.cards("n1", 1, whole=False)
    world.gang("g", 1)
    for claim in ("shared", "own", "other"):
        world.add_claim(claim)
    world.add_member("g", "a", "shared")
    assert await world.ask("a", "n1") == {"a": ["n1"]}
    world.add_member("g", "b", "shared", "own")
    world.add_pod("rival", "other")
    assert await world.ask("b", "n1") == {"b": ["n1"]}
    world.delete(StoredKind.POD, "a")
    assert await world.ask(["rival"], "n1") == {"rival": []}
    await world.bind_through("b", "n1")
    assert sorted(world.devices("shared") + world.devices("own")) == ["n1/half-a-0", "n1/half-b-0"]


def meeting(world: LostMemberExtender) -> WaitingMembers | None:
    """The members that wait."""
    return world.extender.permit.waiting_gang("g-uid")


async def arrived(world: LostMemberExtender, count: int) -> None:
    """So many members stand at the gate."""

    def came() -> int:
        found = meeting(world)
        return 0 if found is None else len(found.members)

    await until(lambda: came() >= count)


async def counted(world: LostMemberExtender) -> None:
    """Those that wait have counted the members as they are now."""
    world.clock.seconds += 3
    found = meeting(world)
    assert found is not None
    before = found.counted
    # A recheck happens to a bind now and then in any case.
    await until(lambda: found.counted > before, world.extender.binder.recheck)


async def wait_out(world: LostMemberExtender, binds: list[asyncio.Task[None]]) -> None:
    """Let time pass until these binds are over."""

    def pass_by() -> None:
        world.clock.seconds += 3
        world.extender.binder.recheck()

    await until(lambda: all(bind.done() for bind in binds), pass_by)
