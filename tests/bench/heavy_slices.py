"""Slices that are as heavy as they get: 64 partitions of 8 devices, with counters, compatibility groups and ten attributes each."""

from collections.abc import Mapping
from typing import Any, Final

import msgspec
from dra_extender.cel.values.quantity import parse_quantity
from dra_extender.model.allocation import AllocationResult, DeviceHolding
from dra_extender.model.allocation_snapshot import SNAPSHOT_ANNOTATION, encode_snapshot
from dra_extender.model.device import CounterConsumption
from dra_extender.model.resource_claim import FINALIZER

from tests.bench import workload
from tests.controlplane import objects

DEVICES: Final = 64
_BOARDS: Final = 8
_NAMESPACES: Final = 100
_PARTITIONS: Final = DEVICES // _BOARDS
_DOMAIN: Final = objects.DRIVER
_CONSUMED: Final = {"memory": "9856Mi", "multiprocessors": "16", "copy-engines": "1"}


def stored(thing: dict[str, Any], version: int) -> bytes:
    """JSON of an object as an API server lists it: with a UID and a version, without kind and apiVersion."""
    metadata = {
        **thing["metadata"],
        "uid": workload.uid(f"{thing['kind']}/{thing['metadata']['name']}"),
        "resourceVersion": str(version),
        "generation": 1,
        "creationTimestamp": "2026-01-01T00:00:00Z",
    }
    return msgspec.json.encode({**thing, "metadata": metadata})


def node_objects(index: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """(slice with devices, slice with the counter sets they draw on); the API takes the two only apart."""
    name = workload.node_name(index)
    devices = objects.resource_slice(
        f"{name}-devices",
        node=name,
        pool=name,
        slice_count=2,
        devices=[_partition(name, board, part) for board in range(_BOARDS) for part in range(_PARTITIONS)],
    )
    counters = objects.resource_slice(
        f"{name}-counters",
        node=name,
        pool=name,
        slice_count=2,
        counter_sets=[
            objects.counter_set(
                f"board-{board}", **{"memory": "81559Mi", "multiprocessors": "132", "copy-engines": "8"}
            )
            for board in range(_BOARDS)
        ],
    )
    return devices, counters


def placed_objects(index: int, number: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """(pod that runs on the node, its claim), with one partition of one of the node's boards, as the service allocates it."""
    node, name = workload.node_name(index), f"{workload.node_name(index)}-{number}"
    board = f"board-{number % _BOARDS}"
    namespace = f"team-{index % _NAMESPACES:02}"
    pod = objects.pod(name, namespace, claims={"gpu": name}, nodeName=node)
    result = {
        "request": workload.REQUEST,
        "driver": objects.DRIVER,
        "pool": node,
        "device": f"{board}-mig-1g-10gb-{number // _BOARDS}",
    }
    claim = objects.resource_claim(
        name, namespace, objects.request(workload.REQUEST, workload.CLASS, allocationMode="ExactCount")
    )
    claim["status"] = objects.allocated(
        result,
        consumers=[objects.consumer(name, workload.uid(f"Pod/{name}"))],
        nodeSelector=objects.on_node(node),
        allocationTimestamp="2026-01-01T00:00:00Z",
    )
    consumption = CounterConsumption(board, _nano_units(_CONSUMED), ("partitions",))
    holding = DeviceHolding(result["driver"], result["pool"], result["device"], consumption=(consumption,))
    snapshot = encode_snapshot(msgspec.convert(claim["status"]["allocation"], AllocationResult), (holding,))
    claim["metadata"] |= {"annotations": {SNAPSHOT_ANNOTATION: snapshot}, "finalizers": [FINALIZER]}
    return pod, claim


def _nano_units(amounts: Mapping[str, str]) -> tuple[tuple[str, int], ...]:
    return tuple((name, parse_quantity(amount)) for name, amount in amounts.items())


def _partition(node: str, board: int, part: int) -> dict[str, Any]:
    unique = workload.uid(f"{node}/{board}/{part}")
    attributes: dict[str, str | int | bool] = {
        f"{_DOMAIN}/uuid": f"MIG-{unique}",
        f"{_DOMAIN}/type": "mig",
        f"{_DOMAIN}/productName": "Accelerator 80GB HBM3",
        f"{_DOMAIN}/brand": "Accelerator",
        f"{_DOMAIN}/architecture": "Example",
        f"{_DOMAIN}/profile": "1g.10gb",
        f"{_DOMAIN}/parentIndex": board,
        f"{_DOMAIN}/placement": part,
        f"{_DOMAIN}/virtualized": False,
        "resource.kubernetes.io/pcieRoot": f"pci0000:{board:02x}",
    }
    return objects.device(
        f"board-{board}-mig-1g-10gb-{part}",
        attributes=attributes,
        capacity={"memory": "9856Mi", "multiprocessors": "16"},
        consumes=[objects.consumption(f"board-{board}", groups=["partitions"], **_CONSUMED)],
    )
