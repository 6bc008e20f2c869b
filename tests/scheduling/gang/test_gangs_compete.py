"""Gangs that want the same devices, scheduled by a loop that behaves as kube-scheduler does with default gates: pod by pod."""

import asyncio
import dataclasses
import random
from collections import Counter
from collections.abc import Mapping, Sequence

import pytest
from dra_extender.scheduling.gang.placements import Pausable
from dra_extender.scheduling.gang.search import Assignment, GangSearch
from dra_extender.scheduling.ports.errors import RetryableError
from dra_extender.simulator.apiserver.objects import Json, StoredKind
from dra_extender.simulator.controllers.claims import ClaimController

from tests.support.scheduling.gangs import GangExtender
from tests.support.turns import turns, until

ROUNDS = 12
MEETING_SECONDS = 60.0


class Busy(GangExtender):
    """A world in which every waiting pod is asked about again and again, in random order, and bound where it is told."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.options = dataclasses.replace(self.options, binding_timeout_seconds=MEETING_SECONDS)
        self.start()
        self.chance = random.Random(seed)
        self.filters: Counter[str] = Counter()
        self.binds: Counter[str] = Counter()

    def of(self, gang: str) -> list[str]:
        return [pod["metadata"]["name"] for pod in self.cluster.store.all(StoredKind.POD) if _group(pod) == gang]

    def bound(self, gang: str) -> int:
        return sum(bool(self.pod(name)["spec"].get("nodeName")) for name in self.of(gang))

    async def schedule(self, pods: Sequence[str], nodes: Sequence[str], rounds: int) -> None:
        """So many rounds; binds go on beside the calls for other pods, as in kube-scheduler."""
        running: dict[str, asyncio.Task[None]] = {}
        async with self.watching():
            for _ in range(rounds):
                for pod in self.chance.sample(pods, len(pods)):
                    if pod not in running and not self.pod(pod)["spec"].get("nodeName"):
                        self.filters[pod] += 1
                        fitting = (await self.filter(pod, *nodes)).fitting
                        if fitting:
                            running[pod] = asyncio.create_task(self._bind(pod, fitting[0]))
                    await asyncio.sleep(0)
                await turns()
                await self._gone_as_far_as_possible(running)
                running = {pod: task for pod, task in running.items() if not task.done()}
            # Members that still wait for others give up.
            self.clock.seconds += MEETING_SECONDS
            await asyncio.gather(*running.values())
        self.sync()

    async def _gone_as_far_as_possible(self, running: Mapping[str, asyncio.Task[None]]) -> None:
        """Returns when each bind has ended or waits for others, so that no round is longer on a machine that is busy."""
        gate = self.extender.permit

        def no_bind_goes_on() -> bool:
            going = sum(not task.done() for task in running.values())
            return going <= sum(len(each.members) for each in gate.waiting_gangs())

        await until(no_bind_goes_on)

    async def _bind(self, pod: str, node: str) -> None:
        self.binds[pod] += 1
        try:
            await self.bind(pod, node)
        except RetryableError:
            await asyncio.sleep(0)


def _group(pod: Json) -> str | None:
    found: str | None = pod["spec"].get("schedulingGroup", {}).get("podGroupName")
    return found


def two_gangs(seed: int) -> Busy:
    """Devices for four halves, and two gangs that want three each."""
    world = Busy(seed)
    for node in ("n1", "n2"):
        world.cards(node, 1)
    for gang in "xy":
        world.gang(gang, 3)
        for index in range(3):
            world.member(gang, f"{gang}{index}", "half")
    return world


@pytest.mark.parametrize("seed", range(6))
async def test_one_gang_gets_all_and_the_other_nothing_in_few_attempts(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one that waits writes nothing, is not planned anew without a reason, and wakes nobody."""
    plans: list[int] = []
    original = GangSearch.solve

    def counted(plan: GangSearch, needed: int) -> Pausable[Mapping[str, Assignment] | None]:
        plans.append(needed)
        return original(plan, needed)

    monkeypatch.setattr(GangSearch, "solve", counted)
    world = two_gangs(seed)
    await world.extender.start()
    await asyncio.sleep(0)
    before = world.cluster.waker.calls
    try:
        await world.schedule([*world.of("x"), *world.of("y")], ["n1", "n2"], ROUNDS)
        wakes = world.cluster.waker.calls - before
        attempts, planned = world.filters.total(), len(plans)
        await world.schedule(world.of("x") + world.of("y"), ["n1", "n2"], ROUNDS)
    finally:
        await world.extender.stop()
    assert sorted(world.bound(gang) for gang in "xy") == [0, 3]
    (loser,) = [gang for gang in "xy" if not world.bound(gang)]
    (winner,) = {"x", "y"} - {loser}
    assert all(world.filters[pod] == world.binds[pod] == 1 for pod in world.of(winner))
    assert not any(world.binds[pod] or world.devices(pod) for pod in world.of(loser))
    assert attempts <= 3 + 3 * ROUNDS
    assert wakes <= 3
    assert planned <= 12
    assert len(plans) == planned


async def test_the_gang_that_waited_gets_all_when_the_other_one_is_gone() -> None:
    world = two_gangs(0)
    await world.schedule([*world.of("x"), *world.of("y")], ["n1", "n2"], 4)
    (loser,) = [gang for gang in "xy" if not world.bound(gang)]
    (winner,) = {"x", "y"} - {loser}
    for pod in world.of(winner):
        world.delete(StoredKind.POD, pod)
    ClaimController(world.cluster.store).reconcile()
    world.sync()
    await world.schedule(world.of(loser), ["n1", "n2"], 4)
    assert world.bound(loser) == 3


@pytest.mark.parametrize("seed", range(8))
async def test_of_many_gangs_each_is_bound_whole_or_not_at_all(seed: int) -> None:
    """Whatever they want, and whichever of their members is asked about first."""
    world = Busy(seed)
    chance = random.Random(seed)
    nodes = [f"n{index}" for index in range(3)]
    for node in nodes:
        world.cards(node, chance.randint(1, 2), whole=chance.random() < 0.7)
    sizes = {gang: chance.randint(2, 4) for gang in "uvwxyz"}
    for gang, size in sizes.items():
        world.gang(gang, size)
        for index in range(size):
            world.member(gang, f"{gang}{index}", chance.choice(["half", "any", "whole"]))
    pods = [pod for gang in sizes for pod in world.of(gang)]
    await world.schedule(pods, nodes, ROUNDS)
    assert all(world.bound(gang) in (0, size) for gang, size in sizes.items())
    assert any(world.bound(gang) for gang in sizes)
    for gang in sizes:
        if not world.bound(gang):
            assert all(not world.devices(pod) for pod in world.of(gang))
    audit(world)


def audit(world: Busy) -> None:
    """No device is given twice."""
    given = [
        device for pod in world.cluster.store.all(StoredKind.CLAIM) for device in world.devices(pod["metadata"]["name"])
    ]
    assert len(given) == len(set(given))
