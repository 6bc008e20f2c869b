from collections.abc import Iterable, Mapping, Sequence


class AskedNodes:
    """The nodes about which kube-scheduler has asked for a pod: `names`, or `all_but` these, once it has shrunk."""

    __slots__ = ("_asked", "_known", "all_but", "names")

    def __init__(self, asked: Mapping[str, object], known: Mapping[str, object]) -> None:
        """The keys of `asked`, where `known` are all nodes there are."""
        self._asked: Mapping[str, object] | None = asked
        self._known = known
        self.names = frozenset[str]()
        self.all_but = False

    def shrink(self) -> None:
        """Keep these, or all but these, whichever are fewer; nodes that came since they were asked about are not among them."""
        asked, known = self._asked, self._known
        if asked is None:
            return
        self.all_but = len(asked) * 2 >= len(known)
        self.names = frozenset(known.keys() - asked.keys()) if self.all_but else frozenset(asked)
        self._asked, self._known = None, {}

    def among(self, nodes: Iterable[str]) -> Sequence[str]:
        """Those of these nodes that kube-scheduler has asked about."""
        self.shrink()
        names, all_but = self.names, self.all_but
        return [node for node in nodes if (node in names) is not all_but]
