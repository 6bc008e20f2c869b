"""A pod that is being bound in a small cluster, and what others do to it and to its claim meanwhile."""

import asyncio
from collections.abc import Callable

from dra_extender.scheduling.ports.options import Options
from dra_extender.simulator.apiserver.objects import Json, Key, StoredKind

from tests.support.scheduling.world import InMemoryExtender
from tests.support.turns import turns


def troubled_world(lag: float = 5.0) -> InMemoryExtender:
    """Node n1 with two devices, n2 with two that have to be attached; pods p1 and p2 that share claim c1.

    `lag`: seconds for which the watch may be behind.
    """
    world = InMemoryExtender(Options(hold_wait_seconds=0.0, watch_lag_seconds=lag, reclaim_pause_seconds=0.0))
    for name in ("n1", "n2"):
        world.node(name)
    conditions = {"bindingConditions": ["Attached"], "bindingFailureConditions": ["Failed"]}
    world.gpus("n1", 2)
    world.slice("n2", [{"name": f"gpu-{index}", **conditions} for index in range(2)])
    world.device_class()
    world.add_claim("c1")
    world.add_pod("p1", "c1")
    world.add_pod("p2", "c1")
    return world


def edit(world: InMemoryExtender, change: Callable[[Json], None], name: str = "c1") -> Callable[[], None]:
    """What somebody else does to the claim, when it is called."""
    return lambda: void(world.cluster.store.edit_unchecked(Key(StoredKind.CLAIM, "default", name), change))


def void(_: object) -> None:
    """Nothing."""


async def waiting(world: InMemoryExtender, pod: str = "p1") -> asyncio.Task[None]:
    """A bind to n2 that waits for its device."""
    bind = asyncio.create_task(world.bind(pod, "n2"))
    await turns()
    assert not bind.done()
    return bind


def node_of(world: InMemoryExtender, pod: str = "p1") -> str:
    return str(world.pod(pod)["spec"].get("nodeName", ""))
