"""What a measurement of the allocator is about: objects of a cluster as the API server has them, and the claims of one pod."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from tests.controlplane import objects

Object = dict[str, Any]
NAMESPACE: Final = "bench"
CLASS: Final = "gpu"
DRIVER: Final = objects.DRIVER
ATTRIBUTES: Final = f'device.attributes["{DRIVER}"]'


@dataclass(slots=True)
class Cluster:
    """Nodes, their slices, what is allocated, and what the pod asks for."""

    nodes: list[Object] = field(default_factory=list)
    slices: list[Object] = field(default_factory=list)
    allocated: list[Object] = field(default_factory=list)
    claims: list[Object] = field(default_factory=list)
    classes: list[Object] = field(default_factory=lambda: [objects.device_class(CLASS)])

    def take(self, node: int, devices: Iterable[str]) -> None:
        """Let a claim have these devices of a node's pool."""
        self.allocated.append(allocated_claim(len(self.allocated), node_name(node), devices))

    @property
    def objects(self) -> Mapping[str, Sequence[Object]]:
        """Everything by plural kind, as watches bring it."""
        return {
            "nodes": self.nodes,
            "deviceclasses": self.classes,
            "resourceslices": self.slices,
            "resourceclaims": [*self.allocated, *self.claims],
        }

    @property
    def local_slices(self) -> Sequence[Object]:
        """The slices with the devices of single nodes."""
        return [each for each in self.slices if "nodeName" in each["spec"] and "devices" in each["spec"]]

    @property
    def names(self) -> Sequence[str]:
        return [each["metadata"]["name"] for each in self.nodes]


def node_name(index: int) -> str:
    """Name of a node, which is that of its pool too."""
    return f"gpu-pool-a-{index:05}"


def cluster(count: int, devices: Callable[[int], Sequence[Object]], counters: Sequence[Object] = ()) -> Cluster:
    """Nodes with one slice of devices each and, with `counters`, another for these counter sets."""
    made = Cluster()
    for index in range(count):
        name = node_name(index)
        made.nodes.append({"metadata": {"name": name, "uid": name, "labels": {"kubernetes.io/hostname": name}}})
        parts = 2 if counters else 1
        made.slices.append(objects.resource_slice(name, node=name, devices=devices(index), slice_count=parts))
        if counters:
            sets = objects.resource_slice(f"{name}-sets", node=name, counter_sets=counters, slice_count=parts)
            made.slices.append(sets)
    for number, each in enumerate(made.slices, start=1):
        each["metadata"] |= {"uid": f"slice-{number}", "resourceVersion": str(number)}
    return made


def claim(*requests: Object, index: int = 0, **fields: Any) -> Object:
    """A claim of the pod with the fields that the API server sets."""
    for each in requests:
        for body in (each.get("exactly"), *each.get("firstAvailable", ())):
            if body is not None:
                body.setdefault("allocationMode", "ExactCount")
                body.setdefault("count", 1)
    made = objects.resource_claim(f"wanted-{index}", NAMESPACE, *requests, **fields)
    made["metadata"] |= {"uid": f"wanted-{index}", "resourceVersion": "1"}
    return made


def allocated_claim(index: int, pool: str, devices: Iterable[str]) -> Object:
    made = objects.resource_claim(f"taken-{index}", NAMESPACE, objects.request("gpu", CLASS))
    made["metadata"] |= {"uid": f"taken-{index}", "resourceVersion": "1"}
    results = [{"request": "gpu", "driver": DRIVER, "pool": pool, "device": device} for device in devices]
    made["status"] = {"allocation": {"devices": {"results": results}}}
    return made
