"""What is known of one demand on all nodes, valid for the present versions of the nodes."""

from collections.abc import Container, Hashable, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Final

from dra_extender.allocator.demand.demand import Reads
from dra_extender.allocator.fragmentation.kinds import NodeAmounts
from dra_extender.allocator.state.reasons import Code, Rejection
from dra_extender.ledger.node_versions import NodeVersions
from dra_extender.runtime.caches import LruCache
from dra_extender.scheduling.evaluation.filter_result import ClassResult, NodeResult
from dra_extender.scheduling.evaluation.node_ranking import NodeRanking

_CLASSES_PER_NODE: Final = 2
_RANKINGS: Final = 8


@dataclass(slots=True)
class ResultTable:
    """The results of one signature: `free` by node without holds, `held` by node under holds, `classes` by equivalence class.

    `fits` and `rejected` (with the summary) are the part of `free` that is valid now, after `drop_changed`.  Nodes that a change
    took out of them are in `stale`.  `calls`: of the filter.  `alternatives`: nodes may differ in the alternatives that they
    offer.  `reads`: the attributes that can matter (None: any).  `rankings`: by CPU and memory of the pod, the nodes by what the
    placement costs the expected demand.
    """

    free: dict[str, NodeResult] = field(default_factory=dict)
    held: dict[str, NodeResult] = field(default_factory=dict)
    classes: dict[Hashable, ClassResult] = field(default_factory=dict)
    fits: dict[str, NodeResult] = field(default_factory=dict)
    rejected: dict[str, str] = field(default_factory=dict)
    stale: dict[str, None] = field(default_factory=dict)
    calls: int = 0
    alternatives: bool = False
    reads: Reads | None = None
    rankings: LruCache[NodeAmounts, NodeRanking] = field(default_factory=lambda: LruCache(_RANKINGS))
    _places: tuple[int, int] = (-1, -1)

    def __len__(self) -> int:
        # The name of a node without a loss takes a quarter of the memory.
        ranked = sum(len(ranking.rooms) + len(ranking.unrated) // 4 for ranking in self.rankings.values())
        return len(self.free) + len(self.held) + len(self.classes) + ranked

    def drop_changed(
        self, state: NodeVersions, hold_versions: NodeVersions, under_holds: Container[str] | None
    ) -> None:
        """Drop the results of nodes that have changed since the last call, or that have come under holds."""
        moved, state_place = state.since(self._places[0])
        touched, held_place = hold_versions.since(self._places[1])
        self._places = (state_place, held_place)
        if moved is None or touched is None or under_holds is None:
            self.fits.clear()
            self.rejected.clear()
            self.stale.clear()
            self.rankings.clear()
            return
        for name in moved:
            self._drop(name)
            for ranking in self.rankings.values():
                ranking.changed(name)
        if touched:
            free, (versions, least, moved_all) = self.free, state.parts()
            for name in dict.fromkeys(touched):
                result = None if name in under_holds else free.get(name)
                if result is not None and result.state == versions.get(name, least) + moved_all:
                    self.keep(name, result)
                else:
                    self._drop(name)

    def _drop(self, name: str) -> None:
        self.fits.pop(name, None)
        self.rejected.pop(name, None)
        self.stale[name] = None

    def keep(self, name: str, result: NodeResult) -> None:
        """Record that this result is valid now, and that the node is under no hold."""
        if result.rejection is None:
            self.fits[name] = result
        else:
            self.rejected[name] = result.text

    def texts_of(self, names: Sequence[str]) -> Sequence[str] | None:
        """Return the summaries if all these nodes are rejected, otherwise None: one pass in C for a full cluster."""
        try:
            # Faster than a map, and a tuple from two names on.
            return itemgetter(*names)(self.rejected) if len(names) > 1 else [self.rejected[name] for name in names]
        except KeyError:
            return None

    def rejection(self, name: str) -> Rejection:
        """Return the rejection of a node in `rejected`, with its details."""
        return self.free[name].rejection or Rejection(code=Code.COMBINATION)

    def learn(self, equivalence_class: Hashable, result: ClassResult) -> None:
        """Keep the result of an equivalence class.  Classes without nodes are not recognized; too many classes clear the table."""
        if len(self.classes) > _CLASSES_PER_NODE * (len(self.free) + 1):
            self.classes.clear()
        self.classes[equivalence_class] = result
