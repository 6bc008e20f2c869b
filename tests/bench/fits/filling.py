"""Pods arrive until the cluster is full and longer, and none of them ends."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Final, NamedTuple

from tests.bench.fits.rules import Rule
from tests.bench.fits.trace import Kind, Room, capacity_of

_NO: Final = float("inf")


class Filled(NamedTuple):
    """Per cent of all GPUs that are allocated once 100 % of them have been asked for, and at the end."""

    at_capacity: float
    at_end: float


@dataclass(slots=True)
class _Costs:
    """The cost of each node for one kind of pod, valid for the changes up to `seen`."""

    costs: list[float]
    seen: int = 0


@dataclass(slots=True)
class Cluster:
    """Nodes that fill up by a rule; a cost is computed again only after its node has changed."""

    nodes: Sequence[Room]
    rule: Rule
    random: Random
    rooms: list[Room] = field(init=False)
    _costs: dict[Kind, _Costs] = field(default_factory=dict)
    _changes: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.rooms = list(self.nodes)

    def place(self, kind: Kind) -> int | None:
        """Give a pod its node, and return the number of the node; None if the pod fits nowhere."""
        if self.rule.arrives(kind):
            self._costs.clear()
        costs = self._renewed(kind)
        least = min(costs)
        if least == _NO:
            return None
        if self.rule.by_chance:
            node = self.random.choice([number for number, cost in enumerate(costs) if cost == least])
        else:
            node = costs.index(least)
        room = self.rooms[node]
        self.rooms[node] = room.without(kind, self.rule.take(node, room, kind))
        self._changes.append(node)
        return node

    def _renewed(self, kind: Kind) -> list[float]:
        """Return the cost of each node for the pod."""
        known = self._costs.get(kind)
        if known is None:
            known = self._costs[kind] = _Costs([_NO] * len(self.rooms))
            changed: Iterable[int] = range(len(self.rooms))
        else:
            changed = set(self._changes[known.seen :])
        known.seen = len(self._changes)
        for node in changed:
            room = self.rooms[node]
            known.costs[node] = self.rule.cost(node, room, kind) if room.has_room(kind) else _NO
        return known.costs


def fill(nodes: Sequence[Room], arrivals: Sequence[Kind], rule: Rule, random: Random) -> Filled:
    cluster = Cluster(nodes, rule, random)
    return shares(nodes, [(kind, cluster.place(kind) is not None) for kind in arrivals])


def shares(nodes: Sequence[Room], placed: Sequence[tuple[Kind, bool]]) -> Filled:
    """Return how much is allocated, given the pods in the order of their arrival, each with whether it got a node."""
    capacity = capacity_of(nodes)
    asked = allocated = 0
    at_capacity: int | None = None
    for kind, has_node in placed:
        asked += kind.size
        allocated += kind.size if has_node else 0
        if at_capacity is None and asked >= capacity:
            at_capacity = allocated
    return Filled(100 * (allocated if at_capacity is None else at_capacity) / capacity, 100 * allocated / capacity)
