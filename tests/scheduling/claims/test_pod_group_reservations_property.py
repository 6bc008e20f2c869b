"""In random lives of a crowded claim nobody waits for ever where he cannot start, and no claim has more entries than it may."""

import random

import pytest
from dra_extender.model.resource_claim import MAX_RESERVATIONS, OWN_ENTRIES
from dra_extender.simulator.apiserver.objects import StoredKind

from tests.support.scheduling.crowds import TRIAL, CrowdExtender, crowded, names

STEPS = 25


@pytest.mark.parametrize("seed", range(3))
async def test_every_pod_on_a_node_that_cannot_start_it_finds_an_entry_of_its_own(seed: int) -> None:
    """Pods come and go, with and without the group; kubelets lose and get their gate with another version; the service restarts."""
    chance = random.Random(seed)
    world = await crowded({f"n{index}": chance.random() < 0.5 for index in range(4)})
    waiting = names(110, "late")
    world.members(*waiting)
    plain = names(40, "plain")
    for name in plain:
        world.add_pod(name, "shared")
    chance.shuffle(waiting)
    for step in range(STEPS):
        async with world.watching():
            some, waiting = waiting[:8], waiting[8:]
            waiting += await world.try_all(some)
            if plain and chance.random() < 0.3:
                await world.bound_together([plain.pop()], chance.choice(list(world.able)))
        happen(world, chance, step)
        async with world.watching():
            await world.look(chance.choice([0, 1, TRIAL]))
        assert len(world.entries()) <= MAX_RESERVATIONS
        stuck = not_accepted(world)
        assert len(world.entries()) + len(stuck) <= MAX_RESERVATIONS, stuck
    async with world.watching():
        await world.look(TRIAL)
        await world.look(TRIAL)
    assert not_accepted(world) == []
    assert len(world.entries()) > OWN_ENTRIES // 2


def happen(world: CrowdExtender, chance: random.Random, step: int) -> None:
    """Something happens outside of the service."""
    match chance.randrange(5):
        case 0:
            world.kubelets_work()
        case 1:
            bound = [
                pod["metadata"]["name"]
                for pod in world.cluster.store.all(StoredKind.POD)
                if pod["spec"].get("nodeName")
            ]
            for pod in chance.sample(bound, 3):
                world.delete(StoredKind.POD, pod)
            world.manage(gate=chance.random() < 0.5)
        case 2:
            node = chance.choice(list(world.able))
            if not any(world.node_of(pod) == node for pod in group_only(world)):
                world.able[node] = not world.able[node]
                world.a_node(node, version=f"v1.37.{step}")
        case 3:
            world.restart()
        case _:
            world.kubelets_work()


def group_only(world: CrowdExtender) -> list[str]:
    """Bound pods without an entry of their own."""
    entries = set(world.entries())
    return [
        name
        for pod in world.cluster.store.all(StoredKind.POD)
        if pod["spec"].get("nodeName") and (name := pod["metadata"]["name"]) not in entries
    ]


def not_accepted(world: CrowdExtender) -> list[str]:
    """Bound pods that their kubelet would not start."""
    return [pod for pod in group_only(world) if not world.accepted(pod)]
