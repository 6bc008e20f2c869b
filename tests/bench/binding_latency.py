import asyncio
import time
from pathlib import Path
from random import Random
from typing import Any, Final

from tests.bench import slow_workload, workload
from tests.bench.contenders import Contender
from tests.bench.load import prepared
from tests.bench.rows import BenchError
from tests.bench.scale import Scale
from tests.controlplane.apiclient import ApiClient
from tests.controlplane.resources import DEVICE_CLASSES, NODES, PODS, RESOURCE_CLAIMS, RESOURCE_SLICES

_NODES: Final = 8
_WAIT_SECONDS: Final = 60.0


async def latencies(contender: Contender, scale: Scale, workdir: Path) -> list[float]:
    """Milliseconds from the moment the driver begins to write its condition until each pod is seen to be bound.

    All pods wait first; the conditions are then written at random times.  The write itself and the client's
    watch are part of each figure.

    Raises BenchError if a pod is not bound.
    """
    pods = scale.slow_pods
    async with prepared(scale, workdir) as cluster, contender.extender(cluster) as extender:
        await _populate(cluster.api, pods)
        await cluster.start_scheduler(contender.config(extender.url if extender is not None else ""))
        claims = await _all_waiting(cluster.api, pods)
        bound: dict[str, asyncio.Future[float]] = {each: asyncio.get_running_loop().create_future() for each in claims}
        async with cluster.api.watch(PODS, workload.NAMESPACE) as events, asyncio.TaskGroup() as group:
            watcher = group.create_task(_watch(events, bound))
            random = Random(pods)
            tasks = [
                group.create_task(_attach(cluster.api, claim, bound[name], random.uniform(0, scale.spread_seconds)))
                for name, claim in claims.items()
            ]
            taken = await asyncio.gather(*tasks)
            watcher.cancel()
        return taken


async def _populate(api: ApiClient, pods: int) -> None:
    await api.create(DEVICE_CLASSES, slow_workload.device_class())
    for index in range(_NODES):
        await api.create(NODES, workload.node(index))
    await api.create(RESOURCE_SLICES, slow_workload.shared_slice(pods))
    for index in range(pods):
        await api.create(RESOURCE_CLAIMS, slow_workload.claim(index))
        await api.create(PODS, slow_workload.pod(index))


async def _all_waiting(api: ApiClient, pods: int) -> dict[str, Any]:
    """Every claim by the name of its pod, once all are allocated and all pods nominated."""

    async def waiting() -> dict[str, Any]:
        claims = {each["metadata"]["name"]: each for each in await api.list(RESOURCE_CLAIMS, workload.NAMESPACE)}
        allocated = [name for name, each in claims.items() if each.get("status", {}).get("allocation")]
        stored = await api.list(PODS, workload.NAMESPACE)
        nominated = [each for each in stored if each.get("status", {}).get("nominatedNodeName")]
        return claims if len(allocated) == len(nominated) == pods else {}

    return await api.wait_for(waiting, _WAIT_SECONDS, f"{pods} pods wait for their devices")


async def _attach(api: ApiClient, claim: Any, bound: asyncio.Future[float], delay: float) -> float:
    await asyncio.sleep(delay)
    (result,) = claim["status"]["allocation"]["devices"]["results"]
    condition = {
        "type": slow_workload.ATTACHED,
        "status": "True",
        "reason": "Attached",
        "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    status = {key: result[key] for key in ("driver", "pool", "device")} | {"conditions": [condition]}
    begun = time.perf_counter()
    name = claim["metadata"]["name"]
    change = {"status": {"devices": [status]}}
    await api.patch(RESOURCE_CLAIMS, name, change, workload.NAMESPACE, subresource="status")
    try:
        return 1000 * (await asyncio.wait_for(bound, _WAIT_SECONDS) - begun)
    except TimeoutError as late:
        raise BenchError(f"Pod {name} was not bound within {_WAIT_SECONDS:.0f} s of its condition.") from late


async def _watch(events: Any, bound: dict[str, asyncio.Future[float]]) -> None:
    async for event in events:
        name = event["object"]["metadata"]["name"]
        if event["object"]["spec"].get("nodeName") and not bound[name].done():
            bound[name].set_result(time.perf_counter())
