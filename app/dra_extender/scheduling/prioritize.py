"""The prioritize verb: the score of each node for a pod, without a search."""

from collections.abc import Mapping, Sequence
from heapq import nsmallest
from typing import Final

from dra_extender.allocator.fragmentation.kinds import NodeAmounts
from dra_extender.ledger.ledger import Ledger
from dra_extender.model.pod import Pod
from dra_extender.runtime.caches import LruCache
from dra_extender.scheduling.evaluation.expected_demand import ExpectedDemand
from dra_extender.scheduling.evaluation.node_allocator import NodeAllocator
from dra_extender.scheduling.evaluation.node_ranking import NodeRanking
from dra_extender.scheduling.evaluation.scoring import BEST, NO_TERMS, ratings
from dra_extender.scheduling.ports.cluster import Clock
from dra_extender.scheduling.ports.options import Options

_RANKINGS: Final = 32
_RATED_IN_CALL: Final = 256
_SECONDS_IN_CALL: Final = 0.01
_MOST_RANKS: Final = 20
"""From here on, scores round to 0."""


class PlainPods:
    """Scores nodes for pods without devices by what the expected pods lose if the pod takes CPU and memory there."""

    def __init__(self, ledger: Ledger, expected: ExpectedDemand, allocator: NodeAllocator, clock: Clock) -> None:
        self._now = clock.monotonic
        self._ledger = ledger
        self._expected = expected
        self._allocator = allocator
        # Pods that differ little share a ranking, with the CPU and memory of the first of them.
        self._rankings: LruCache[NodeAmounts, NodeRanking] = LruCache(_RANKINGS)
        self._place = -1

    def score(self, pod: Pod, nodes: Sequence[str]) -> Sequence[tuple[str, int]]:
        """Return (node, score from 0 to 10): 10 where least is lost, 5 where second least, and so on; 0 where nothing is known.

        If no node has free devices, or all lose the same, all scores are 0.
        """
        losses = self._losses(self._ledger.free_amounts.asked_by(pod.uid))
        distinct_losses = {loss for node in nodes if (loss := losses.get(node)) is not None}
        ranks = (
            {loss: rank for rank, loss in enumerate(nsmallest(_MOST_RANKS, distinct_losses), start=1)}
            if len(distinct_losses) > 1
            else {}
        )
        scores = {loss: round(BEST / rank) for loss, rank in ranks.items()}
        return [(node, scores.get(losses.get(node, -1.0), 0)) for node in nodes]

    def _losses(self, pod_amounts: NodeAmounts) -> Mapping[str, float]:
        """Return what is lost by node, after rating at most 256 nodes that have changed, for 10 ms at most.

        Rating a node with other devices than before takes a multiple of the usual time.
        """
        ledger, expected = self._ledger, self._expected
        changed, self._place = ledger.state_versions.since(self._place)
        if changed is None:
            self._rankings.clear()
        for ranking in self._rankings.values():
            ranking.unrated.update(dict.fromkeys(changed or ()))
        rounded = pod_amounts.rounded()
        own_ranking = self._rankings.get(rounded) or NodeRanking(pod_amounts, ledger.nodes)
        self._rankings[rounded] = own_ranking
        own_ranking.outdate(expected.version, ledger.free_amounts.changes)
        end = self._now() + _SECONDS_IN_CALL
        for number in range(min(_RATED_IN_CALL, len(own_ranking.unrated))):
            if number and self._now() > end:
                break
            name = next(reversed(own_ranking.unrated))
            node = ledger.nodes.get(name)
            pools = None if node is None else self._allocator.pools_of(node)
            rooms = None if node is None or pools is None else expected.unchanged_rooms(node, pools)
            if rooms is None:
                own_ranking.put(name, None, None)
            else:
                loss = expected.loss(name, rooms, own_ranking.pod_amounts) if rooms.before.free else 0.0
                own_ranking.put(name, rooms, loss)
        return own_ranking.losses


class Prioritize:
    """Scores nodes by the holds that filter placed there, and for pods without devices as `PlainPods` does."""

    def __init__(self, ledger: Ledger, options: Options, plain_pods: PlainPods | None) -> None:
        """`plain_pods`: None if the placement policy does not expect pods."""
        self._ledger = ledger
        self._options = options
        self._plain_pods = plain_pods

    def score_nodes(self, pod_uid: str, nodes: Sequence[str]) -> Sequence[tuple[str, int]]:
        """Return (node, score from 0 to 10) for each node; nodes on which nothing is held for the pod get 0."""
        if self._plain_pods is not None:
            pod = self._ledger.pods.by_uid(pod_uid)
            if pod is not None and not pod.needs_devices:
                return self._plain_pods.score(pod, nodes)
        holds = self._ledger.holds.of_pod(pod_uid)
        if not any(hold.score_terms for hold in holds):
            return [(node, 0) for node in nodes]
        held_nodes = [node for node in nodes if all(node in hold.placements for hold in holds)]
        score_terms = {
            node: sum((hold.score_terms.get(node, NO_TERMS) for hold in holds), NO_TERMS) for node in held_nodes
        }
        rated = ratings(score_terms, self._options)
        return [(node, round(rated.get(node, 0.0))) for node in nodes]
