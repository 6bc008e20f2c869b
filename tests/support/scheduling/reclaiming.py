"""A pod with a claim on a small cluster in memory, and what happens to the two while nobody binds the pod."""

from collections.abc import Callable

from dra_extender.scheduling.ports.options import Options
from dra_extender.simulator.apiserver.objects import Json, Key, StoredKind

from tests.support.scheduling.world import CONDITIONS, InMemoryExtender

OPTIONS = Options(hold_wait_seconds=0.0, watch_lag_seconds=30.0, reclaim_pause_seconds=0.0)
GRACE = OPTIONS.reclaim_grace_seconds


def small_world() -> InMemoryExtender:
    """Two nodes with a device each, one whose device needs to be attached, and pod p1 with claim c1."""
    world = InMemoryExtender(OPTIONS).furnish(n1=1, n2=1, p1="c1")
    world.node("n3")
    world.slice("n3", [{"name": "gpu-0", **CONDITIONS}])
    return world


async def pass_by(world: InMemoryExtender, seconds: float) -> None:
    """Look at everything, let time pass, and look again."""
    await world.extender.reclaim.sweep()
    world.clock.seconds += seconds
    await world.extender.reclaim.check_suspects()
    world.sync()


async def reclaimed(world: InMemoryExtender, reason: str, outcome: str = "done") -> float:
    """How often this was counted."""
    return await world.metric("dra_extender_reclaims_total", outcome=outcome, reason=reason)


def edit_status(world: InMemoryExtender, change: Callable[[Json], None], manager: str = "") -> None:
    """What somebody else does to the status of the claim."""
    claim = world.claim("c1")
    change(claim["status"])
    world.cluster.store.update_status(StoredKind.CLAIM, claim, manager)
    world.sync()


def edit_pod(world: InMemoryExtender, change: Callable[[Json], None], name: str = "p1") -> None:
    """What somebody else does to the pod."""
    world.cluster.store.edit_unchecked(Key(StoredKind.POD, "default", name), change)
    world.sync()


def bound_to(node: str) -> Callable[[Json], None]:
    def change(pod: Json) -> None:
        pod["spec"]["nodeName"] = node

    return change


def condition(world: InMemoryExtender, name: str) -> Json:
    result = world.claim("c1")["status"]["allocation"]["devices"]["results"][0]
    entry = {key: result[key] for key in ("driver", "pool", "device")}
    times = {"reason": "Test", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    return {**entry, "conditions": [{"type": name, "status": "True", **times}]}
