from collections.abc import Mapping


class NodeVersions:
    """Counters that move when something a search on a node could read moves.

    A change may concern some nodes or all of them.  `of` never decreases for a node, so two equal readings mean that nothing in
    between concerned that node.
    """

    __slots__ = ("_all", "_local")

    def __init__(self) -> None:
        self._local: dict[str, int] = {}
        self._all = 0

    def of(self, node: str) -> int:
        """The version of this node."""
        return self._local.get(node, 0) + self._all

    def moved(self, nodes: frozenset[str] | set[str] | None) -> None:
        """Something about these nodes changed; None means any node may be concerned."""
        if nodes is None:
            self._all += 1
            return
        local = self._local
        for node in nodes:
            local[node] = local.get(node, 0) + 1

    def parts(self) -> tuple[Mapping[str, int], int]:
        """For loops over many nodes: `of(node)` is `mapping.get(node, 0) + number`, until the next change."""
        return self._local, self._all
