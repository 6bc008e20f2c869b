"""A cluster of any size: GPUs with partitions and whole ones, half of them allocated, and pods that wait for several reasons."""

from typing import Final

from tests.controlplane.objects import consumption, counter_set, device, device_class, request
from tests.support.inspection.made_cluster import MadeCluster

DEVICES_OF_A_NODE: Final = 4
_MODELS: Final = ("a", "b")


def large_cluster(nodes: int, waiting: int = 200, devices: int = DEVICES_OF_A_NODE) -> MadeCluster:
    """So many nodes with so many devices each; two devices of a node are allocated to running pods."""
    made = MadeCluster()
    made.add(device_class("gpu"), device_class("nic"))
    for number in range(nodes):
        node = f"node-{number:05}"
        made.nodes(node)
        if number % 2:
            _partitioned(made, node, devices)
        else:
            _whole(made, node, number, devices)
        held = "mig" if number % 2 else "gpu"
        for index in (0, 2):
            made.running(f"run-{number:05}-{index}", node, f"{held}-{index}", request("gpu", "gpu"))
    for number in range(waiting):
        made.pod(f"wait-{number:04}", _WANTED[number % len(_WANTED)])
    return made


def _whole(made: MadeCluster, node: str, number: int, devices: int) -> None:
    taints = [{"key": "example.com/broken", "effect": "NoSchedule"}] if number % 10 == 0 else []
    made.gpus(
        node,
        *(
            device(f"gpu-{index}", attributes={"model": _MODELS[index % 2]}, capacity={"memory": "40Gi"}, taints=taints)
            for index in range(devices)
        ),
    )


def _partitioned(made: MadeCluster, node: str, devices: int) -> None:
    made.partitions(
        node,
        [counter_set("gpu-0", sm="98", memory="40Gi")],
        [
            device(
                f"mig-{index}",
                attributes={"model": "mig"},
                consumes=[consumption("gpu-0", groups=["mig"], sm="49", memory="20Gi")],
            )
            for index in range(devices)
        ],
    )


_DRIVER: Final = "gpu.example.com"
_WANTED: Final = (
    request("gpu", "gpu", f'device.attributes["{_DRIVER}"].model == "c"'),
    request("gpu", "gpu", f'device.attributes["{_DRIVER}"].model == "mig"'),
    request("gpu", "gpu", f'device.capacity["{_DRIVER}"].memory.compareTo(quantity("80Gi")) >= 0'),
    request("gpu", "gpu", f'device.attributes["{_DRIVER}"].model == "a"', count=3),
    request("gpu", "nothing"),
)
