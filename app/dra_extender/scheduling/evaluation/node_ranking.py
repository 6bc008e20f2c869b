"""The nodes that fit a demand in the order of what the placement costs the expected demand, kept from call to call."""

from bisect import bisect_left, insort
from collections.abc import Container, Iterable, Iterator

from dra_extender.ledger.node_versions import NodeVersions
from dra_extender.scheduling.evaluation.expected_demand import PlacementRooms


class NodeRanking:
    """Nodes by loss, of equal losses by name.

    `unrated`: nodes whose loss is not known, or is that of an earlier state.  `rooms` has what the losses were computed from.
    `prices` is the version of the expected demand under which nodes were rated.
    """

    __slots__ = ("_amounts_place", "_order", "losses", "prices", "rooms", "unrated")

    def __init__(self, nodes: Iterable[str]) -> None:
        """No node is rated yet; those that come last are rated first."""
        self.losses: dict[str, float] = {}
        self.rooms: dict[str, PlacementRooms] = {}
        self.unrated: dict[str, None] = dict.fromkeys(nodes)
        self.prices: object = None
        self._order: list[tuple[float, str]] = []
        self._amounts_place = -1

    def __iter__(self) -> Iterator[str]:
        return (name for _, name in self._order)

    def best_first(self, under_holds: Container[str] | None, most_held: int) -> Iterator[str]:
        """Yield the nodes by loss; of those under holds the first few, and the others last."""
        last: list[str] = []
        for _, name in self._order:
            if under_holds is None or name in under_holds:
                if not most_held:
                    last.append(name)
                    continue
                most_held -= 1
            yield name
        yield from last

    def put(self, name: str, rooms: PlacementRooms | None, loss: float | None) -> None:
        """Set the loss on a node; None if the pod does not fit there."""
        if rooms is None:
            self.rooms.pop(name, None)
        else:
            self.rooms[name] = rooms
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
        self.unrated[name] = None

    def outdate(self, prices: object, amounts: NodeVersions) -> None:
        """Have nodes rated again: all if the prices have changed, else those with other CPU or memory.  They keep their loss."""
        if self.prices is not prices:
            self.prices = prices
            self.unrated.update(dict.fromkeys(reversed(list(self))))
        changed, self._amounts_place = amounts.since(self._amounts_place)
        names = self.losses if changed is None else changed
        self.unrated.update(dict.fromkeys(name for name in names if name in self.losses))
