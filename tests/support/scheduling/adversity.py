"""A pod that is being bound in a small cluster, and what others do to it and to its claim meanwhile."""

from collections.abc import Callable

from dra_extender.scheduling.ports.options import Options
from dra_extender.simulator.apiserver.objects import Json, Key, StoredKind

from tests.support.scheduling.world import CONDITIONS, InMemoryExtender


def troubled_world(lag: float = 5.0) -> InMemoryExtender:
    """Node n1 with two devices, n2 with two that have to be attached; pods p1 and p2 that share claim c1.

    `lag`: seconds for which the watch may be behind.
    """
    world = InMemoryExtender(Options(hold_wait_seconds=0.0, watch_lag_seconds=lag, reclaim_pause_seconds=0.0))
    world.node("n2")
    world.slice("n2", [{"name": f"gpu-{index}", **CONDITIONS} for index in range(2)])
    return world.furnish(n1=2, p1="c1", p2="c1")


def edit(world: InMemoryExtender, change: Callable[[Json], None], name: str = "c1") -> Callable[[], None]:
    """What somebody else does to the claim, when it is called."""
    return lambda: void(world.cluster.store.edit_unchecked(Key(StoredKind.CLAIM, "default", name), change))


def void(_: object) -> None:
    """Nothing."""
