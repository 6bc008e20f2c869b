"""Pods whose devices have to be attached before they can be bound (KEP-5007)."""

from typing import Final

from tests.bench import workload
from tests.controlplane import objects

DRIVER: Final = "fabric.example.com"
CLASS: Final = "fabric"
ATTACHED: Final = "example.com/attached"
FAILED: Final = "example.com/failed"


def name(index: int) -> str:
    """Name of such a pod, and of its claim."""
    return f"slow-{index:05}"


def device_class() -> workload.Object:
    return objects.device_class(CLASS, f'device.driver == "{DRIVER}"')


def device(number: int) -> workload.Object:
    """A device that is bound to the node chosen for it."""
    return objects.device(
        f"slow-{number:04}", bindsToNode=True, bindingConditions=[ATTACHED], bindingFailureConditions=[FAILED]
    )


def node_slice(index: int, count: int) -> workload.Object:
    node = workload.node_name(index)
    devices = [device(number) for number in range(count)]
    return objects.resource_slice(f"{node}-slow", driver=DRIVER, node=node, devices=devices)


def shared_slice(count: int) -> workload.Object:
    """A slice with so many of them for every node."""
    devices = [device(number) for number in range(count)]
    return objects.resource_slice("slow", driver=DRIVER, pool="slow", allNodes=True, devices=devices)


def claim(index: int) -> workload.Object:
    return objects.resource_claim(name(index), workload.NAMESPACE, objects.request(workload.REQUEST, CLASS))


def pod(index: int) -> workload.Object:
    return objects.pod(name(index), workload.NAMESPACE, claims={"gpu": name(index)})
