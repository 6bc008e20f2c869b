"""What members of a gang were offered is kept across plans, so that members with different nodes come together soon."""

import asyncio
import itertools
import random
from collections import Counter
from collections.abc import Mapping, Sequence

import msgspec
import pytest
from dra_extender.ledger.ledger import Ledger
from dra_extender.ledger.sinks import sinks_of
from dra_extender.model.allocation import ClaimPlacement, DeviceHolding
from dra_extender.model.device import DeviceId
from dra_extender.model.pod_group import PodGroup, read_pod_group
from dra_extender.scheduling.evaluation.backoff import DeviceBackoff
from dra_extender.scheduling.gang.offers import GangOffers, OfferedNodes
from dra_extender.scheduling.gang.placements import Pausable, PlacementOracle

from tests.support.scheduling.gangs import GangExtender
from tests.support.scheduling.world import Steady


def together(offered: Mapping[str, Sequence[str]], room: Mapping[str, int]) -> bool:
    """Whether each member can have a node that it is offered, found out by trying everything."""
    return any(all(seats.count(node) <= room[node] for node in seats) for seats in itertools.product(*offered.values()))


@pytest.mark.parametrize("seed", range(60))
async def test_a_gang_that_fits_what_its_members_are_offered_is_placed_within_two_rounds(seed: int) -> None:
    """And one that does not is refused whole.  A round asks every member once, in any order, each with its own nodes."""
    chance = random.Random(seed)
    room = {f"n{index}": chance.randint(0, 2) for index in range(chance.randint(2, 4))}
    world = GangExtender()
    for node, count in room.items():
        world.cards(node, count)
    pods = [f"p{index}" for index in range(chance.randint(2, 6))]
    world.gang("g", len(pods), "whole", pods)
    offered = {pod: chance.sample(list(room), chance.randint(1, len(room))) for pod in pods}
    for last in (False, True):
        answers: dict[str, list[str]] = {}
        for pod in chance.sample(pods, len(pods)):
            answers |= await world.ask([pod], *offered[pod])
            assert set(answers[pod]) <= set(offered[pod])
            assert_nothing_is_held_twice(world, pods)
        if last:
            assert all(answers.values()) is together(offered, room)
            assert any(answers.values()) is together(offered, room)


def assert_nothing_is_held_twice(world: GangExtender, pods: Sequence[str]) -> None:
    taken = [
        (result.pool, result.device)
        for pod in pods
        for hold in world.ledger.holds.of_pod(world.uid(pod))
        for placement in hold.placements.values()
        for result in placement.allocation.devices.results
    ]
    assert len(taken) == len(set(taken))


async def test_a_rejected_member_is_woken_when_it_gets_an_assignment() -> None:
    world = GangExtender()
    for node in ("n1", "n2"):
        world.cards(node, 1)
    await world.extender.start()
    await asyncio.sleep(0)
    world.gang("g", 2, "whole", "ab")
    try:
        assert await world.ask("a", "n1") == {"a": []}
        calls = world.cluster.waker.calls
        assert await world.ask("b", "n2") == {"b": ["n2"]}
        await world.cluster.waker.called_since(calls, 5.0)
        assert world.cluster.waker.calls > calls
        assert 'dra_extender_scheduler_wakes_total{reason="gang"}' in (await world.metrics.render()).decode()
        assert await world.ask("a", "n1") == {"a": ["n1"]}
    finally:
        await world.extender.stop()


async def test_a_member_that_is_not_offered_its_planned_node_leaves_other_assignments() -> None:
    world = GangExtender()
    for node in ("n0", "n1", "n2", "n3"):
        world.cards(node, 1)
    world.gang("g", 3, "whole", "abc")
    assert await world.ask("a", "n0", "n1", "n2") == {"a": ["n0"]}
    assert await world.ask("b", "n3") == {"b": ["n3"]}
    assert await world.ask("c", "n2") == {"c": ["n2"]}
    seats = {"a": ["n0"], "b": ["n3"], "c": ["n2"]}
    assert await world.ask("abc", "n0", "n3", "n2") == seats


