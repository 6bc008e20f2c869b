"""What changes between two slices of a search is seen by the answer, whichever verb asked."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from random import Random
from typing import Any

from dra_extender.scheduling.ports.filter_response import FilterResponse
from dra_extender.scheduling.ports.options import Options
from dra_extender.simulator.apiserver.objects import Json, Key, StoredKind

from tests.controlplane.objects import request
from tests.scheduling.time_slices.test_fairness import TICK, VALUES, Neighbours, slots
from tests.support.model.reading import pod_from
from tests.support.scheduling.gangs import GangExtender
from tests.support.scheduling.world import DRIVER, InMemoryExtender, Ticking

SLICED = Options(
    hold_wait_seconds=0.0,
    filter_budget_seconds=1e6,
    search_slice_seconds=3 * TICK,
    search_burst_seconds=1e6,
    search_alone_share=1.0,
)
CALL = Options(hold_wait_seconds=0.0, filter_budget_seconds=1e6, search_slice_seconds=1e5)


def resumed(world: InMemoryExtender) -> float:
    """How many paused searches went on so far."""
    return world.metrics.registry.get_sample_value("dra_extender_searches_resumed_total") or 0.0


async def paused(world: InMemoryExtender, call: asyncio.Task[Any]) -> None:
    """Returns when the call has paused some searches, and has not ended."""
    while resumed(world) < 5:
        assert not call.done()
        await asyncio.sleep(0)
    assert not call.done()


def taken(world: InMemoryExtender, name: str, node: str, devices: Iterable[str]) -> None:
    """Another writer allocates these devices to a claim of its own."""
    raw = world.add_claim_of(name, request("r", "gpu"), namespace="other")
    results = [{"request": "r", "driver": DRIVER, "pool": node, "device": device} for device in devices]
    raw["status"] = {"allocation": {"devices": {"results": results}}}
    world.cluster.store.update_status(StoredKind.CLAIM, raw)
    world.sync()


def relabelled(world: InMemoryExtender, node: str, values: Sequence[int]) -> None:
    """The driver publishes the slots of a node's devices anew."""
    raw = world.cluster.store.get(Key(StoredKind.SLICE, "", f"{node}-devices"))
    for device, value in zip(raw["spec"]["devices"], values, strict=True):
        device["attributes"]["slot"]["int"] = value
    raw["spec"]["pool"]["generation"] += 1
    world.update(StoredKind.SLICE, raw)


def given(raw: Json) -> list[str]:
    """The devices of a claim."""
    return [each["device"] for each in raw["status"]["allocation"]["devices"]["results"]]


async def test_bind_gives_what_is_free_when_its_search_ends_and_not_what_was_free_when_it_began() -> None:
    world = Neighbours(SLICED)
    name = world.attacker(0).partition("/")[2]
    uid = world.cluster.store.get(Key(StoredKind.POD, "attacker", name))["metadata"]["uid"]
    async with world.watching():
        binding = asyncio.create_task(world.extender.bind("attacker", name, uid, "hard", asyncio.Event()))
        await paused(world, binding)
        # It fits only now, and not with the devices that a search takes first.
        relabelled(world, "hard", range(2 * VALUES))
        gone = {"d0", "d1", "d5"}
        taken(world, "rival", "hard", gone)
        await binding
    devices = given(world.cluster.store.get(Key(StoredKind.CLAIM, "attacker", name)))
    assert len(set(devices)) == VALUES + 1
    assert gone.isdisjoint(devices)


async def test_preempt_drops_a_node_that_was_good_before_a_pause_and_is_not_any_more() -> None:
    world = Neighbours(SLICED)
    world.node("fine")
    world.slice("fine", slots())
    relabelled(world, "fine", range(2 * VALUES))
    pod = pod_from(world.cluster.store.get(Key(StoredKind.POD, *world.attacker(0).split("/"))))
    victims = {"fine": ["x"], "hard": ["x"]}

    async def asked() -> Mapping[str, Sequence[str]]:
        return await world.extender.preempt(pod, victims)

    call = asyncio.create_task(asked())
    await paused(world, call)
    relabelled(world, "hard", range(2 * VALUES))
    taken(world, "rival", "fine", [f"d{i}" for i in range(VALUES)])
    assert await call == {"hard": ["x"]}


