"""The order of nodes by what a placement costs the expected demand, kept up to date as losses change."""

from bisect import bisect_left, insort
from collections.abc import Callable, Container, Iterable, Iterator
from itertools import chain, filterfalse, islice
from operator import itemgetter
from typing import Final

from dra_extender.allocator.fragmentation.kinds import NodeAmounts
from dra_extender.ledger.node_versions import NodeVersions
from dra_extender.scheduling.evaluation.expected_demand import PlacementRooms

_NAME: Final = itemgetter(1)


class NodeRanking:
    """The nodes that fit by what the placement costs the expected demand (their loss), of equal losses by name.

    `pod_amounts`: CPU and memory of the pods that are placed.
    `losses` are all under the present `prices`, the version of the expected demand, because losses under different prices cannot be
    compared.  `earlier`: nodes whose loss is known only under earlier prices, by that loss.  `unrated`: nodes whose loss is not
    known, or is that of earlier prices, CPU or memory.  `rooms` has what the losses were computed from.
    """

    __slots__ = ("_amounts_place", "_order", "earlier", "losses", "pod_amounts", "prices", "rooms", "unrated")

    def __init__(self, pod_amounts: NodeAmounts, nodes: Iterable[str]) -> None:
        """No node is rated yet; those that come last are rated first."""
        self.pod_amounts = pod_amounts
        self.losses: dict[str, float] = {}
        self.earlier: dict[str, None] = {}
        self.rooms: dict[str, PlacementRooms] = {}
        self.unrated: dict[str, None] = dict.fromkeys(nodes)
        self.prices: object = None
        self._order: list[tuple[float, str]] = []
        self._amounts_place = -1

    def __iter__(self) -> Iterator[str]:
        """Return the nodes by loss; nodes whose loss is known under earlier prices come last."""
        return chain(map(_NAME, self._order), self.earlier)

    def best_first(self, under_holds: Container[str] | None, most_held: int) -> Iterator[str]:
        """Return the nodes by loss; of those under holds the first few, and the others last."""
        if under_holds is None:
            return iter(self)
        # In C after the first few: in a burst, most of the best nodes are under holds.
        is_held, names = under_holds.__contains__, iter(self)
        first, others = _until_held(names, is_held, most_held), islice(filter(is_held, self), most_held, None)
        return chain(first, filterfalse(is_held, names), others)

    def put(self, name: str, rooms: PlacementRooms | None, loss: float | None) -> None:
        """Rate a node with this loss; None if the pod does not fit there."""
        if rooms is None:
            self.rooms.pop(name, None)
        else:
            self.rooms[name] = rooms
        self.earlier.pop(name, None)
        self.unrated.pop(name, None)
        before = self.losses.get(name)
        if before == loss:
            return
        if before is not None:
            del self.losses[name]
            del self._order[bisect_left(self._order, (before, name))]
        if loss is not None:
            self.losses[name] = loss
            insort(self._order, (loss, name))

    def changed(self, name: str) -> None:
        """Take note that the state of the node has changed: what a placement costs there now is not known."""
        self.put(name, None, None)
        self._rate_first([name])

    def outdate(self, prices: object, amounts: NodeVersions) -> None:
        """Have nodes rated again: if the prices have changed, all of them, the best first; else those with other CPU or memory."""
        if self.prices is not prices:
            self.prices = prices
            self.earlier = dict.fromkeys(self)
            self.losses.clear()
            self._order.clear()
            self._rate_first(reversed(self.earlier))
        changed, self._amounts_place = amounts.since(self._amounts_place)
        for name in self.losses if changed is None else changed:
            if name in self.losses:
                self.unrated[name] = None

    def _rate_first(self, names: Iterable[str]) -> None:
        """Have these nodes rated before all others, the last of them first."""
        for name in names:
            self.unrated.pop(name, None)
            self.unrated[name] = None


def _until_held(names: Iterator[str], is_held: Callable[[str], bool], most_held: int) -> Iterator[str]:
    """Yield names until so many of them are held."""
    while most_held and (name := next(names, None)) is not None:
        most_held -= is_held(name)
        yield name
