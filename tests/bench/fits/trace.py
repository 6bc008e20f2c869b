"""What the published trace asks for, as counts of its kinds of pods and nodes.

The trace is `openb` of Alibaba's cluster-trace-gpu-v2023, published with "Beware of Fragmentation: Scheduling GPU-Sharing
Workloads with Fragmentation Gradient Descent" (Weng et al., USENIX ATC 2023).
"""

import csv
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Final, NamedTuple

WHOLE: Final = 1_000
"""What a whole GPU counts, in the unit of `share`."""
ASKED: Final = 1.3
"""Pods arrive until they have asked for so many times the GPUs of the cluster."""
WORKLOADS: Final = ("default", "multigpu50")
_FOLDER: Final = Path(__file__).parent


class Kind(NamedTuple):
    """What a pod asks for: thousandths of a core, MiB, so many GPUs of these models (any if empty), `share` of each."""

    cpu: int
    memory: int
    gpus: int
    share: int
    models: tuple[str, ...] = ()

    @property
    def size(self) -> int:
        return self.gpus * self.share


class Room(NamedTuple):
    """What is free on a node."""

    model: str
    cpu: int
    memory: int
    gpus: tuple[int, ...]

    def has_room(self, kind: Kind) -> bool:
        if self.cpu < kind.cpu or self.memory < kind.memory or (kind.models and self.model not in kind.models):
            return False
        if kind.gpus == 1:
            return max(self.gpus) >= kind.share
        return len([free for free in self.gpus if free >= kind.share]) >= kind.gpus

    def without(self, kind: Kind, gpus: Sequence[int]) -> "Room":
        """Return what is free after a pod of this kind has been given these GPUs."""
        left = list(self.gpus)
        for gpu in gpus:
            left[gpu] -= kind.share
        return Room(self.model, self.cpu - kind.cpu, self.memory - kind.memory, tuple(left))


@dataclass(frozen=True)
class Workload:
    """How often each kind of pod comes."""

    name: str
    kinds: Mapping[Kind, int]

    def arrivals(self, capacity: int, random: Random) -> Sequence[Kind]:
        """Return pods in the order of their arrival: each pod of the trace once, then samples, shuffled."""
        pods = [kind for kind, count in self.kinds.items() for _ in range(count)]
        random.shuffle(pods)
        arriving: list[Kind] = []
        asked = 0
        while asked < ASKED * capacity:
            kind = pods[len(arriving)] if len(arriving) < len(pods) else random.choice(pods)
            arriving.append(kind)
            asked += kind.size
        random.shuffle(arriving)
        return arriving


def read_workload(name: str) -> Workload:
    with (_FOLDER / "openb_pods.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    kinds = {
        Kind(int(row["cpu_milli"]), int(row["memory_mib"]), int(row["num_gpu"]), int(row["gpu_milli"])): int(row[name])
        for row in rows
    }
    return Workload(name, {kind: count for kind, count in kinds.items() if count})


def read_nodes() -> list[Room]:
    """Return the nodes of the trace, empty."""
    with (_FOLDER / "openb_nodes.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    return [
        Room(row["model"], int(row["cpu_milli"]), int(row["memory_mib"]), (WHOLE,) * int(row["gpu"]))
        for row in rows
        for _ in range(int(row["nodes"]))
    ]


def capacity_of(nodes: Sequence[Room]) -> int:
    return sum(len(node.gpus) for node in nodes) * WHOLE


def read_task_file(path: Path) -> Workload:
    """Return the workload of a file in the trace's own format, one pod a row."""
    with path.open(encoding="utf-8") as file:
        kinds = Counter(_kind(row) for row in csv.DictReader(file))
    return Workload(path.stem, kinds)


def _kind(row: Mapping[str, str]) -> Kind:
    gpus = int(row["num_gpu"])
    models = tuple((row.get("gpu_spec") or "").split("|")) if row.get("gpu_spec") else ()
    return Kind(int(row["cpu_milli"]), int(row["memory_mib"]), gpus, int(row["gpu_milli"]) if gpus else 0, models)
