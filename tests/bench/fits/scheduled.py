"""The trace through a real control plane: pods arrive a few at a time, and those that do not fit are gone at once."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any, Final

from tests.bench import workload
from tests.bench.contenders import Contender
from tests.bench.fits import trace_objects
from tests.bench.fits.filling import Filled, shares
from tests.bench.fits.trace import Kind, Room
from tests.bench.load import create_all, prepared
from tests.bench.rows import BenchError
from tests.bench.scale import Scale
from tests.controlplane.apiclient import ApiClient
from tests.controlplane.resources import DEVICE_CLASSES, NODES, PODS, RESOURCE_CLAIMS, RESOURCE_SLICES

_AT_ONCE: Final = 8
_POD_SECONDS: Final = 60.0


async def scheduled(
    contender: Contender, nodes: Sequence[Room], arrivals: Sequence[Kind], scale: Scale, workdir: Path
) -> Filled:
    """Return the allocated shares of the cluster's GPUs by what kube-scheduler decided.

    Raises:
        BenchError: a pod was neither bound nor refused within a minute.
    """
    async with prepared(scale, workdir) as cluster:
        api = cluster.api
        await api.create(DEVICE_CLASSES, trace_objects.device_class())
        await create_all(api, NODES, (trace_objects.node(*each) for each in enumerate(nodes)))
        await create_all(api, RESOURCE_SLICES, (trace_objects.node_slice(*each) for each in enumerate(nodes)))
        async with contender.extender(cluster) as extender:
            configuration = contender.config(extender.url if extender is not None else "")
            await cluster.start_scheduler(configuration, feature_gates=contender.scheduler_gates)
            placed = await _Arrivals(api, arrivals).placed()
    return shares(nodes, list(zip(arrivals, placed, strict=True)))


class _Arrivals:
    """Pods on their way: each is created, watched until it is decided, and deleted if it is refused."""

    def __init__(self, api: ApiClient, arrivals: Sequence[Kind]) -> None:
        self._api = api
        self._arrivals = arrivals
        self._decided: dict[str, asyncio.Future[bool]] = {}

    async def placed(self) -> Sequence[bool]:
        """Return of each pod whether it was bound."""
        free = asyncio.Semaphore(_AT_ONCE)
        found: list[bool] = [False] * len(self._arrivals)

        async def one(number: int, kind: Kind) -> None:
            try:
                found[number] = await self._place(number, kind)
            finally:
                free.release()

        async with self._api.watch(PODS, workload.NAMESPACE) as events:
            following = asyncio.create_task(self._follow(events))
            try:
                async with asyncio.TaskGroup() as group:
                    for number, kind in enumerate(self._arrivals):
                        await free.acquire()
                        group.create_task(one(number, kind))
            finally:
                following.cancel()
                await asyncio.gather(following, return_exceptions=True)
        return found

    async def _place(self, number: int, kind: Kind) -> bool:
        body = trace_objects.pod(number, kind)
        name = body["metadata"]["name"]
        claims = [trace_objects.claim(number, kind)] if kind.gpus else []
        decided: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._decided[name] = decided
        for claim in claims:
            await self._api.create(RESOURCE_CLAIMS, claim)
        await self._api.create(PODS, body)
        try:
            bound = await asyncio.wait_for(decided, _POD_SECONDS)
        except TimeoutError as late:
            raise BenchError(f"pod {name} was neither bound nor refused within {_POD_SECONDS:.0f} s") from late
        if not bound:
            await self._api.delete(PODS, name, workload.NAMESPACE, grace_seconds=0)
            for claim in claims:
                await self._api.delete(RESOURCE_CLAIMS, claim["metadata"]["name"], workload.NAMESPACE)
        return bound

    async def _follow(self, events: AsyncIterator[dict[str, Any]]) -> None:
        async for event in events:
            pod = event["object"]
            decided = self._decided.get(pod["metadata"]["name"])
            if decided is None or decided.done():
                continue
            if pod["spec"].get("nodeName"):
                decided.set_result(True)
            elif any(
                condition["type"] == "PodScheduled" and condition.get("reason") == "Unschedulable"
                for condition in pod["status"].get("conditions", ())
            ):
                decided.set_result(False)
