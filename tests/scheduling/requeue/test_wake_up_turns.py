"""Which refused pods are looked at after a change, and which of them are a reason to wake kube-scheduler."""

from functools import partial

import pytest
from dra_extender.allocator.allocate import NodeSearch
from dra_extender.model.pod import Pod
from dra_extender.scheduling.filter import Filter
from dra_extender.scheduling.ports.filter_response import FilterResponse
from dra_extender.scheduling.ports.options import Options, PlacementPolicy
from dra_extender.simulator.apiserver.objects import Key, StoredKind

from tests.scheduling.holds.test_hold_fairness import Tenants
from tests.scheduling.time_slices.test_fairness import VALUES, Neighbours
from tests.scheduling.time_slices.test_search_pauses import relabelled, resumed
from tests.support.scheduling.world import InMemoryExtender

LOOK_SECONDS = 0.06


def touch(world: InMemoryExtender, node: str) -> None:
    """A change on this node that helps nobody."""
    raw = world.cluster.store.get(Key(StoredKind.SLICE, "", f"{node}-devices"))
    raw["spec"]["pool"]["generation"] += 1
    world.update(StoredKind.SLICE, raw)


class Waiting(Tenants):
    """Refused pods of several namespaces, each of which takes all the time of a look."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.looked: list[str] = []
        self.fitting: set[str] = set()
        monkeypatch.setattr(Filter, "may_fit", lambda _, pod, *args: self._may_fit(pod))
        super().__init__(nodes=1, devices=1)

    def _may_fit(self, pod: Pod) -> bool:
        self.looked.append(pod.key)
        self.clock.seconds += LOOK_SECONDS
        return pod.key in self.fitting

    async def refused(self, **pods: int) -> None:
        """So many pods of each namespace."""
        for namespace, count in pods.items():
            for number in range(count):
                assert not await self.ask(self.make(namespace, f"p{number}", count=2))

    async def look(self) -> None:
        """One look."""
        await self.extender.waker.wake_if_one_fits()


async def test_namespaces_take_turns_in_looks_however_many_pods_they_have_waiting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = Waiting(monkeypatch)
    await world.refused(a=20, b=1, c=2)
    for _ in range(9):
        touch(world, "n0")
        await world.look()
    assert [key[0] for key in world.looked] == list("abcabcabc")


async def test_changes_that_do_not_end_leave_out_no_pod_of_a_namespace(monkeypatch: pytest.MonkeyPatch) -> None:
    world = Waiting(monkeypatch)
    await world.refused(a=5, b=1)
    for _ in range(10):
        touch(world, "n0")
        await world.look()
    assert set(world.looked) == {*(f"a/p{number}" for number in range(5)), "b/p0"}


async def test_a_pod_that_is_far_behind_in_its_namespace_wakes_kube_scheduler_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = Waiting(monkeypatch)
    await world.refused(a=5, b=5)
    world.fitting = {"b/p4"}
    touch(world, "n0")
    looks = 0
    while not world.cluster.waker.calls:
        await world.look()
        looks += 1
        assert looks <= 10


async def test_a_pod_whose_search_ended_at_the_counted_limit_wakes_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "dra_extender.scheduling.evaluation.node_allocator.NodeSearch", partial(NodeSearch, max_steps=300)
    )
    world = Neighbours(Options(hold_wait_seconds=0.0, placement=PlacementPolicy.UPSTREAM))
    answer = await world.ask(world.attacker(0), "hard")
    assert isinstance(answer, FilterResponse)
    assert "stopped at its limit" in answer.unresolvable["hard"]
    await world.extender.waker.wake_if_one_fits()
    for number in range(3):
        relabelled(world, "hard", [(index + number) % VALUES for index in range(2 * VALUES)])
        before = searched(world)
        await world.extender.waker.wake_if_one_fits()
        assert searched(world) > before
    assert world.cluster.waker.calls == 0
    relabelled(world, "hard", range(2 * VALUES))
    await world.extender.waker.wake_if_one_fits()
    assert world.cluster.waker.calls == 1


async def test_a_search_that_is_not_finished_wakes_nobody_and_goes_on_in_the_next_look(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        "dra_extender.scheduling.evaluation.node_allocator.NodeSearch", partial(NodeSearch, max_steps=20_000)
    )
    upstream = PlacementPolicy.UPSTREAM
    world = Neighbours(
        Options(hold_wait_seconds=0.0, filter_budget_seconds=1e6, search_slice_seconds=1e5, placement=upstream)
    )
    attacker = world.attacker(0)
    assert isinstance(await world.ask(attacker, "hard"), FilterResponse)
    await world.extender.waker.wake_if_one_fits()
    relabelled(world, "hard", [(index + 1) % VALUES for index in range(2 * VALUES)])
    for number in range(1, 11):
        await world.extender.waker.wake_if_one_fits()
        assert resumed(world) >= number - 1
    assert resumed(world) >= 9
    assert world.cluster.waker.calls == 0
    relabelled(world, "hard", range(2 * VALUES))
    await world.extender.waker.wake_if_one_fits()
    assert world.cluster.waker.calls == 1


def searched(world: InMemoryExtender) -> float:
    """The time that looks have taken so far."""
    return world.metrics.registry.get_sample_value("dra_extender_search_seconds_total", {"lane": "wake_up"}) or 0.0
