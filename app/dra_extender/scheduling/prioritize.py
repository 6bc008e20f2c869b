"""Prioritize: the score of each node for a pod, from the holds that filter placed there."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from dra_extender.ledger.ledger import Ledger
from dra_extender.model.allocation import ScoreTerms
from dra_extender.scheduling.evaluation.scoring import ratings, total
from dra_extender.scheduling.ports.options import Options

_NO_TERMS: Final = ScoreTerms()


@dataclass(frozen=True, slots=True)
class Prioritize:
    """Scores nodes; nothing is searched."""

    ledger: Ledger
    options: Options

    def score_nodes(self, pod_uid: str, nodes: Sequence[str]) -> Sequence[tuple[str, int]]:
        """Return (node, score from 0 to 10) for each node; nodes on which nothing is held for the pod get 0."""
        holds = self.ledger.holds.of_pod(pod_uid)
        if not any(hold.score_terms for hold in holds):
            return [(node, 0) for node in nodes]
        held_nodes = [node for node in nodes if all(node in hold.placements for hold in holds)]
        score_terms = {node: total(hold.score_terms.get(node, _NO_TERMS) for hold in holds) for node in held_nodes}
        rated = ratings(score_terms, self.options.weights)
        return [(node, round(rated.get(node, 0.0))) for node in nodes]
