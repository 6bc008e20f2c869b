"""The order of nodes by what a placement costs the expected demand, for `scheduling.placement: preserve`."""

from collections.abc import Collection, Iterable, Iterator
from itertools import chain, filterfalse, islice
from typing import Final

from dra_extender.allocator.fragmentation.kinds import NodeAmounts
from dra_extender.allocator.state.usage import Usage
from dra_extender.ledger.ledger import Ledger
from dra_extender.scheduling.evaluation.expected_demand import ExpectedDemand, PlacementRooms
from dra_extender.scheduling.evaluation.filter_result import FilterResult, NodeResult
from dra_extender.scheduling.evaluation.node_ranking import NodeRanking
from dra_extender.scheduling.evaluation.node_results import NodeEvaluation, NodeResults

_RATED_IN_CALL: Final = 64
_RATED_ANYWAY: Final = 8
"""So many nodes are rated even if the slice of time is over: a slow machine must not forget the node that was used last."""
HELD_IN_ORDER: Final = 2
"""So many nodes under holds are evaluated in their place."""
_LOOKED_UP_SINGLY: Final = 32


class LeastLoss:
    """The nodes where the placement costs the expected demand least come first.

    A call rates 64 nodes at most before it evaluates any, and eight once its slice of time is over; nodes without a rating come
    after the others, in the order of the call.
    """

    def __init__(self, ledger: Ledger, results: NodeResults, expected: ExpectedDemand) -> None:
        self._ledger = ledger
        self._results = results
        self._expected = expected

    def order(
        self, pod_uid: str, evaluation: NodeEvaluation, nodes: Collection[str], in_order: Iterable[str]
    ) -> Iterable[str]:
        """Return all `nodes` in the order in which they are evaluated for the pod; `in_order` has them in that of the call."""
        pod_amounts = self._ledger.free_amounts.asked_by(pod_uid)
        ranking = evaluation.ranking = self._ranking(evaluation, pod_amounts)
        if ranking.unrated:
            # The slices of one call rate so many together, so that the search goes on.
            answers, key = evaluation.budget.answers, ("rated", evaluation.demand.signature, pod_amounts)
            answers[key] = self._rate(evaluation, ranking, pod_amounts, answers.get(key, _RATED_IN_CALL))
        ranked = ranking.best_first(evaluation.under_holds, HELD_IN_ORDER)
        losses, earlier = ranking.losses, ranking.earlier
        return chain(_among(ranked, nodes), (name for name in in_order if name not in losses and name not in earlier))

    def rate(self, pod_uid: str, evaluation: NodeEvaluation, result: FilterResult) -> None:
        """Add the losses of the nodes that fit to the result; once the slice of time is over, of eight nodes at most."""
        pod_amounts, claims = self._ledger.free_amounts.asked_by(pod_uid), self._ledger.claims
        ranking, free = evaluation.ranking or self._ranking(evaluation, pod_amounts), evaluation.table.fits
        known, anyway = ranking.losses, _RATED_ANYWAY
        for name, fit in evaluation.fits.items():
            is_free = name in free
            loss = known.get(name) if is_free else None
            if loss is None:
                if not anyway and evaluation.is_late():
                    continue
                anyway -= bool(anyway)
                rooms = self._rooms(ranking, name, fit, claims.usage if is_free else self._ledger.usage())
                loss = 0.0 if rooms is None else self._expected.loss(name, rooms, pod_amounts)
                if is_free:
                    ranking.put(name, rooms, loss)
            result.losses[name] = loss

    def prefetch(self, evaluation: NodeEvaluation, count: int) -> bool:
        """Renew what is expected, then rate nodes for the pods of earlier calls."""
        due = not count or self._expected.renew(self._results.allocator, count, evaluation.is_late)
        if due and evaluation.is_late():
            return True
        for pod_amounts in list(evaluation.table.rankings):
            count = self._rate(evaluation, self._ranking(evaluation, pod_amounts), pod_amounts, count)
            due |= not count
        return due

    def _ranking(self, evaluation: NodeEvaluation, pod_amounts: NodeAmounts) -> NodeRanking:
        rankings = evaluation.table.rankings
        ranking = rankings.use(pod_amounts)
        if ranking is None:
            ranking = rankings[pod_amounts] = NodeRanking(self._ledger.nodes)
        ranking.outdate(self._expected.version, self._ledger.free_amounts.changes)
        return ranking

    def _rate(self, evaluation: NodeEvaluation, ranking: NodeRanking, pod_amounts: NodeAmounts, count: int) -> int:
        """Rate so many of the nodes that are due, until the slice of time is over; return how many are left of the count.

        Nodes under holds stay due, and so do those whose search was paused, while few are.
        """
        expected, usage = self._expected, self._ledger.claims.usage
        for number, name in enumerate(self._due(evaluation, ranking, count)):
            if number >= _RATED_ANYWAY and evaluation.is_late():
                break
            count -= 1
            result = evaluation.table.fits.get(name) or self._results.find(evaluation, name)
            if result.limited:
                break
            rooms = self._rooms(ranking, name, result, usage)
            ranking.put(name, rooms, None if rooms is None else expected.loss(name, rooms, pod_amounts))
        return count

    def _due(self, evaluation: NodeEvaluation, ranking: NodeRanking, count: int) -> list[str]:
        if evaluation.under_holds is None:
            return []
        demand, defers_node = evaluation.demand, self._results.allocator.defers_node
        without_holds = filterfalse(evaluation.under_holds.__contains__, reversed(ranking.unrated))
        return list(islice((name for name in without_holds if not defers_node(demand, name)), count))

    def _rooms(self, ranking: NodeRanking, name: str, result: NodeResult, usage: Usage) -> PlacementRooms | None:
        """Return what is free on the node before and after its placement; None if the pod does not fit there."""
        known = ranking.rooms.get(name)
        if known is not None and known.result is result and self._expected.rates(known):
            return known
        node, placement = self._ledger.nodes.get(name), result.placement
        pools = None if node is None else self._results.allocator.pools_of(node)
        if node is None or placement is None or pools is None:
            return None
        return self._expected.rooms(node, pools, usage, placement, result)


def _among(names: Iterator[str], nodes: Collection[str]) -> Iterator[str]:
    """Return the names that are among the nodes; only for more than a few of them is a set of all nodes made."""
    return chain(filter(nodes.__contains__, islice(names, _LOOKED_UP_SINGLY)), _remaining_among(names, nodes))


def _remaining_among(names: Iterator[str], nodes: Collection[str]) -> Iterator[str]:
    if remaining := list(names):
        yield from filter(frozenset(nodes).__contains__, remaining)
