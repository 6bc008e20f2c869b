"""Clusters that grow in one respect, with nodes that are all different, so that each of them is searched."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from tests.bench.allocator_cluster import ATTRIBUTES, CLASS, Cluster, Object, claim, cluster
from tests.controlplane import objects

_NODES: Final = 200


@dataclass(frozen=True, slots=True)
class Growth:
    """What grows, in two sizes."""

    name: str
    fill: Callable[[int], Cluster]
    small: int
    large: int


def _different(count: int) -> Callable[[int], Sequence[Object]]:
    return lambda node: [
        objects.device(f"gpu-{node}-{number}", attributes={"index": number, "serial": node * 1000 + number})
        for number in range(count)
    ]


def _nodes(count: int) -> Cluster:
    made = cluster(count, _different(16))
    made.claims = [claim(objects.request("gpu", CLASS, f"{ATTRIBUTES}.index >= 8 && {ATTRIBUTES}.serial > 5"))]
    return made


def _devices(count: int) -> Cluster:
    """The last device is the first that fits."""
    made = cluster(_NODES, _different(count))
    made.claims = [claim(objects.request("gpu", CLASS, f"{ATTRIBUTES}.index == {count - 1}"))]
    return made


def _claims(count: int) -> Cluster:
    made = cluster(_NODES, _different(32))
    made.claims = [
        claim(objects.request("gpu", CLASS, f"{ATTRIBUTES}.index >= 0"), index=number) for number in range(count)
    ]
    return made


def _allocated(share: int) -> Cluster:
    """Of 32 devices as many are taken."""
    made = cluster(_NODES, _different(32))
    for node in range(_NODES):
        made.take(node, [f"gpu-{node}-{number}" for number in range(share)])
    made.claims = [claim(objects.request("gpu", CLASS))]
    return made


GROWTHS: Final = (
    Growth("nodes", _nodes, 250, 2_000),
    Growth("devices of a node", _devices, 16, 128),
    Growth("claims of the pod", _claims, 2, 16),
    Growth("devices taken on a node", _allocated, 4, 31),
)
