"""A namespace whose pods take long searches does not delay the pods of others by more than its share."""

import asyncio
import itertools
from collections.abc import Sequence
from functools import partial
from typing import Any

import pytest
from dra_extender.allocator.allocate import NodeSearch
from dra_extender.allocator.explain.device_diagnosis import RequestSurvey
from dra_extender.cel.budget import EXPLANATION_COST, Budget
from dra_extender.scheduling.evaluation.node_allocator import NodeAllocator
from dra_extender.scheduling.ports.errors import RetryableError
from dra_extender.scheduling.ports.filter_response import FilterResponse
from dra_extender.scheduling.ports.options import Options, PlacementPolicy
from dra_extender.simulator.apiserver.objects import Json, Key, StoredKind

from tests.controlplane.objects import request
from tests.support.model.reading import pod_from
from tests.support.scheduling.world import DRIVER, InMemoryExtender, Ticking

TICK = 0.001
SLOT = f"{DRIVER}/slot"
NUMBER = f"{DRIVER}/number"
VALUES = 11


def slots() -> list[dict[str, Any]]:
    """Twice as many devices as they have values."""
    return [
        {"name": f"d{i}", "attributes": {"slot": {"int": i % VALUES}, "number": {"int": i}}} for i in range(2 * VALUES)
    ]


class Neighbours(InMemoryExtender):
    """Two namespaces on one node with twelve devices in eleven slots, and one with plenty of others."""

    def __init__(self, options: Options | None = None) -> None:
        super().__init__(options or Options(hold_wait_seconds=0.0))
        self.clock = Ticking(TICK)
        self.start()
        self.node("hard")
        self.slice("hard", slots())
        self.node("easy")
        self.gpus("easy", 64)
        self.device_class()

    def attacker(self, number: int, namespace: str = "attacker") -> str:
        """A pod that wants twelve devices in different slots, each wish with a selector of its own."""
        return self.apart(f"a{number}", VALUES + 1, number + 99, namespace)

    def apart(self, name: str, count: int, number: int, namespace: str = "attacker") -> str:
        """A pod that wants so many devices in different slots; selectors differ with `number`."""
        has_slot = f'has(device.attributes["{DRIVER}"].slot)'
        requests = [request(f"r{i}", "gpu", f"{has_slot} && {i} < {number}") for i in range(count)]
        # With the second constraint it matters which devices were picked, not only which slots.
        return self._pod(
            name, namespace, *requests, constraints=[{"distinctAttribute": each} for each in (SLOT, NUMBER)]
        )

    def picky(self, number: int, namespace: str = "attacker") -> str:
        """A pod that wants a device that does not exist."""
        return self._pod(f"p{number}", namespace, request("r", "gpu", f'device.driver == "none-{number}"'))

    def victim(self, number: int) -> str:
        """A pod that wants one device."""
        return self._pod(f"v{number}", "victim", request("r", "gpu"))

    def _pod(self, name: str, namespace: str, *requests: Json, **devices: Any) -> str:
        self.add_claim_of(name, *requests, namespace=namespace, **devices)
        self.add_pod(name, name, namespace=namespace)
        return f"{namespace}/{name}"

    async def ask(self, key: str, *nodes: str) -> FilterResponse | RetryableError:
        """What the filter answers, or the error."""
        namespace, name = key.split("/")
        pod = pod_from(self.cluster.store.get(Key(StoredKind.POD, namespace, name)))
        try:
            return await self.extender.filter(pod, nodes)
        except RetryableError as unfinished:
            return unfinished

    async def time_of(self, keys: Sequence[str], *nodes: str) -> float:
        """The time that one call for each of these pods takes altogether."""
        before = self.clock.seconds
        for key in keys:
            await self.ask(key, *nodes)
        return self.clock.seconds - before


async def test_many_namespaces_with_endless_searches_take_no_more_than_the_share_of_all() -> None:
    world = Neighbours()
    world.victim(0)
    attackers = [world.attacker(i, f"attacker-{i}") for i in range(30)]
    began = world.clock.seconds
    taken = 0.0
    for key in attackers:
        taken += await world.time_of((key,), "hard")
        world.clock.seconds += 0.1
    assert taken <= 0.5 + 0.3 * (world.clock.seconds - began) + 30 * 0.03


async def test_nodes_that_are_found_in_time_are_offered_although_another_one_takes_too_long() -> None:
    world = Neighbours()
    world.node("other")
    others = [{"name": f"o{i}", "attributes": {"slot": {"int": i}, "number": {"int": i}}} for i in range(VALUES + 1)]
    world.slice("other", others)
    world.victim(0)
    answer = await world.ask(world.attacker(0), "hard", "other")
    assert isinstance(answer, FilterResponse)
    assert list(answer.fitting) == ["other"]


async def test_a_pod_that_waits_alone_searches_as_long_as_a_call_may() -> None:
    world = Neighbours(Options(hold_wait_seconds=0.0, filter_budget_seconds=1.0))
    attacker = world.attacker(0)
    for _ in range(2):
        assert 0.95 < await world.time_of((attacker,), "hard") < 1.1


async def test_pods_of_one_namespace_that_wait_for_each_other_search_for_a_share_of_the_time() -> None:
    """They would pile up in kube-scheduler's queue, and a pod of another namespace would find itself behind all of them."""
    world = Neighbours()
    attackers = [world.attacker(i) for i in range(20)]
    taken, began = 0.0, world.clock.seconds
    for i in range(40):
        taken += await world.time_of((attackers[i % 20],), "hard")
        world.clock.seconds += 0.05
    # What is saved up at first, half of the time, and the slices that every call has, which looks at the clock beside them.
    assert taken <= 0.5 + 0.5 * (world.clock.seconds - began) + 40 * (0.02 + 10 * TICK)
    last = await world.time_of(attackers, "hard")
    assert last <= 0.5 + 0.5 * last + 20 * (0.02 + 10 * TICK)


