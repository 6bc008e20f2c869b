"""Pods that are filtered and never bound keep devices from others for a bounded time only; pods that are bound keep theirs."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from dra_extender.ledger.hold_book import Hold
from dra_extender.model.allocation import AllocationResult, ClaimPlacement, DeviceHolding
from dra_extender.model.pod import Pod
from dra_extender.scheduling.holds.fairness import ALLOWANCE, LONGEST_PAUSE, MOST_STALE_SECONDS, HoldFairness
from dra_extender.scheduling.ports.errors import RetryableError
from dra_extender.scheduling.ports.options import Options
from dra_extender.simulator.apiserver.objects import Json, Key, StoredKind
from hypothesis import example, given, target
from hypothesis import strategies as st

from tests.support.examples import examples
from tests.support.model.reading import pod_from
from tests.support.scheduling.world import InMemoryExtender

NODES, DEVICES = 4, 2
PLACEMENT = ClaimPlacement(
    allocation=AllocationResult(),
    holdings=(DeviceHolding(driver="gpu.example.com", pool="n0", device="gpu-0"),),
)


class Tenants(InMemoryExtender):
    """Pods with a claim of their own in several namespaces, asked about and bound one after the other."""

    def __init__(self, nodes: int = NODES, devices: int = DEVICES, options: Options | None = None) -> None:
        super().__init__(options)
        self.names = [f"n{index}" for index in range(nodes)]
        self.furnish(**dict.fromkeys(self.names, devices))

    def make(self, namespace: str, name: str, count: int = 1, **spec: Any) -> Pod:
        self.add_claim(name, count=count, namespace=namespace)
        return pod_from(self.add_pod(name, name, namespace=namespace, **spec))

    async def ask(self, pod: Pod) -> Sequence[str] | None:
        """The nodes that the pod is offered; None for the answer that it shall be asked about later."""
        try:
            return (await self.extender.filter(pod, self.names)).fitting
        except RetryableError:
            return None

    async def bound(self, pod: Pod, node: str) -> None:
        await self.extender.bind(pod.namespace, pod.name, pod.uid, node, asyncio.Event())

    def held(self, pod: Pod) -> int:
        """How many devices are held for the pod, on all nodes."""
        return sum(len(self.ledger.holds.holdings(each.claim_uid)) for each in self.ledger.holds.of_pod(pod.uid))

    def allocated(self) -> list[str]:
        found = []
        for raw in self.cluster.store.all(StoredKind.CLAIM):
            allocation = raw.get("status", {}).get("allocation") or {}
            found += [f"{each['pool']}/{each['device']}" for each in allocation.get("devices", {}).get("results", [])]
        return found


async def test_offers_shrink_to_one_node_and_then_to_a_pause_while_others_wait() -> None:
    world = Tenants(nodes=8, devices=2, options=Options(hold_wait_seconds=0.0, offered_nodes=8))
    attacker, victim = world.make("a", "attacker", 2), world.make("v", "victim", 2)
    other = world.make("w", "other", 2)
    assert len(await world.ask(attacker) or ()) == 8
    assert not await world.ask(victim)

    assert len(await world.ask(attacker) or ()) == 1
    assert world.held(attacker) == 2
    assert await world.ask(victim)
    assert not await world.ask(other)

    assert await world.ask(attacker) is None
    assert world.held(attacker) == 0
    world.clock.seconds += LONGEST_PAUSE
    assert len(await world.ask(attacker) or ()) == 1


async def test_pod_that_is_never_bound_keeps_all_its_offers_while_nobody_else_wants_them() -> None:
    world = Tenants(nodes=8, devices=2, options=Options(hold_wait_seconds=0.0, offered_nodes=8))
    pod, mate = world.make("a", "pod", 2), world.make("a", "mate", 2)
    for _ in range(20):
        assert len(await world.ask(pod) or ()) == 8
        await world.ask(mate)
        world.clock.seconds += 0.1


async def test_stale_hold_is_revoked_for_a_pod_that_fits_only_without_it_and_a_fresh_one_is_not() -> None:
    world = Tenants(nodes=1, devices=1)
    holder, victim = world.make("a", "holder"), world.make("v", "victim")
    assert await world.ask(holder)
    world.clock.seconds += 0.9
    assert not await world.ask(victim)
    assert world.held(holder) == 1

    world.clock.seconds += MOST_STALE_SECONDS
    assert await world.ask(victim) == ("n0",)
    assert (world.held(holder), world.held(victim)) == (0, 1)


async def test_bind_of_a_pod_whose_hold_was_revoked_fails_or_takes_other_devices() -> None:
    world = Tenants(nodes=1, devices=2)
    holder, victim = world.make("a", "holder", 2), world.make("v", "victim", 1)
    assert await world.ask(holder)
    world.clock.seconds += MOST_STALE_SECONDS + 1
    assert await world.ask(victim)
    async with world.watching():
        with pytest.raises(RetryableError):
            await world.bound(holder, "n0")
        await world.bound(victim, "n0")
        await world.cluster.watch.caught_up()
    assert world.allocated() == ["n0/gpu-0"]

    small = world.make("a", "small", 1)
    assert await world.ask(small)
    world.ledger.hold_book.release_pod(small.uid)
    async with world.watching():
        await world.bound(small, "n0")
    assert sorted(world.allocated()) == ["n0/gpu-0", "n0/gpu-1"]


async def test_no_more_is_revoked_than_it_takes() -> None:
    world = Tenants(nodes=1, devices=3)
    holders = [world.make("a", f"holder-{index}") for index in range(3)]
    for each in holders:
        assert await world.ask(each)
    world.clock.seconds += MOST_STALE_SECONDS + 1
    assert await world.ask(world.make("v", "victim"))
    assert sum(map(world.held, holders)) == 2


async def test_hold_of_a_pod_that_is_being_bound_or_nominated_is_not_revoked() -> None:
    world = Tenants(nodes=2, devices=1)
    nominated, victim = world.make("a", "nominated"), world.make("v", "victim", 1)
    other = world.make("a", "other")
    assert await world.ask(nominated)

    def edit(pod: Json) -> None:
        pod["status"]["nominatedNodeName"] = "n0"

    world.cluster.store.edit_unchecked(Key(StoredKind.POD, "a", "nominated"), edit)
    world.sync()
    assert await world.ask(other) == ("n1",)
    world.clock.seconds += MOST_STALE_SECONDS + 1
    assert await world.ask(victim) == ("n1",)
    assert world.held(nominated) == 1


async def test_namespace_that_wastes_holds_with_ever_new_pods_is_backed_off() -> None:
    """No pod is asked about twice, so that no single one shows what it does; each is asked just before the victim."""
    world = Tenants(nodes=1, devices=1)
    victim = world.make("v", "victim")
    for turn in range(60):
        pod = world.make("a", f"pod-{turn}")
        await world.ask(pod)
        if await world.ask(victim):
            break
        world.clock.seconds += 0.9
        world.cluster.store.delete(Key(StoredKind.POD, "a", pod.name))
        world.sync()
    else:
        pytest.fail("the victim never fitted")
    assert turn * 0.9 <= 2 * ALLOWANCE / 0.6


async def test_a_gang_whose_plan_is_revoked_gets_none_for_a_second_while_others_wait() -> None:
    world = Tenants(nodes=1, devices=1)
    fairness = HoldFairness(world.ledger, world.clock, reconsider=lambda _: None)
    fairness.record_rejection(world.make("v", "victim"), (PLACEMENT,))
    fairness.check_plan("gang-uid", "a", "gang")
    fairness.revoked("gang-uid")
    with pytest.raises(RetryableError, match="PodGroup gang was offered nodes 2 times without being bound"):
        fairness.check_plan("gang-uid", "a", "gang")
    world.clock.seconds += 1.0
    fairness.check_plan("gang-uid", "a", "gang")


@pytest.mark.virtual_time
async def test_waiting_pod_is_reconsidered_when_the_holds_are_stale() -> None:
    world = Tenants(nodes=1, devices=1)
    pod = world.make("v", "victim")
    reconsidered: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    fairness = HoldFairness(world.ledger, world.clock, reconsidered.set_result)
    now = world.clock.monotonic()
    fairness.hold_ended(Hold("c", {}, {}, now, since=now), (), allocated=True)
    fairness.record_rejection(pod, (PLACEMENT,))
    async with asyncio.timeout(120):
        assert await reconsidered == pod.uid


steps = st.lists(
    st.one_of(
        st.tuples(st.just("filter"), st.integers(0, 5), st.integers(1, 2)),
        st.tuples(st.just("renew"), st.integers(0, 5), st.integers(1, 2)),
        st.tuples(st.just("wait"), st.integers(1, 6), st.just(0)),
        st.tuples(st.just("honest"), st.integers(0, 3), st.just(1)),
    ),
    min_size=3,
    max_size=16,
)
SECONDS = 45.0


class Crowd:
    """Two namespaces that hold and never bind, and two whose pods are bound half a second after they are offered a node."""

    def __init__(self, world: Tenants) -> None:
        self.world = world
        self.attackers: dict[int, Pod] = {}
        self.honest: list[tuple[Pod, str, float]] = []
        self.made = 0
        self.next_honest = 0.0

    async def step(self, what: str, slot: int, count: int) -> None:
        world = self.world
        await self.bind_what_is_due()
        if what == "wait":
            world.clock.seconds += slot * 0.1
        elif what == "honest":
            await self.come(f"h{slot % 2}")
        else:
            if what == "renew" and slot in self.attackers:
                self.leave(self.attackers.pop(slot))
            if slot not in self.attackers:
                self.attackers[slot] = world.make(f"a{slot % 2}", self.name("attacker"), count)
            await world.ask(self.attackers[slot])

    async def come(self, namespace: str) -> None:
        """Seldom enough to leave the devices to others now and then."""
        if self.world.clock.seconds < self.next_honest:
            return
        self.next_honest = self.world.clock.seconds + 3.0
        pod = self.world.make(namespace, self.name("honest"))
        offered = await self.world.ask(pod)
        if offered:
            self.honest.append((pod, offered[0], self.world.clock.seconds + 0.5))
        else:
            self.leave(pod)

    async def bind_what_is_due(self) -> None:
        """Its hold is there until the bind comes, and nobody else has the devices."""
        world = self.world
        for pod, _, due in self.honest:
            if due > world.clock.seconds - 0.4:
                assert world.held(pod), "the hold of a pod that is bound within the usual time has ended"
        for pod, node, due in [each for each in self.honest if each[2] <= world.clock.seconds]:
            self.honest.remove((pod, node, due))
            if world.held(pod):
                await world.bound(pod, node)
                await world.cluster.watch.caught_up()
            assert len(world.allocated()) == len(set(world.allocated()))
            self.leave(pod)

    def leave(self, pod: Pod) -> None:
        store = self.world.cluster.store
        store.delete(Key(StoredKind.POD, pod.namespace, pod.name))
        raw = store.get(Key(StoredKind.CLAIM, pod.namespace, pod.name))
        if raw.get("status"):
            raw["status"] = {}
            raw = store.update_status(StoredKind.CLAIM, raw)
        raw["metadata"]["finalizers"] = []
        store.update(StoredKind.CLAIM, raw)
        store.delete(Key(StoredKind.CLAIM, pod.namespace, pod.name))
        self.world.sync()

    def name(self, kind: str) -> str:
        self.made += 1
        return f"{kind}-{self.made}"


@example([("renew", 0, 1), ("honest", 0, 1), ("filter", 1, 1), ("wait", 1, 0), ("renew", 1, 1), ("wait", 6, 0)], 2)
@given(steps, st.integers(1, 2))
@examples(20)
def test_victim_fits_within_bounded_time_whatever_two_namespaces_do(
    sequence: list[tuple[str, int, int]], count: int
) -> None:
    """They repeat any sequence of calls and never bind; the victim is asked about after them, and at most once a second."""

    async def run() -> None:
        world = Tenants(nodes=2, devices=2)
        crowd, victim, begun, last = Crowd(world), world.make("v", "victim", count), world.clock.seconds, 0.0
        asked = 0
        async with world.watching():
            while world.clock.seconds - begun < SECONDS:
                for step in sequence:
                    await crowd.step(*step)
                if world.clock.seconds - last >= 1.0:
                    last, asked = world.clock.seconds, asked + 1
                    if await world.ask(victim):
                        break
                world.clock.seconds += 0.2
            else:
                pytest.fail("the victim never fitted")
        target(float(asked))

    asyncio.run(run())
