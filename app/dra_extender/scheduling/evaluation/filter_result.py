"""The results of an evaluation: for one node, for many nodes, and for the filter call with what it has to wait for."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from msgspec.structs import replace

from dra_extender.allocator.demand.demand import Demand
from dra_extender.allocator.state.reasons import Code, Rejection, closeness
from dra_extender.model.allocation import ClaimPlacement, Placement, ScoreTerms
from dra_extender.model.device import PoolId
from dra_extender.model.node_selector import only_node
from dra_extender.scheduling.call_budget import Awaited
from dra_extender.scheduling.claims.live_reads import UnreadSpecs
from dra_extender.scheduling.claims.lookup import FoundClaim
from dra_extender.scheduling.evaluation.scoring import NO_TERMS
from dra_extender.scheduling.ports.filter_response import OneText

MOST_REASONS: Final = 8
"""How many different reasons one answer names: kube-scheduler writes all of them into the pod."""
FURTHER_REASONS: Final = "further reasons"
_FEW: Final = 3
_REJECTED_VERSIONS: Final = 64


@dataclass(eq=False, slots=True)
class NodeResult:
    """What a search found on one node, and the versions of the node (`state`, `hold`) for which that is valid.

    It is a placement with its score terms by claim (empty if no claim has any), or a rejection with its summary as `text`.
    `_class_result` with the node and its local pools stands for a placement that is made when it is read first.  `limited`: the
    search was stopped before its limit of steps, so the result is not cached.
    """

    state: int
    hold: int
    rejection: Rejection | None = None
    text: str = ""
    score_terms: tuple[ScoreTerms, ...] = ()
    limited: bool = False
    _placement: Placement | None = None
    _class_result: tuple["ClassResult", str, tuple[PoolId, ...]] | None = None

    @property
    def placement(self) -> Placement | None:
        """Return what the pod would get on the node; None if it does not fit."""
        if self._placement is None and self._class_result is not None:
            class_result, node, pools = self._class_result
            self._placement = class_result.placement_on(node, pools)
            self._class_result = None
        return self._placement


@dataclass(frozen=True, slots=True)
class ClassResult:
    """The `result` of one `node`, with the node's local pools in order: one for all nodes of its equivalence class.

    `_rejected` has the results of rejected nodes by versions, because nodes at the same versions share one object.
    """

    node: str
    pools: tuple[PoolId, ...]
    result: NodeResult
    _rejected: dict[tuple[int, int], NodeResult] = field(default_factory=dict, compare=False)

    def on(self, node: str, pools: tuple[PoolId, ...], versions: tuple[int, int]) -> NodeResult:
        """Return the result on a node of the class with these local pools, at these versions (state, hold)."""
        result = self.result
        if result.rejection is None:
            return NodeResult(*versions, score_terms=result.score_terms, _class_result=(self, node, pools))
        rejected = self._rejected.get(versions)
        if rejected is None:
            if len(self._rejected) >= _REJECTED_VERSIONS:
                self._rejected.clear()
            rejected = self._rejected[versions] = NodeResult(*versions, result.rejection, result.text)
        return rejected

    def placement_on(self, node: str, pools: tuple[PoolId, ...]) -> Placement | None:
        """Return the placement on a node of the class, whose local pools are `pools`; share IDs stay the same."""
        placement = self.result.placement
        if placement is None:
            return None
        names = {pool: other_pool[1] for pool, other_pool in zip(self.pools, pools, strict=True) if pool != other_pool}
        claims = tuple(self._claim(claim, node, names) for claim in placement.claims)
        return replace(placement, claims=claims)

    def _claim(self, claim: ClaimPlacement, node: str, names: Mapping[PoolId, str]) -> ClaimPlacement:
        allocation = claim.allocation
        results = tuple(
            replace(result, pool=names.get((result.driver, result.pool), result.pool))
            for result in allocation.devices.results
        )
        selector = allocation.node_selector
        if selector == only_node(self.node):
            selector = only_node(node)
        return ClaimPlacement(
            allocation=replace(
                allocation, devices=replace(allocation.devices, results=results), node_selector=selector
            ),
            holdings=tuple(
                replace(
                    holding,
                    pool=names.get(holding.pool_id, holding.pool),
                    node=None if holding.node is None else node,
                )
                for holding in claim.holdings
            ),
        )


class RejectionGroup(NamedTuple):
    """Nodes with the same rejection: how many, the first of them, and the rejection with all details."""

    nodes: int
    example: str
    rejection: Rejection


@dataclass(frozen=True, slots=True)
class WithoutHolds:
    """What a pod that does not fit would get if holds of other pods ended (`EndableHolds`).

    `loose`: its placements without loose holds.  `stale`: its placements if stale holds were revoked.  `multi_node`: it would fit
    if the pods whose holds keep several nodes went to other nodes.
    """

    loose: tuple[ClaimPlacement, ...] = ()
    stale: tuple[ClaimPlacement, ...] = ()
    multi_node: bool = False

    @property
    def may_end_in_call(self) -> bool:
        """Return whether the pod may fit after a wait for these holds, or after their revocation."""
        return self.multi_node or bool(self.stale)

    def merged(self, other: "WithoutHolds") -> "WithoutHolds":
        """Return what the pod would get on the nodes of both."""
        return WithoutHolds(self.loose + other.loose, self.stale or other.stale, self.multi_node or other.multi_node)


@dataclass(slots=True)
class FilterResult:
    """What one evaluation of a pod found.

    `fits` are the nodes that fit, each with its result if something has to be held there.  `texts` has the summary for each node
    that does not fit, `reasons` one rejection with its details for each summary.
    `unfinished`: the evaluation stopped before the end and has no result yet.
    `open` and `held` are the pod's claims in these states, and `demand` is what the open ones ask for.
    `limited`: the search on some node was not finished.
    `searched`: how many nodes were searched; the others have a cached result or that of an equivalent node.
    `losses`: what the placements on nodes that fit cost the expected demand, where that decides.
    `assigned_node` is the node of a gang member's plan, where its devices are held already.
    """

    fits: dict[str, NodeResult | None] = field(default_factory=dict)
    texts: Mapping[str, str] = field(default_factory=dict)
    reasons: dict[str, tuple[str, Rejection]] = field(default_factory=dict)
    unfinished: Awaited | UnreadSpecs | None = None
    open: tuple[FoundClaim, ...] = ()
    held: tuple[FoundClaim, ...] = ()
    without_holds: WithoutHolds = WithoutHolds()
    limited: bool = False
    demand: Demand | None = None
    assigned_node: str | None = None
    searched: int = 0
    losses: dict[str, float] = field(default_factory=dict)
    _counts: dict[str, int] = field(default_factory=dict)

    @property
    def awaited(self) -> Awaited | UnreadSpecs | None:
        """Return what is worth waiting for before another evaluation; None if the result is final."""
        if self.fits or self.unfinished is not None:
            return self.unfinished
        if Code.CLAIM_MISSING in self.codes:
            return Awaited.CLAIM_DELIVERY
        if self.without_holds.stale:
            return Awaited.STALE_HOLDS
        return Awaited.MULTI_NODE_HOLDS if self.without_holds.multi_node else None

    @property
    def score_terms(self) -> dict[str, ScoreTerms]:
        """Return the score terms of each node that fits with devices for the pod, with what the placement costs there."""
        return {
            name: sum(fit.score_terms, ScoreTerms(loss=self.losses[name]) if name in self.losses else NO_TERMS)
            for name, fit in self.fits.items()
            if fit is not None
        }

    def reject(self, node: str, rejection: Rejection, text: str | None = None) -> None:
        """Record that the node does not fit, in place of an earlier reason; `text` is the rejection's summary, if it is known."""
        if text is None:
            text = rejection.summary
        texts = self.texts = _as_dict(self.texts)
        before = texts.get(node)
        if before is not None:
            self._counts[before] -= 1
        texts[node] = text
        self._counts[text] = self._counts.get(text, 0) + 1
        if text not in self.reasons:
            self.reasons[text] = (node, rejection)

    def reject_batch(
        self, nodes: Sequence[str], texts: Sequence[str], rejection_of: Callable[[str], Rejection]
    ) -> None:
        """Record that these nodes, none of which was rejected before, do not fit; one rejection is read per summary."""
        if not nodes:
            return
        counts = _counted(texts)
        added = dict(zip(nodes, texts, strict=True)) if len(counts) > 1 else OneText(nodes, texts[0])
        self.texts = _as_dict(self.texts) | _as_dict(added) if self.texts else added
        for text, count in counts.items():
            self._counts[text] = self._counts.get(text, 0) + count
            if text not in self.reasons:
                example = nodes[texts.index(text)]
                self.reasons[text] = (example, rejection_of(example))

    def reject_all(self, nodes: Sequence[str], rejection: Rejection) -> None:
        """Record that none of these nodes fits, for one reason; none of them was rejected before."""
        self.reject_batch(nodes, [rejection.summary] * len(nodes), lambda _: rejection)

    def reword(self, named: Callable[[Rejection], Rejection]) -> None:
        """Put `named(rejection)`, which may be the same object, in the place of each rejection."""
        reworded = {text: named(rejection) for text, (_, rejection) in self.reasons.items()}
        if all(rejection is self.reasons[text][1] for text, rejection in reworded.items()):
            return
        new = {text: rejection.summary for text, rejection in reworded.items()}
        self.texts = {node: new[text] for node, text in _as_dict(self.texts).items()}
        self.reasons = {new[text]: (node, reworded[text]) for text, (node, _) in self.reasons.items()}
        self._counts = dict(Counter(self.texts.values()))

    def why(self) -> list[RejectionGroup]:
        """Return the rejected nodes by reason: the closest nodes first, then the reason of most nodes."""
        groups = [RejectionGroup(count, *self.reasons[text]) for text, count in self._counts.items() if count]
        return sorted(
            groups, key=lambda group: (closeness(group.rejection.code), -group.nodes, group.rejection.summary)
        )

    def node_statuses(self) -> Mapping[str, str]:
        """Return the status text of each node that does not fit (kube-scheduler: NodeToStatus).

        At most MOST_REASONS of them differ, those of the closest nodes; the other nodes have one text.
        """
        if len(self._counts) <= MOST_REASONS or len(groups := self.why()) <= MOST_REASONS:
            return self.texts
        named = {group.rejection.summary for group in groups[:MOST_REASONS]}
        further = f"node(s): {FURTHER_REASONS}"
        return {node: text if text in named else further for node, text in self.texts.items()}

    @property
    def codes(self) -> set[Code]:
        return {rejection.code for text, (_, rejection) in self.reasons.items() if self._counts.get(text)}

    @property
    def limit_text(self) -> str:
        """Say why nothing is known about some node: the namespace has no time left, or the call's budget is spent.

        The text does not depend on the number of nodes: kube-scheduler writes each new text into the pod before it goes on.
        """
        limited = (group.rejection for group in self.why() if group.rejection.code is Code.SEARCH_LIMIT)
        return min((rejection.text for rejection in limited), default=Code.SEARCH_LIMIT)


def _as_dict(texts: Mapping[str, str]) -> dict[str, str]:
    """Return the texts as a dictionary; the same object if it is one."""
    if isinstance(texts, dict):
        return texts
    return texts.as_dict() if isinstance(texts, OneText) else dict(texts)


def _counted(texts: Sequence[str]) -> Mapping[str, int]:
    """Count how often each text occurs: most answers have one or few, and counting one of them is quick."""
    first = texts.count(texts[0])
    if first == len(texts):
        return {texts[0]: first}
    other_texts = set(texts) - {texts[0]}
    if len(other_texts) > _FEW:
        return Counter(texts)
    counts, last = {texts[0]: first}, other_texts.pop()
    counts.update((text, texts.count(text)) for text in other_texts)
    counts[last] = len(texts) - sum(counts.values())
    return counts


def rejected_everywhere(nodes: Sequence[str], rejection: Rejection) -> FilterResult:
    """Return the result for a pod that fits nowhere, for one reason that does not depend on the node."""
    result = FilterResult()
    result.reject_all(nodes, rejection)
    return result