async def test_filter_answers_for_the_last_state_whatever_changed_between_its_slices() -> None:
    """A new service, asked about that state in one slice, says the same."""
    went_on = 0.0
    for seed in range(6):
        chance, world = Random(seed), _Small()
        world.start_with(SLICED)
        call = asyncio.create_task(world.ask(world.wanted, *world.names))
        for number in range(30):
            await asyncio.sleep(0)
            if call.done():
                break
            world.change(chance, number)
        answer = await call
        went_on += resumed(world)
        assert isinstance(answer, FilterResponse)
        world.start_with(CALL)
        fresh = await world.ask(world.wanted, *world.names)
        assert isinstance(fresh, FilterResponse)
        assert sorted(answer.fitting) == sorted(fresh.fitting), seed
        assert answer.unresolvable == fresh.unresolvable, seed
    assert went_on > 50


class _Small(Neighbours):
    """Three nodes on which a search for six devices in different slots takes several slices."""

    def __init__(self) -> None:
        super().__init__()
        self.names = ["s0", "s1", "s2"]
        for name in self.names:
            self.node(name)
            devices = [
                {"name": f"d{i}", "attributes": {"slot": {"int": i % 5}, "number": {"int": i}}} for i in range(10)
            ]
            self.slice(name, devices)
        self.wanted = self.apart("wanted", 6, 99)

    def start_with(self, options: Options) -> None:
        """A new process with these options and another clock."""
        self.options, self.clock = options, Ticking(TICK)
        self.start()

    def change(self, chance: Random, number: int) -> None:
        """Something happens to one of the nodes, or nothing."""
        node = chance.choice(self.names)
        what = chance.random()
        if what < 0.4:
            relabelled(self, node, [chance.randrange(7) for _ in range(10)])
        elif what < 0.6:
            taken(self, f"rival-{number}", node, [f"d{number % 10}"])
        elif what < 0.7:
            for raw in self.cluster.store.all(StoredKind.CLAIM):
                if raw["metadata"]["name"].startswith("rival"):
                    self.cluster.store.delete(Key(StoredKind.CLAIM, "other", raw["metadata"]["name"]))
                    break
            self.sync()


class _Gang(GangExtender):
    """Twelve nodes with a card each, and a gang of eight that wants whole cards; its plan takes many slices."""

    def __init__(self) -> None:
        super().__init__()
        self.clock, self.options = Ticking(TICK), SLICED
        self.start()
        self.names = [f"n{index:02}" for index in range(12)]
        for name in self.names:
            self.cards(name, 1)
        self.members = [f"m{index}" for index in range(8)]
        self.gang("g", 8, "whole", self.members)

    def seats(self) -> dict[str, list[str]]:
        """The nodes on which something is held, by pod."""
        holds = self.ledger.holds
        return {
            name: [node for hold in holds.of_pod(self.uid(name)) for node in hold.placements] for name in self.members
        }


async def test_a_gang_is_seated_on_what_is_free_when_its_plan_ends() -> None:
    before = _Gang()
    first = list((await before.filter("m0", *before.names)).fitting)
    planned = {node for nodes in before.seats().values() for node in nodes}
    assert len(planned) == 8
    world = _Gang()
    call = asyncio.create_task(world.filter("m0", *world.names))
    for _ in range(3):
        await asyncio.sleep(0)
        assert not call.done()
    gone = sorted(planned)[:4]
    for node in gone:
        taken(world, f"rival-{node}", node, ["whole-0"])
    seat = list((await call).fitting)
    seats = [node for nodes in world.seats().values() for node in nodes]
    assert first
    assert seat
    assert sorted(seats) == sorted(set(world.names) - set(gone))
