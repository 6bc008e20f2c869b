from collections.abc import Sequence

from app.ledger.ledger import Ledger
from app.model.allocation import ClaimPlacement, Placement
from app.model.pod import Pod
from app.scheduling.scoring import packing_score


class Prioritize:
    """Scores the nodes on which something is held for the pod; other nodes are all the same to us."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    def __call__(self, pod: Pod, nodes: Sequence[str]) -> Sequence[tuple[str, int]]:
        """(node, 0 to 10) for each node."""
        if not pod.needs_devices:
            return [(node, 0) for node in nodes]
        return [(node, self._score(pod, node)) for node in nodes]

    def _score(self, pod: Pod, node: str) -> int:
        held: list[ClaimPlacement] = [
            hold.placements[node] for hold in self._ledger.holds.of_pod(pod.uid) if node in hold.placements
        ]
        return packing_score(Placement(claims=tuple(held)), self._ledger.claims.usage, self._ledger.slices)
