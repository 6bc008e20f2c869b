from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from dra_extender.allocator.demand.demand import Demand
from dra_extender.model.allocation import ClaimPlacement
from dra_extender.model.rejection import Code, Rejection
from dra_extender.scheduling.claims.lookup import FoundClaim
from dra_extender.scheduling.evaluation.result_cache import NodeResult


class RejectionGroup(NamedTuple):
    """Why some nodes were refused: how many, the first of them, and its rejection with all details."""

    nodes: int
    example: str
    rejection: Rejection


@dataclass(slots=True)
class FilterResult:
    """What one pass over the offered nodes found.

    `fits` are nodes that fit, with the outcome where something has to be held there; `texts` says in short why a node does
    not, and `reasons` keeps one rejection with its details for each text.  `unsettled` tells that some node would fit if holds
    that are about to settle went elsewhere, `limited` that the search on some node was not finished.  `demand` is what the open
    claims ask for.
    `behind` is what the pod would take but for holds that may end, and `revocable` what it would take if stale holds were revoked.
    `assigned_node` is the node that is planned for a member of a gang, where all that it needs is held already.
    """

    fits: dict[str, NodeResult | None] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)
    reasons: dict[str, tuple[str, Rejection]] = field(default_factory=dict)
    open: tuple[FoundClaim, ...] = ()
    held: tuple[FoundClaim, ...] = ()
    unsettled: bool = False
    limited: bool = False
    behind: tuple[ClaimPlacement, ...] = ()
    revocable: tuple[ClaimPlacement, ...] = ()
    demand: Demand | None = None
    assigned_node: str | None = None
    _counts: dict[str, int] = field(default_factory=dict)

    def refuse(self, node: str, rejection: Rejection, text: str | None = None) -> None:
        """This node does not fit; `text` is the summary of the rejection, if it is known already."""
        if text is None:
            text = rejection.summary
        before = self.texts.get(node)
        if before is not None:
            self._counts[before] -= 1
        self.texts[node] = text
        self._counts[text] = self._counts.get(text, 0) + 1
        if text not in self.reasons:
            self.reasons[text] = (node, rejection)

    def refuse_all(self, nodes: Sequence[str], texts: Sequence[str], rejection_of: Callable[[str], Rejection]) -> None:
        """These nodes do not fit, each with its summary; none was refused before.  `rejection_of` is asked once per summary."""
        if not nodes:
            return
        alike = texts.count(texts[0]) == len(texts)
        told = dict.fromkeys(nodes, texts[0]) if alike else dict(zip(nodes, texts, strict=True))
        self.texts = {**self.texts, **told} if self.texts else told
        counts = {texts[0]: len(texts)} if alike else Counter(texts)
        for text, count in counts.items():
            self._counts[text] = self._counts.get(text, 0) + count
            if text not in self.reasons:
                example = nodes[texts.index(text)]
                self.reasons[text] = (example, rejection_of(example))

    def why(self) -> list[RejectionGroup]:
        """The reasons that hold for some node, most nodes first."""
        counts = sorted(self._counts.items(), key=lambda entry: (-entry[1], entry[0]))
        return [RejectionGroup(count, *self.reasons[text]) for text, count in counts if count]

    @property
    def codes(self) -> set[Code]:
        """The codes of all reasons."""
        return {each.rejection.code for each in self.why()}


def refused_everywhere(nodes: Sequence[str], rejection: Rejection) -> FilterResult:
    """Nothing about the nodes matters: the pod cannot be placed anywhere."""
    attempt = FilterResult()
    attempt.refuse_all(nodes, [rejection.summary] * len(nodes), lambda _: rejection)
    return attempt
