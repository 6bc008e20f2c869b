"""The end of all that kube-scheduler does about pods that fit nowhere."""

import asyncio
from typing import Final

from tests.support.e2e.installed_extender import InstalledExtender
from tests.support.e2e.namespace_fixture import SECONDS

QUIET_SECONDS: Final = 3.0


async def settled(world: InstalledExtender, pods: int = 1) -> float:
    """Waits until kube-scheduler has parked these pods and asks no more; returns how often it has called filter."""

    async def parked() -> bool:
        queues = {
            queue: await world.scheduler_metric("scheduler_pending_pods", queue=queue)
            for queue in ("active", "backoff", "unschedulable")
        }
        return queues == {"active": 0, "backoff": 0, "unschedulable": pods}

    async def quiet() -> float:
        if not await parked():
            return 0.0
        before = await calls(world)
        await asyncio.sleep(QUIET_SECONDS)
        return before if await calls(world) == before and await parked() else 0.0

    return await world.api.wait_for(quiet, 2 * SECONDS, "kube-scheduler asks no more about pods that fit nowhere")


async def calls(world: InstalledExtender) -> float:
    """How often kube-scheduler has called filter."""
    return await world.metric("requests_total", verb="filter")
