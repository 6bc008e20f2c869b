"""Queues of pods whose claims ask in different ways: plain devices, partitions, matchAttribute, firstAvailable, groups."""

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from tests.bench import workload
from tests.bench.load import Load, create_all
from tests.controlplane import objects
from tests.controlplane.apiclient import ApiClient
from tests.controlplane.extender import REPOSITORY
from tests.controlplane.resources import DEVICE_CLASSES, NODES, PODS, RESOURCE_CLAIMS, RESOURCE_SLICES

GROUPS_POLICY: Final = REPOSITORY / "tests" / "bench" / "groups-policy.yaml"
"""Two kinds of partitions, which never share a GPU."""
_GPUS: Final = 2
_PARTS: Final = 4
"""Partitions for which a GPU has room."""
_DRIVER: Final = objects.DRIVER
_NUMA: Final = f"{_DRIVER}/numa"

Claim = Callable[[int], objects.Object]
Slices = Callable[[int], Sequence[objects.Object]]


def claim_loads(nodes: int, most: int) -> Sequence[Load]:
    """The queues whose rows compare ours with the in-tree plugin; at most so many pods each."""
    per_node = workload.DEVICES_PER_NODE
    return (
        _load("plain devices", nodes, most, per_node, _plain_slices, workload.claim),
        _load("plain devices until 98 % are in use", nodes // 2, most, per_node, _plain_slices, workload.claim, 98),
        _load("partitions", nodes, most, _GPUS * _PARTS, _partition_slices, workload.claim),
        _load("matchAttribute over three requests", nodes, most, 2, _plain_slices, _matching_claim),
        _load("firstAvailable", nodes, most, per_node, _plain_slices, _alternatives_claim),
    )


def grouped_load(nodes: int, most: int) -> Load:
    """Pods that want one of two kinds of partitions; `GROUPS_POLICY` keeps the kinds on different GPUs."""
    return _load("compatibility groups", nodes, most, _GPUS * _PARTS, _grouped_slices, _kind_claim)


def _load(
    name: str, nodes: int, most: int, per_node: int, slices: Slices, claim: Claim, percent_used: int = 75
) -> Load:
    """As many pods as take so many percent of what the nodes have room for."""
    pods = min(most, nodes * per_node * percent_used // 100)

    async def populate(api: ApiClient) -> None:
        await api.create(DEVICE_CLASSES, workload.device_class())
        await create_all(api, NODES, (workload.node(index) for index in range(nodes)))
        await create_all(api, RESOURCE_SLICES, (each for index in range(nodes) for each in slices(index)))
        await create_all(api, RESOURCE_CLAIMS, map(claim, range(pods)))
        await create_all(api, PODS, map(workload.pod, range(pods)))

    return Load(f"{name}, {nodes} nodes, {pods} pods", pods, populate)


def _plain_slices(index: int) -> Sequence[objects.Object]:
    return (workload.node_slice(index),)


def _partition_slices(index: int) -> Sequence[objects.Object]:
    return _slices_of(index, (_part(gpu, part, "mig") for gpu in range(_GPUS) for part in range(_PARTS)))


def _grouped_slices(index: int) -> Sequence[objects.Object]:
    parts = ((gpu, part, kind) for gpu in range(_GPUS) for kind in ("mig", "vgpu") for part in range(_PARTS))
    return _slices_of(index, (_part(*each) for each in parts))


def _slices_of(index: int, devices: Iterable[objects.Object]) -> Sequence[objects.Object]:
    """The counter sets of a node's GPUs, and its partitions."""
    name = workload.node_name(index)
    sets = [objects.counter_set(f"gpu-{gpu}", slots=str(_PARTS)) for gpu in range(_GPUS)]
    return (
        objects.resource_slice(f"{name}-counters", node=name, pool=name, counter_sets=sets, slice_count=2),
        objects.resource_slice(name, node=name, pool=name, devices=list(devices), slice_count=2),
    )


def _part(gpu: int, part: int, kind: str) -> objects.Object:
    return objects.device(
        f"gpu-{gpu}-{kind}-{part}",
        attributes={"model": "accelerator-80", "kind": kind},
        consumes=[objects.consumption(f"gpu-{gpu}", slots="1")],
    )


def _matching_claim(index: int) -> objects.Object:
    """Three devices of one NUMA node."""
    requests = [objects.request(f"gpu-{number}", workload.CLASS) for number in range(3)]
    constraints = [{"matchAttribute": _NUMA}]
    return objects.resource_claim(workload.claim_name(index), workload.NAMESPACE, *requests, constraints=constraints)


def _alternatives_claim(index: int) -> objects.Object:
    """A device that no node has, else one that all have."""
    absent = [{"cel": {"expression": f'device.attributes["{_DRIVER}"].index > 100'}}]
    options = [
        {"name": "absent", "deviceClassName": workload.CLASS, "count": 1, "selectors": absent},
        {"name": "present", "deviceClassName": workload.CLASS, "count": 1},
    ]
    request: objects.Object = {"name": workload.REQUEST, "firstAvailable": options}
    return objects.resource_claim(workload.claim_name(index), workload.NAMESPACE, request)


def _kind_claim(index: int) -> objects.Object:
    kind = ("mig", "vgpu")[index % 2]
    request = objects.request(workload.REQUEST, workload.CLASS, f'device.attributes["{_DRIVER}"].kind == "{kind}"')
    return objects.resource_claim(workload.claim_name(index), workload.NAMESPACE, request)
