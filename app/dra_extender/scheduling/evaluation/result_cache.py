"""Answers are remembered, not recomputed.

An outcome is stored under what was asked (the demand's signature), the node and the node's version, so that replicas of one
workload share it and a filter call costs little more than looking up.  It is stored for all nodes of the node's kind, too, which
are then not searched themselves; holds count there like allocations.  Nodes under holds have an entry of their own, which the end
of the hold does not spoil.
"""

from collections.abc import Container, Hashable
from dataclasses import dataclass, field

from dra_extender.allocator.demand.reads import Reads
from dra_extender.ledger.state.node_versions import NodeVersions
from dra_extender.model.allocation import Placement, ScoreTerms
from dra_extender.model.device import PoolId
from dra_extender.model.rejection import Code, Rejection
from dra_extender.runtime.caches import LruCache
from dra_extender.scheduling.evaluation.placement_template import PlacementTemplate


class NodeResult:
    """The allocator's answer for one node, the versions it is good for, and what is derived from it once.

    `merits` are those of the placement, by claim; empty where none has any.  `limited`: the search was stopped before its limit of
    steps, so that this is good for nobody else.
    """

    __slots__ = ("_placement", "_template", "hold", "limited", "merits", "rejection", "state", "text")

    def __init__(
        self,
        state: int,
        hold: int,
        placement: Placement | None,
        rejection: Rejection | None,
        text: str,
        merits: tuple[ScoreTerms, ...] = (),
        *,
        limited: bool = False,
    ) -> None:
        """Either a placement with its merits, or a rejection with its summary as `text`."""
        self.state = state
        self.hold = hold
        self.rejection = rejection
        self.text = text
        self.merits = merits
        self.limited = limited
        self._placement = placement
        self._template: tuple[PlacementTemplate, str, tuple[PoolId, ...]] | None = None

    @property
    def placement(self) -> Placement | None:
        """What the pod would get on the node; None if it does not fit."""
        if self._placement is None and self._template is not None:
            template, node, pools = self._template
            self._placement = template.on(node, pools)
            self._template = None
        return self._placement

    @classmethod
    def from_class(
        cls, versions: tuple[int, int], answer: "ClassResult", node: str, pools: tuple[PoolId, ...]
    ) -> "NodeResult":
        """The outcome at these versions (state, hold) from the answer for the node's kind; the placement is worked out when needed.

        Nodes that are refused for one reason at the same versions share an object.
        """
        if answer.template is None:
            refused = answer.refused.get(versions)
            if refused is None:
                if len(answer.refused) >= _REFUSED_VERSIONS:
                    answer.refused.clear()
                refused = answer.refused[versions] = cls(*versions, None, answer.rejection, answer.text)
            return refused
        made = cls(*versions, None, None, answer.text, answer.merits)
        made._template = (answer.template, node, pools)
        return made


@dataclass(frozen=True, slots=True)
class ClassResult:
    """The answer for all nodes of one kind: a template with its merits, or a rejection with its summary.

    `refused` holds outcomes of nodes that are refused, by versions.
    """

    template: PlacementTemplate | None
    rejection: Rejection | None
    text: str
    merits: tuple[ScoreTerms, ...]
    refused: dict[tuple[int, int], NodeResult] = field(default_factory=dict, compare=False)


@dataclass(slots=True)
class ResultTable:
    """Outcomes of one signature by node: without holds on the node, and under holds; and answers by kind of node.

    `fits` and `refused` (with the short reason) are the part of `free` that is good for this very moment, after `catch_up`.  What
    falls out of them by a change waits in `stale`.  `asked` counts how often the question was put,
    `alternatives` tells whether nodes may differ in those that they offer, `reads` which attributes can matter (None: any).
    """

    free: dict[str, NodeResult] = field(default_factory=dict)
    held: dict[str, NodeResult] = field(default_factory=dict)
    classes: dict[Hashable, ClassResult] = field(default_factory=dict)
    fits: dict[str, NodeResult] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    stale: dict[str, None] = field(default_factory=dict)
    asked: int = 0
    alternatives: bool = False
    reads: Reads | None = None
    _places: tuple[int, int] = (-1, -1)

    def __len__(self) -> int:
        return len(self.free) + len(self.held) + len(self.classes)

    def catch_up(self, state: NodeVersions, held: NodeVersions, under_holds: Container[str] | None) -> None:
        """Let go of what is known of nodes that have changed since the last time, or that came under holds."""
        moved, state_place = state.since(self._places[0])
        touched, held_place = held.since(self._places[1])
        self._places = (state_place, held_place)
        if moved is None or touched is None or under_holds is None:
            self.fits.clear()
            self.refused.clear()
            self.stale.clear()
            return
        for name in moved:
            self._drop(name)
        if touched:
            free, (versions, moved_all) = self.free, state.parts()
            for name in set(touched):
                outcome = None if name in under_holds else free.get(name)
                if outcome is not None and outcome.state == versions.get(name, 0) + moved_all:
                    self.keep(name, outcome)
                else:
                    self._drop(name)

    def _drop(self, name: str) -> None:
        self.fits.pop(name, None)
        self.refused.pop(name, None)
        self.stale[name] = None

    def keep(self, name: str, outcome: NodeResult) -> None:
        """This outcome is good now, and the node is under no hold."""
        if outcome.rejection is None:
            self.fits[name] = outcome
        else:
            self.refused[name] = outcome.text

    def rejection(self, name: str) -> Rejection:
        """The reason for which a node is among the refused ones, with its details."""
        return self.free[name].rejection or Rejection(code=Code.COMBINATION)

    def learn(self, equivalence_class: Hashable, answer: ClassResult) -> None:
        """Remember the answer for a kind of node.  Kinds that no node has any more are not known as such, so many start anew."""
        if len(self.classes) > _CLASSES_PER_NODE * (len(self.free) + 1):
            self.classes.clear()
        self.classes[equivalence_class] = answer


_CLASSES_PER_NODE = 2
_REFUSED_VERSIONS = 64


class ResultCache:
    """Tables by signature, least recently used first out when there are more than `limit` outcomes in all."""

    def __init__(self, limit: int) -> None:
        self._tables: LruCache[bytes, ResultTable] = LruCache(limit, weigh=len, max_weight=limit)

    def table(self, signature: bytes) -> ResultTable:
        """The outcomes for this signature."""
        table = self._tables.use(signature)
        if table is None:
            table = self._tables[signature] = ResultTable()
        return table