async def test_an_unfinished_search_has_the_same_text_in_each_call_whatever_was_found_by_then() -> None:
    """kube-scheduler writes a text that is new into the pod before it goes on to the next pod."""
    world = Neighbours(Options(hold_wait_seconds=0.0, search_burst_seconds=0.001))
    for extra in range(3):
        world.node(f"hard-{extra}")
        world.slice(f"hard-{extra}", slots())
    world.victim(0)
    attacker = world.attacker(0)
    nodes = ["hard", *(f"hard-{extra}" for extra in range(3))]
    answers = [await world.ask(attacker, *nodes[: 1 + i % 4]) for i in range(8)]
    assert all(isinstance(each, RetryableError) for each in answers)
    assert len(set(map(str, answers))) == 1
    assert "has used up" in str(answers[0]) or "time was up" in str(answers[0])
    assert len(world.extender.unschedulable) == 0


async def test_the_details_of_refusals_are_taken_off_the_share_of_the_namespace(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Who has used it up is given fewer details, and no further slices."""
    world = Neighbours(Options(hold_wait_seconds=0.0))
    world.victim(0)
    allowed: list[int] = []
    survey = NodeAllocator.survey

    def slow(self: NodeAllocator, *args: Any, budget: Budget, **options: Any) -> Sequence[RequestSurvey]:
        allowed.append(budget.remaining)
        world.clock.seconds += 0.01
        return survey(self, *args, budget=budget, **options)

    monkeypatch.setattr(NodeAllocator, "survey", slow)
    for i in range(80):
        assert isinstance(await world.ask(world.picky(i), "easy"), FilterResponse)
    assert allowed[0] == EXPLANATION_COST
    assert allowed[-1] == EXPLANATION_COST // 10
    assert await world.time_of((world.attacker(0),), "hard") < 20 * TICK


async def test_a_search_that_is_given_up_goes_on_in_the_next_call_until_its_limit_is_cached(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(f"{NodeAllocator.__module__}.NodeSearch", partial(NodeSearch, max_steps=20_000))
    world = Neighbours(Options(hold_wait_seconds=0.0, filter_budget_seconds=0.25))
    attacker = world.attacker(0)
    calls = 1
    while isinstance(answer := await world.ask(attacker, "hard"), RetryableError):
        calls += 1
        assert calls < 20
    assert "stopped at its limit" in answer.unresolvable["hard"]
    assert calls > 2
    # The search looks at the clock once in 16 steps.
    assert await world.time_of((attacker,), "hard") < 20 * TICK


async def test_a_slice_is_over_after_bounded_work_and_everything_else_goes_on() -> None:
    world = Neighbours(Options(hold_wait_seconds=0.0, filter_budget_seconds=0.5))
    turns: list[float] = []
    asking = asyncio.ensure_future(world.ask(world.attacker(0), "hard"))
    while not asking.done():
        await asyncio.sleep(0)
        turns.append(world.clock.seconds)
    longest = max(after - before for before, after in itertools.pairwise(turns))
    assert len(turns) > 15
    assert longest <= 0.02 + 20 * TICK


async def test_a_search_is_within_its_share_when_a_pod_of_another_namespace_was_here_a_moment_ago() -> None:
    world = Neighbours(Options(hold_wait_seconds=0.0, filter_budget_seconds=0.6))
    victim = world.victim(0)
    await world.ask(victim, "easy")
    world.cluster.store.delete(Key(StoredKind.POD, *victim.split("/")))
    world.sync()
    share = await world.time_of([world.attacker(i) for i in range(2)], "hard")
    assert share < 0.5 + 0.2 + 2 * 0.03
    world.clock.seconds += 30.0
    assert await world.time_of((world.attacker(2), world.attacker(3)), "hard") > 1.1


async def test_metrics_tell_from_whose_share_the_time_was_taken_and_how_often_searches_went_on() -> None:
    world = Neighbours(Options(hold_wait_seconds=0.0, filter_budget_seconds=0.3, placement=PlacementPolicy.UPSTREAM))

    async def lanes() -> dict[str, float]:
        await world.metrics.render()
        found = ("slice", "namespace", "all_namespaces", "alone")
        name = "dra_extender_search_seconds_total"
        return {lane: world.metrics.registry.get_sample_value(name, {"lane": lane}) or 0.0 for lane in found}

    def resumed() -> float:
        return world.metrics.registry.get_sample_value("dra_extender_searches_resumed_total") or 0.0

    victim = world.victim(0)
    await world.ask(victim, "easy")
    first = await lanes()
    assert first.pop("slice") > 0.0
    assert not any(first.values())
    world.cluster.store.delete(Key(StoredKind.POD, *victim.split("/")))
    world.sync()
    world.clock.seconds += 30.0
    # Nobody else waits: it takes all of its time, and it does not matter to whom that belongs.
    taken = await world.time_of((world.attacker(0),), "hard")
    alone = await lanes()
    assert 0.5 * taken < alone["alone"] == alone["namespace"] <= taken
    assert not alone["all_namespaces"]
    assert resumed() >= 10
    world.victim(1)
    before = resumed()
    taken = await world.time_of((world.attacker(1),), "hard")
    shared = await lanes()
    assert shared["all_namespaces"] == pytest.approx(shared["namespace"] - alone["namespace"])
    assert 0.5 * taken < shared["all_namespaces"] <= taken
    assert shared["alone"] == alone["alone"]
    assert resumed() > before
