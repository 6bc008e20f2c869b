"""What filter answers; the HTTP side turns it into the extender protocol."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field


class OneText(Mapping[str, str]):
    """The same text for each of these nodes, which have different names: in a full cluster there are thousands of them.

    A dictionary is made only when a node is looked up.
    """

    __slots__ = ("_by_node", "nodes", "text")

    def __init__(self, nodes: Sequence[str], text: str) -> None:
        self.nodes = nodes
        self.text = text
        self._by_node: dict[str, str] | None = None

    def __getitem__(self, node: str) -> str:
        if self._by_node is None:
            self._by_node = self.as_dict()
        return self._by_node[node]

    def __iter__(self) -> Iterator[str]:
        return iter(self.nodes)

    def __len__(self) -> int:
        return len(self.nodes)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({list(self.nodes)!r}, {self.text!r})"

    def as_dict(self) -> dict[str, str]:
        """Return the same as a dictionary of its own."""
        return dict.fromkeys(self.nodes, self.text)


@dataclass(frozen=True, slots=True)
class FilterResponse:
    """The feasible nodes among those offered, and the reason why each other node is not feasible.

    All other nodes are `unresolvable` (FailedAndUnresolvableNodes): kube-scheduler's preemption ends pods for other shortages, and
    does not know which of them would free devices.
    """

    fitting: Sequence[str]
    unresolvable: Mapping[str, str] = field(default_factory=dict)
