"""Versions of nodes: whether anything changed that a search on a node reads, and which nodes changed since."""

from collections.abc import Collection, Mapping, Sequence
from typing import Final

from dra_extender.runtime.caches import LruCache

_LONGEST_JOURNAL: Final = 10_000
_MANY: Final = 64
"""The order of so many nodes or more is kept, for `_ORDERS` sets of them."""
_ORDERS: Final = 16
_MOST_NAMES: Final = 50_000
"""Names of nodes with a version of their own; nodes come and go, and names of nodes that are gone are among them."""


class NodeVersions:
    """A version per node, incremented when something changes that a search on the node reads, and a journal of the latest changes.

    A change may concern some nodes or all of them.  `version` never decreases for a node, so two equal readings mean that nothing
    in between concerned that node.
    """

    __slots__ = ("_all", "_begin", "_journal", "_least", "_local", "_orders")

    def __init__(self) -> None:
        self._local: dict[str, int] = {}
        # The number of each node that is not in `_local`, above those that were forgotten.
        self._least = 0
        self._all = 0
        # Nodes in the order of their changes; entries before place `_begin` are dropped.
        self._journal: list[str] = []
        self._begin = 0
        self._orders: LruCache[frozenset[str], Sequence[str]] = LruCache(_ORDERS)

    def version(self, node: str) -> int:
        return self._local.get(node, self._least) + self._all

    def bump(self, nodes: frozenset[str] | set[str] | None) -> None:
        """Record that something about these nodes changed; None: possibly about any node."""
        if nodes is None:
            self._all += 1
            self._begin += len(self._journal) + 1
            self._journal.clear()
            return
        local, least, journal = self._local, self._least, self._journal
        for node in nodes if len(nodes) == 1 else self._in_order(nodes):
            local[node] = local.get(node, least) + 1
            journal.append(node)
        if len(local) > _MOST_NAMES:
            self._forget_names()
        elif len(journal) > _LONGEST_JOURNAL:
            gone = len(journal) // 2
            del journal[:gone]
            self._begin += gone

    def _forget_names(self) -> None:
        """Forget the names of all nodes; their versions rise, as after a change that may concern any node."""
        self._least = max(self._local.values()) + 1
        self._local.clear()
        self.bump(None)

    def _in_order(self, nodes: frozenset[str] | set[str]) -> Collection[str]:
        """Return the nodes by name: the journal decides what is searched first, and the order of a set differs by process."""
        if len(nodes) < _MANY or isinstance(nodes, set):
            return sorted(nodes)
        # The nodes that one pool reaches, mostly.
        ordered = self._orders.use(nodes)
        if ordered is None:
            ordered = self._orders[nodes] = sorted(nodes)
        return ordered

    @property
    def place(self) -> int:
        """Return the present place in the journal; it stays equal as long as nothing changes."""
        return self._begin + len(self._journal)

    def since(self, place: int) -> tuple[Sequence[str] | None, int]:
        """Return the nodes that changed since this place in the journal (None: possibly all), and the present place."""
        reached = self.place
        if place == reached:
            return (), reached
        return (None if place < self._begin else self._journal[place - self._begin :]), reached

    def parts(self) -> tuple[Mapping[str, int], int, int]:
        """Return what loops over many nodes read: `version(node)` is `local.get(node, least) + all`, until the next change."""
        return self._local, self._least, self._all
