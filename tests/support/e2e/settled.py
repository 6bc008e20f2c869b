"""The end of all that kube-scheduler does about pods that fit nowhere."""

import asyncio
from typing import Final

from tests.support.e2e.installed_extender import InstalledExtender, total
from tests.support.e2e.namespace_fixture import SECONDS

QUIET_SECONDS: Final = 3.0


async def settled(world: InstalledExtender, pods: int = 1) -> float:
    """Waits until kube-scheduler has parked these pods and asks no more; returns how often it has called filter."""

    async def quiet() -> float:
        if not are_parked(await world.scheduler_metrics(), pods):
            return 0.0
        before = await calls(world)
        await asyncio.sleep(QUIET_SECONDS)
        again = await calls(world)
        return before if again == before and are_parked(await world.scheduler_metrics(), pods) else 0.0

    return await world.api.wait_for(quiet, 2 * SECONDS, "kube-scheduler asks no more about pods that fit nowhere")


def are_parked(metrics: str, pods: int) -> bool:
    """Whether kube-scheduler has parked so many pods and has no other that waits, by its metrics."""
    queues = ("active", "backoff", "unschedulable")
    return [total(metrics, "scheduler_pending_pods", {"queue": each}) for each in queues] == [0, 0, pods]


async def calls(world: InstalledExtender) -> float:
    """How often kube-scheduler has called filter."""
    return await world.metric("requests_total", verb="filter")
