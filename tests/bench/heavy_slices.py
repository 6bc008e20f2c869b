"""Slices that are as heavy as they get: 64 partitions of 8 devices, with counters, compatibility groups and ten attributes each."""

from typing import Any, Final

import msgspec

from tests.bench import workload
from tests.controlplane import objects

DEVICES: Final = 64
_BOARDS: Final = 8
_PARTITIONS: Final = DEVICES // _BOARDS
_DOMAIN: Final = objects.DRIVER


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
    consumed = {"memory": "9856Mi", "multiprocessors": "16", "copy-engines": "1"}
    return objects.device(
        f"board-{board}-mig-1g-10gb-{part}",
        attributes=attributes,
        capacity={"memory": "9856Mi", "multiprocessors": "16"},
        consumes=[objects.consumption(f"board-{board}", groups=["partitions"], **consumed)],
    )
