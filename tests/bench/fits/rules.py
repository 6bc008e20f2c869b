"""Rules by which a pod gets its node and its GPUs, each over what is free on one node at a time."""

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Final, Protocol

from tests.bench.fits.trace import WHOLE, Kind, Room, Workload

_MOST_GPUS: Final = 8
_TIE: Final = 20.0
_DIGITS: Final = 6


class Rule(Protocol):
    """The node of least cost is taken; `by_chance`: among nodes of equal cost one at random, otherwise the first."""

    by_chance: bool

    def arrives(self, kind: Kind) -> bool:
        """Take note of a pod, before it is placed; return whether what is known of costs is outdated."""

    def cost(self, node: int, room: Room, kind: Kind) -> float:
        """Return the cost of a node that has room for the pod."""

    def take(self, node: int, room: Room, kind: Kind) -> Sequence[int]:
        """Choose the GPUs on the node of the pod."""


class Simple:
    """A rule without memory: the cost of the node, and the order of its GPUs by what is free of each."""

    def __init__(
        self,
        cost: Callable[[int, Room, Kind], float],
        order: Callable[[int], int] = lambda _: 0,
        *,
        by_chance: bool = False,
    ) -> None:
        self.by_chance = by_chance
        self.cost = cost
        self._order = order

    def arrives(self, kind: Kind) -> bool:
        return False

    def take(self, node: int, room: Room, kind: Kind) -> Sequence[int]:
        fitting = [gpu for gpu, free in enumerate(room.gpus) if free >= kind.share]
        fitting.sort(key=lambda gpu: self._order(room.gpus[gpu]))
        return fitting[: kind.gpus]


def at_random(nodes: Sequence[Room], workload: Workload) -> Rule:
    return Simple(lambda node, room, kind: 0.0, by_chance=True)


def in_tree(nodes: Sequence[Room], workload: Workload) -> Rule:
    """Return the default of kube-scheduler: the node with most CPU and memory left (LeastAllocated), its first devices that fit."""

    def used(node: int, room: Room, kind: Kind) -> float:
        empty = nodes[node]
        return -(room.cpu - kind.cpu) / empty.cpu - (room.memory - kind.memory) / empty.memory

    return Simple(used, by_chance=True)


def best_fit(nodes: Sequence[Room], workload: Workload) -> Rule:
    """Return the rule that takes the node with the least CPU and GPUs left, and on it the GPU with the least left."""
    most = max(node.cpu for node in nodes)
    return Simple(lambda node, room, kind: _left(room, kind, most), lambda free: free)


def _left(room: Room, kind: Kind, most_cpu: int) -> float:
    return (room.cpu - kind.cpu) / most_cpu + (sum(room.gpus) - kind.size) / (_MOST_GPUS * WHOLE)


class FragmentationGradient:
    """Fragmentation Gradient Descent, as published: the placement after which the least of what is free is useless to the workload.

    What is useless to a kind is all that is free on a node without CPU or GPUs for it, and otherwise what is free on GPUs that have
    less than its share.  As in the published evaluation, memory plays no part in it.
    """

    by_chance = False

    def __init__(self, nodes: Sequence[Room], workload: Workload, tie: float = 0.0) -> None:
        """`tie`: the weight of a best-fit term, which decides between nodes that lose nearly the same."""
        pods = sum(workload.kinds.values())
        self._kinds = [(kind, count / pods) for kind, count in workload.kinds.items() if kind.gpus]
        self._tie = tie
        self._most_cpu = max(node.cpu for node in nodes)
        self._gains: dict[Hashable, Sequence[tuple[int, float]]] = {}

    def fragmentation(self, room: Room) -> float:
        free, cpu = sum(room.gpus), room.cpu
        return free - sum([gain for least, gain in self._useful(room, free) if least <= cpu])

    def _useful(self, room: Room, free: int) -> Sequence[tuple[int, float]]:
        """Return what is not useless, by the CPU that a node needs for it."""
        key = room.model, tuple(sorted(room.gpus))
        known = self._gains.get(key)
        if known is None:
            gains: dict[int, float] = {}
            for kind, weight in self._kinds:
                if room._replace(cpu=kind.cpu, memory=kind.memory).has_room(kind):
                    part = sum(left for left in room.gpus if left < kind.share)
                    gains[kind.cpu] = gains.get(kind.cpu, 0.0) + weight * (free - part)
            known = self._gains[key] = tuple(gains.items())
        return known

    def arrives(self, kind: Kind) -> bool:
        return False

    def cost(self, node: int, room: Room, kind: Kind) -> float:
        loss = min(self.fragmentation(room.without(kind, gpus)) for gpus in candidates(room, kind))
        best_fit = self._tie * _left(room, kind, self._most_cpu)
        return round(loss - self.fragmentation(room) + best_fit, _DIGITS)

    def take(self, node: int, room: Room, kind: Kind) -> Sequence[int]:
        return min(
            candidates(room, kind), key=lambda gpus: round(self.fragmentation(room.without(kind, gpus)), _DIGITS)
        )


def candidates(room: Room, kind: Kind) -> Sequence[Sequence[int]]:
    """Return the GPUs between which there is a choice: one of each free part for a share, otherwise the first whole ones."""
    fitting = [gpu for gpu, free in enumerate(room.gpus) if free >= kind.share]
    if kind.gpus == 1 and kind.share < WHOLE:
        parts: Mapping[int, int] = {room.gpus[gpu]: gpu for gpu in reversed(fitting)}
        return [(gpu,) for gpu in parts.values()]
    return [fitting[: kind.gpus]]


def fgd_with_best_fit(nodes: Sequence[Room], workload: Workload) -> Rule:
    return FragmentationGradient(nodes, workload, _TIE)