@pytest.mark.parametrize("how", ["all the same", "halves", "one each", "too many"])
async def test_twice_the_gang_on_twice_the_nodes_takes_about_twice_the_questions(
    how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over all members and two rounds, whatever they are offered."""
    asked = Counter[int]()
    original = PlacementOracle.ask
    asked_questions: list[str] = []

    def counted(
        places: PlacementOracle,
        claims: Sequence[str],
        node: str,
        kept: Sequence[DeviceHolding],
        without: frozenset[DeviceId],
    ) -> Pausable[Mapping[str, ClaimPlacement] | None]:
        asked_questions.append(node)
        return original(places, claims, node, kept, without)

    monkeypatch.setattr(PlacementOracle, "ask", counted)
    for size in (10, 20):
        asked_questions.clear()
        world = GangExtender()
        nodes = [f"n{index:02}" for index in range(size - (how == "too many"))]
        for node in nodes:
            world.cards(node, 1)
        world.gang("g", size)
        pods = [f"p{index:02}" for index in range(size)]
        for pod in pods:
            world.member("g", pod, "whole")
        offered = dict.fromkeys(pods, nodes)
        if how == "halves":
            offered = {pod: nodes[index % 2 :: 2] for index, pod in enumerate(pods)}
        elif how == "one each":
            offered = {pod: [node] for pod, node in zip(pods, nodes, strict=True)}
        for _ in range(2):
            answers = {pod: (await world.ask([pod], *offered[pod]))[pod] for pod in pods}
        assert all(bool(each) is (how != "too many") for each in answers.values())
        asked[size] = len(asked_questions)
    assert 0 < asked[20] <= 2.5 * asked[10] + 5


class Notes:
    """A ledger with nodes, and a group."""

    def __init__(self) -> None:
        self.ledger = Ledger()
        self._versions = iter(range(1, 1000))
        for index in range(4):
            self.node(f"n{index}")

    def node(self, name: str) -> None:
        meta = {"name": name, "uid": name, "resourceVersion": str(next(self._versions))}
        sinks_of(self.ledger)["nodes"].changed(msgspec.json.encode({"metadata": meta}))

    def group(self, uid: str = "u", name: str = "g") -> PodGroup:
        return read_pod_group(msgspec.json.encode({"metadata": {"namespace": "ns", "name": name, "uid": uid}}))

    def offers(self, *limits: int, **more: int) -> GangOffers:
        return GangOffers(self.ledger, DeviceBackoff(Steady(), 0.0, print), *limits, **more)

    def among(self, offers: GangOffers, group: PodGroup, *nodes: str) -> OfferedNodes:
        """What is known when "a" is asked about."""
        return offers.among(group, "a", nodes)


@pytest.fixture
def notes() -> Notes:
    return Notes()


def test_a_member_not_asked_about_yet_counts_as_offered_what_the_first_one_was(notes: Notes) -> None:
    offers, group = notes.offers(), notes.group()
    offers.record(group, "a", ["n0", "n1"])
    offers.record(group, "b", ["n2"])
    known = notes.among(offers, group, "n0", "n1")
    assert [sorted(known.to(pod)) for pod in "abc"] == [["n0", "n1"], ["n2"], ["n0", "n1"]]
    assert known.to("a") is known.to("c")
    assert known.nodes == ("n0", "n1", "n2")


def test_of_a_node_that_has_changed_since_only_newer_offers_say_anything(notes: Notes) -> None:
    offers, group = notes.offers(), notes.group()
    offers.record(group, "b", ["n0", "n2"])
    notes.node("n1")
    notes.node("n2")
    offers.record(group, "a", ["n1", "n3"])
    known = notes.among(offers, group, "n1", "n3")
    assert known.to("b") == {"n0", "n1"}


def test_members_and_nodes_that_are_gone_are_forgotten(notes: Notes) -> None:
    offers, group = notes.offers(), notes.group()
    for pod in "abc":
        offers.record(group, pod, ["n0", "n1"] if pod == "a" else ["n2"])
    sinks_of(notes.ledger)["nodes"].deleted("", "n0", "n0")
    sinks_of(notes.ledger)["pods"].deleted("ns", "b", "b")
    known = notes.among(offers, group, "n1")
    assert known.nodes == ("n1", "n2")
    assert (offers.last(group, "b"), offers.last(group, "c")) == ((), {"n2"})


def test_a_group_made_anew_knows_nothing_of_the_old_one(notes: Notes) -> None:
    offers = notes.offers()
    offers.record(notes.group(), "b", ["n0"])
    assert offers.last(notes.group("other"), "b") == ()
    assert notes.among(offers, notes.group("other"), "n1").to("b") == {"n1"}
    offers.record(notes.group("other"), "b", ["n1"])
    assert offers.last(notes.group("other"), "b") == {"n1"}


def names_kept(offers: GangOffers) -> int:
    return sum(
        len(known.order) + sum(map(len, {id(each.nodes): each.nodes for each in known.offers.values()}.values()))
        for known in offers._gangs.values()
    )


@pytest.mark.parametrize("seed", range(20))
def test_names_kept_are_counted_and_bounded_whatever_gangs_are_offered(seed: int) -> None:
    chance = random.Random(seed)
    notes = Notes()
    nodes = [f"n{index}" for index in range(12)]
    for node in nodes:
        notes.node(node)
    gangs = [notes.group(f"u{index}", f"g{index}") for index in range(6)]
    offers = notes.offers(5, most_names=150)
    for _ in range(300):
        group, member = chance.choice(gangs), f"p{chance.randrange(20)}"
        offered = chance.sample(nodes, chance.randint(1, len(nodes)))
        offers.record(group, member, offered)
        assert set(offers.last(group, member)) == set(offered)
        if chance.random() < 0.2:
            offers.among(chance.choice(gangs), member, nodes)
        assert offers.names == names_kept(offers) <= 150


def test_a_gang_with_many_different_offers_forgets_its_own_and_no_others() -> None:
    notes = Notes()
    nodes = [f"n{index}" for index in range(40)]
    for node in nodes:
        notes.node(node)
    quiet, hostile = notes.group("quiet", "quiet"), notes.group("hostile", "hostile")
    offers = notes.offers(most_names=1_000)
    offers.record(quiet, "a", nodes[:30])

    for index in range(500):
        offers.record(hostile, f"p{index}", nodes[: index % 40] + nodes[index % 40 + 1 :])

    assert set(offers.last(quiet, "a")) == set(nodes[:30])
    assert offers.names <= 1_000
