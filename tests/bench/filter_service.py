"""The real service over a cluster in memory, for measuring filter without an API server's noise."""

import argparse
import asyncio
import signal

import uvloop
from dra_extender.config.scheduling_settings import SchedulingSettings
from dra_extender.config.service_settings import ServerSettings
from dra_extender.config.settings import Settings
from dra_extender.scheduling.ports.options import PlacementPolicy
from dra_extender.service.server import listen
from dra_extender.service.wiring import assemble
from dra_extender.simulator.apiserver.cluster import MemoryCluster
from dra_extender.simulator.apiserver.objects import StoredKind
from dra_extender.telemetry.logging import LogFormat, LogLevel, configure_logging
from dra_extender.telemetry.metrics import Metrics

from tests.bench import slow_workload, workload
from tests.controlplane import objects


def populate(cluster: MemoryCluster, nodes: int, pods: int, *, full: bool) -> None:
    """Nodes with their slices, the class, pods with claims; `full`: every device is allocated to others before."""
    store = cluster.store
    store.create(StoredKind.CLASS, workload.device_class())
    for index in range(nodes):
        store.create(StoredKind.NODE, workload.node(index))
        store.create(StoredKind.SLICE, workload.node_slice(index))
        if full:
            _occupy(cluster, index)
    for index in range(pods):
        store.create(StoredKind.CLAIM, workload.claim(index))
        pod = workload.pod(index)
        pod["metadata"]["uid"] = workload.uid(workload.pod_name(index))
        store.create(StoredKind.POD, pod)


def populate_waiting(cluster: MemoryCluster, nodes: int, count: int) -> None:
    """Pods whose devices have to be attached before they are bound, with a claim and a device each."""
    store = cluster.store
    store.create(StoredKind.CLASS, slow_workload.device_class())
    for index in range(nodes):
        store.create(StoredKind.SLICE, slow_workload.node_slice(index, -(-count // nodes)))
    for index in range(count):
        store.create(StoredKind.CLAIM, slow_workload.claim(index))
        pod = slow_workload.pod(index)
        pod["metadata"]["uid"] = workload.uid(slow_workload.name(index))
        store.create(StoredKind.POD, pod)


def _occupy(cluster: MemoryCluster, index: int) -> None:
    """A claim that has all devices of a node."""
    node = workload.node_name(index)
    request = objects.request(workload.REQUEST, workload.CLASS, count=workload.DEVICES_PER_NODE)
    claim = objects.resource_claim(f"taken-{index:05}", workload.NAMESPACE, request)
    claim["metadata"]["finalizers"] = ["resource.kubernetes.io/delete-protection"]
    stored = cluster.store.create(StoredKind.CLAIM, claim)
    taken = {"request": workload.REQUEST, "driver": objects.DRIVER, "pool": node}
    results = [{**taken, "device": workload.device_name(number)} for number in range(workload.DEVICES_PER_NODE)]
    consumer = objects.consumer(f"taken-{index:05}", workload.uid(f"taken/{index}"))
    status = objects.allocated(*results, consumers=[consumer], nodeSelector=objects.on_node(node))
    cluster.store.update_status(StoredKind.CLAIM, {**stored, "status": status})


async def serve(cluster: MemoryCluster, settings: Settings) -> None:
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    service = assemble(settings, cluster, Metrics())
    with listen(settings.server.host, settings.server.port) as listener:
        await service.serve(stop, listener)


def main() -> None:
    """Serve on a loopback port."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--nodes", type=int, required=True)
    parser.add_argument("--pods", type=int, required=True)
    parser.add_argument("--hold-seconds", type=float, required=True)
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--waiting", type=int, default=0)
    parser.add_argument("--placement", type=PlacementPolicy, default=PlacementPolicy.PRESERVE)
    arguments = parser.parse_args()
    configure_logging(LogFormat.TEXT, LogLevel.WARNING)
    cluster = MemoryCluster()
    populate(cluster, arguments.nodes, arguments.pods, full=arguments.full)
    if arguments.waiting:
        populate_waiting(cluster, arguments.nodes, arguments.waiting)
    settings = Settings(
        server=ServerSettings(host="127.0.0.1", port=arguments.port),
        scheduling=SchedulingSettings(hold_seconds=arguments.hold_seconds, placement=arguments.placement),
    )
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve(cluster, settings))


if __name__ == "__main__":
    main()
