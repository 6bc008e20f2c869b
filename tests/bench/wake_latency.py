import asyncio
import time
from pathlib import Path
from typing import Final

from tests.bench import workload
from tests.bench.contenders import ours
from tests.bench.load import prepared
from tests.bench.rows import BenchError
from tests.bench.scale import Scale
from tests.controlplane.apiclient import ApiClient
from tests.controlplane.resources import DEVICE_CLASSES, NODES, PODS, RESOURCE_CLAIMS, RESOURCE_SLICES

_QUIET_SECONDS: Final = 4.0
"""Longer than kube-scheduler's pause after the two attempts that a pod has until it is parked."""
_WAIT_SECONDS: Final = 60.0
_POLL_SECONDS: Final = 0.01


async def wake_latencies(scale: Scale, workdir: Path) -> list[float]:
    """Milliseconds from the moment a driver begins to publish a slice until the pod that waits for its device is seen to be bound.

    One pod at a time, in a cluster that is otherwise quiet; kube-scheduler, which does not listen to slices, has parked it.

    Raises BenchError if a pod is not bound.
    """
    contender = ours()
    async with prepared(scale, workdir) as cluster, contender.extender(cluster) as extender:
        assert extender is not None
        await cluster.api.create(DEVICE_CLASSES, workload.device_class())
        await cluster.start_scheduler(contender.config(extender.url))
        return [await _one(cluster.api, index) for index in range(scale.woken)]


async def _one(api: ApiClient, index: int) -> float:
    name = workload.pod_name(index)
    await api.create(NODES, workload.node(index))
    await api.create(RESOURCE_CLAIMS, workload.claim(index))
    await api.create(PODS, workload.pod(index))

    async def refused() -> bool:
        conditions = (await api.get(PODS, name, workload.NAMESPACE))["status"].get("conditions", ())
        return any(each.get("reason") == "Unschedulable" for each in conditions)

    await api.wait_for(refused, _WAIT_SECONDS, f"pod {name} fits nowhere")
    await asyncio.sleep(_QUIET_SECONDS)
    slice_ = workload.node_slice(index)
    # One device, so that nothing is left for the next pod.
    del slice_["spec"]["devices"][1:]
    begun = time.perf_counter()
    await api.create(RESOURCE_SLICES, slice_)
    while time.perf_counter() < begun + _WAIT_SECONDS:
        if (await api.get(PODS, name, workload.NAMESPACE))["spec"].get("nodeName"):
            return 1000 * (time.perf_counter() - begun)
        await asyncio.sleep(_POLL_SECONDS)
    raise BenchError(f"Pod {name} was not bound within {_WAIT_SECONDS:.0f} s of the slice that it waited for.")
