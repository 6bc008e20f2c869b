from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, Self


class AskedNodes(NamedTuple):
    """The nodes about which kube-scheduler has asked for a pod: these, or all but these, whichever are fewer."""

    names: frozenset[str]
    all_but: bool

    @classmethod
    def of(cls, asked: Mapping[str, object], known: Mapping[str, object]) -> Self:
        """The keys of `asked`, where `known` are all nodes there are."""
        if len(asked) * 2 < len(known):
            return cls(frozenset(asked), all_but=False)
        return cls(frozenset(known.keys() - asked.keys()), all_but=True)

    def among(self, nodes: Iterable[str]) -> Sequence[str]:
        """Those of these nodes that kube-scheduler has asked about."""
        names, all_but = self
        return [node for node in nodes if (node in names) is not all_but]
