"""The nodes that fit a demand in the order of what the placement costs the expected demand, kept from call to call."""

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator

from dra_extender.ledger.node_versions import NodeVersions


class NodeRanking:
    """Nodes by loss, of equal losses by name; `unrated` are those whose loss is not known, or is that of an earlier state.

    `prices` is the version of the expected demand under which the others were rated.
    """

    __slots__ = ("_amounts_place", "_order", "losses", "prices", "unrated")

    def __init__(self, nodes: Iterable[str]) -> None:
        """No node is rated yet; those that come last are rated first."""
        self.losses: dict[str, float] = {}
        self.unrated: dict[str, None] = dict.fromkeys(nodes)
        self.prices: object = None
        self._order: list[tuple[float, str]] = []
        self._amounts_place = -1

    def __iter__(self) -> Iterator[str]:
        return (name for _, name in self._order)

    def put(self, name: str, loss: float | None) -> None:
        """Set the loss on a node; None if the pod does not fit there."""
        before = self.losses.pop(name, None)
        if before is not None:
            del self._order[bisect_left(self._order, (before, name))]
        if loss is not None:
            self.losses[name] = loss
            insort(self._order, (loss, name))

    def changed(self, name: str) -> None:
        """Take note that the state of the node has changed: what a placement costs there now is not known."""
        self.put(name, None)
        self.unrated[name] = None

    def outdate(self, prices: object, amounts: NodeVersions) -> None:
        """Have nodes rated again: all if the prices have changed, else those with other CPU or memory.  They keep their loss."""
        if self.prices is not prices:
            self.prices = prices
            self.unrated.update(dict.fromkeys(reversed(list(self))))
        changed, self._amounts_place = amounts.since(self._amounts_place)
        names = self.losses if changed is None else changed
        self.unrated.update(dict.fromkeys(name for name in names if name in self.losses))
