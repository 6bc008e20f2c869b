"""Rates the nodes that kube-scheduler asks about in its prioritize call, by the holds of the pod."""

from collections.abc import Sequence

from dra_extender.ledger.ledger import Ledger
from dra_extender.model.allocation import ScoreTerms
from dra_extender.scheduling.evaluation.scoring import ratings, total
from dra_extender.scheduling.ports.options import Options

_NONE = ScoreTerms()


class Prioritize:
    """Rates the nodes on which devices are held for the pod; other nodes get 0."""

    def __init__(self, ledger: Ledger, options: Options) -> None:
        self._ledger = ledger
        self._weights = options.weights

    def run(self, pod_uid: str, nodes: Sequence[str]) -> Sequence[tuple[str, int]]:
        """(node, 0 to 10) for each node."""
        holds = self._ledger.holds.of_pod(pod_uid)
        if not any(hold.score_terms for hold in holds):
            return [(node, 0) for node in nodes]
        held = [node for node in nodes if all(node in hold.placements for hold in holds)]
        score_terms = {node: total(hold.score_terms.get(node, _NONE) for hold in holds) for node in held}
        rated = ratings(score_terms, self._weights)
        return [(node, round(rated.get(node, 0.0))) for node in nodes]
