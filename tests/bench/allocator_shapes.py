"""Clusters and pods: the workloads of upstream's scheduler_perf for DRA, and clusters in which nodes have little in common."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Final

from tests.bench.allocator_cluster import ATTRIBUTES, CLASS, DRIVER, Cluster, Object, allocated_claim, claim, cluster
from tests.controlplane import objects

_DEVICES: Final = 10
_MODELS: Final = ("a100", "h100", "l40")
_FABRIC: Final = 64


@dataclass(frozen=True, slots=True)
class Shape:
    """A way to fill a cluster; in a `varied` one no two nodes are equal.  `largest`: more nodes take too long to set up."""

    name: str
    fill: Callable[[int], Cluster]
    varied: bool = False
    largest: int = 5_000


def _plain(_: int) -> Sequence[Object]:
    return [
        objects.device(
            f"gpu-{number}",
            attributes={"model": "a100", "index": number, "pciRoot": f"pci{number // 5}"},
            capacity={"memory": "80Gi"},
        )
        for number in range(_DEVICES)
    ]


def _taken(nodes: int, each: int, *, spare: int = 0) -> Cluster:
    """Of every node as many devices are taken; the last nodes have one more free device."""
    made = cluster(nodes, _plain)
    for node in range(nodes):
        less = node >= nodes - spare
        if each - less:
            made.take(node, [f"gpu-{number}" for number in range(each - less)])
    made.claims = [claim(objects.request("gpu", CLASS))]
    return made


def _empty(nodes: int) -> Cluster:
    return _taken(nodes, 0)


def _half(nodes: int) -> Cluster:
    return _taken(nodes, _DEVICES // 2)


def _full(nodes: int) -> Cluster:
    return _taken(nodes, _DEVICES, spare=nodes // 50)


def _selector(nodes: int) -> Cluster:
    made = cluster(nodes, _plain)
    expression = (
        f'{ATTRIBUTES}.model == "a100" && {ATTRIBUTES}.index >= 8 && '
        f'device.capacity["{DRIVER}"].memory.compareTo(quantity("40Gi")) >= 0'
    )
    made.claims = [claim(objects.request("gpu", CLASS, expression))]
    return made


def _match(nodes: int) -> Cluster:
    made = cluster(nodes, _plain)
    for node in range(nodes):
        made.take(node, ["gpu-0"])
    requests = [objects.request(f"gpu-{number}", CLASS) for number in range(5)]
    made.claims = [claim(*requests, constraints=[{"matchAttribute": f"{DRIVER}/pciRoot"}])]
    return made


def _partitions(_: int) -> Sequence[Object]:
    sizes = ("40Gi", *["10Gi"] * 7)
    return [
        objects.device(f"part-{number}", consumes=[objects.consumption("gpu-0", memory=size)])
        for number, size in enumerate(sizes)
    ]


def _partitionable(nodes: int) -> Cluster:
    made = cluster(nodes, _partitions, [objects.counter_set("gpu-0", memory="80Gi")])
    made.claims = [claim(objects.request("parts", CLASS, count=7))]
    return made


def _shareable(_: int) -> Sequence[Object]:
    return [
        objects.device(f"nic-{number}", capacity={"bandwidth": "100"}, allowMultipleAllocations=True)
        for number in range(_DEVICES)
    ]


def _consumable(nodes: int) -> Cluster:
    made = cluster(nodes, _shareable)
    for node in range(nodes):
        taken = allocated_claim(node, made.names[node], [f"nic-{number}" for number in range(5)])
        for number, result in enumerate(taken["status"]["allocation"]["devices"]["results"]):
            result |= {"shareID": f"{node}-{number}", "consumedCapacity": {"bandwidth": "70"}}
        made.allocated.append(taken)
    made.claims = [claim(objects.request("share", CLASS, capacity={"requests": {"bandwidth": "40"}}))]
    return made


def _prioritized(nodes: int) -> Cluster:
    made = cluster(nodes, _plain)
    alternatives = [
        {"name": model, "deviceClassName": CLASS, "selectors": [_model(model)]} for model in ("h200", "h100", "a100")
    ]
    made.claims = [claim({"name": "gpu", "firstAvailable": alternatives})]
    return made


def _model(model: str) -> Object:
    return {"cel": {"expression": f'{ATTRIBUTES}.model == "{model}"'}}


def _listed() -> Sequence[Object]:
    """64 devices with 47 values each, of which every other one has none in common with the rest."""
    made = []
    for number in range(64):
        apart = number % 2 == 0
        values = [f"{'x' if apart else 'v'}{number if apart else 0}-{value}" for value in range(47)]
        made.append({"name": f"gpu-{number}", "attributes": {"roots": {"strings": values}}})
    return made


def _lists(nodes: int) -> Cluster:
    devices = _listed()
    made = cluster(nodes, lambda _: devices)
    requests = [objects.request(f"gpu-{number}", CLASS) for number in range(32)]
    made.claims = [claim(*requests, constraints=[{"matchAttribute": f"{DRIVER}/roots"}])]
    return made


def _grouped(_: int) -> Sequence[Object]:
    return [
        objects.device(
            f"mig-{number}", consumes=[objects.consumption("gpu-0", groups=["mig"], a="1", b="1", c="1", d="1")]
        )
        for number in range(2)
    ]


def _groups(nodes: int) -> Cluster:
    made = cluster(nodes, _grouped, [objects.counter_set("gpu-0", a="2", b="2", c="2", d="2")])
    for node in range(0, nodes, 2):
        made.take(node, ["mig-0", "mig-1"])
    made.claims = [claim(objects.request("gpu", CLASS, count=2))]
    return made


def _shared_claims(nodes: int) -> Cluster:
    """Two devices a node; four of five pods use a claim that another pod has already, so that the fifth one is searched."""
    made = cluster(nodes, lambda _: [objects.device(f"gpu-{number}") for number in range(2)])
    for node in range(nodes):
        made.take(node, ["gpu-0"])
    for claimed in made.allocated:
        claimed["status"]["reservedFor"] = [{"resource": "pods", "name": f"p{n}", "uid": f"p{n}"} for n in range(5)]
    made.claims = [claim(objects.request("gpu", CLASS))]
    return made


def _fabric(nodes: int) -> Cluster:
    """Each node has devices of its own; all reach one pool of network devices, half of which are taken."""
    made = cluster(nodes, _plain)
    ports = [objects.device(f"port-{number}", attributes={"kind": "fabric"}) for number in range(_FABRIC)]
    pool = objects.resource_slice("fabric", devices=ports, driver="fabric.example.com", allNodes=True)
    pool["metadata"] |= {"uid": "fabric", "resourceVersion": "1"}
    made.slices.append(pool)
    made.classes.append(objects.device_class("port", 'device.driver == "fabric.example.com"'))
    for number in range(_FABRIC // 2):
        taken = allocated_claim(number, "fabric", [f"port-{number}"])
        taken["status"]["allocation"]["devices"]["results"][0]["driver"] = "fabric.example.com"
        made.allocated.append(taken)
    made.claims = [claim(objects.request("gpu", CLASS), objects.request("port", "port"))]
    return made


def _serials(nodes: int) -> Cluster:
    """One kind of hardware: nodes differ in what nobody asks for, the serial numbers."""

    def devices(node: int) -> Sequence[Object]:
        made = _plain(node)
        for number, each in enumerate(made):
            each["attributes"]["uuid"] = {"string": f"GPU-{node:05}-{number}"}
        return made

    made = cluster(nodes, devices)
    for node in range(nodes):
        if node % 3:
            made.take(node, [f"gpu-{number}" for number in range(node % 3)])
    made.claims = [claim(objects.request("gpu", CLASS, f'{ATTRIBUTES}.model == "a100"', count=4))]
    return made


def _heterogeneous(nodes: int) -> Cluster:
    """Nodes differ in number, names and kinds of devices, in what the selector compares, and in what is taken."""
    random = Random(1)

    def devices(node: int) -> Sequence[Object]:
        return [
            objects.device(
                f"gpu-{node}-{number}",
                attributes={
                    "model": random.choice(_MODELS),
                    "clock": random.randrange(1_000_000),
                    "uuid": f"GPU-{node:05}-{number}",
                    "numa": number % 2,
                },
                capacity={"memory": f"{random.randrange(20_000, 90_000)}Mi"},
            )
            for number in range(random.randrange(4, 17))
        ]

    made = cluster(nodes, devices)
    for node, each in enumerate(made.slices):
        names = [device["name"] for device in each["spec"]["devices"]]
        made.take(node, random.sample(names, random.randrange(3)))
    wanted = (
        f'{ATTRIBUTES}.model in ["a100", "h100"] && {ATTRIBUTES}.clock > 300000 && '
        f'device.capacity["{DRIVER}"].memory.compareTo(quantity("40Gi")) >= 0'
    )
    constraint = {"matchAttribute": f"{DRIVER}/numa", "requests": ["pair"]}
    made.claims = [claim(objects.request("pair", CLASS, wanted, count=2), constraints=[constraint])]
    return made


SHAPES: Final = (
    Shape("empty", _empty),
    Shape("half of the devices taken", _half),
    Shape("full", _full),
    Shape("selector", _selector),
    Shape("matchAttribute over 5 requests", _match),
    Shape("partitions, with backtracking", _partitionable),
    Shape("consumable capacity", _consumable),
    Shape("prioritized list", _prioritized),
    Shape("list attributes", _lists, largest=1_000),
    Shape("compatibility groups", _groups),
    Shape("claims shared by 5 pods", _shared_claims),
    Shape("a fabric pool all nodes reach", _fabric),
    Shape("equal but for serial numbers", _serials, varied=True),
    Shape("heterogeneous", _heterogeneous, varied=True),
)
