"""The order of nodes by what a placement costs the expected demand, for `scheduling.placement: preserve`."""

from collections.abc import Collection, Iterable, Iterator
from itertools import chain, filterfalse, islice
from typing import Final

from dra_extender.allocator.fragmentation.kinds import NodeAmounts
from dra_extender.allocator.state.usage import Usage
from dra_extender.ledger.ledger import Ledger
from dra_extender.scheduling.evaluation.expected_demand import ExpectedDemand, PlacementRooms
from dra_extender.scheduling.evaluation.filter_result import FilterResult, NodeResult
from dra_extender.scheduling.evaluation.node_allocator import NodeAllocator
from dra_extender.scheduling.evaluation.node_ranking import NodeRanking
from dra_extender.scheduling.evaluation.node_results import NodeEvaluation

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

    def __init__(self, ledger: Ledger, allocator: NodeAllocator, expected: ExpectedDemand) -> None:
        self._ledger = ledger
        self._allocator = allocator
        self._expected = expected

    def ranking(self, pod_uid: str, evaluation: NodeEvaluation) -> NodeRanking:
        """Return the ranking for the pod, with the losses that are known; it is one for all pods with the same CPU and memory."""
        return self._ranking(self._ledger.free_amounts.asked_by(pod_uid), evaluation)

    def rankings(self, evaluation: NodeEvaluation) -> Iterator[NodeRanking]:
        """Yield the rankings for the pods of earlier calls."""
        for pod_amounts in list(evaluation.table.rankings):
            yield self._ranking(pod_amounts, evaluation)

    def _ranking(self, pod_amounts: NodeAmounts, evaluation: NodeEvaluation) -> NodeRanking:
        rankings = evaluation.table.rankings
        ranking = rankings.use(pod_amounts)
        if ranking is None:
            ranking = rankings[pod_amounts] = NodeRanking(pod_amounts, self._ledger.nodes)
        ranking.outdate(self._expected.version, self._ledger.free_amounts.changes)
        return ranking

    def due_in_call(self, ranking: NodeRanking, evaluation: NodeEvaluation) -> Iterator[str]:
        """Yield the nodes to rate before any is evaluated; the slices of one call rate 64 together, so that the search goes on."""
        if ranking.unrated:
            answers, key = evaluation.budget.answers, ("rated", evaluation.demand.signature, ranking.pod_amounts)
            count: int = answers.get(key, _RATED_IN_CALL)
            for name in self.due(ranking, evaluation, count):
                count -= 1
                yield name
            answers[key] = count

    def due(self, ranking: NodeRanking, evaluation: NodeEvaluation, count: int) -> Iterator[str]:
        """Yield up to `count` nodes to rate, until the slice of time is over.

        Nodes under holds stay due, and so do those whose search was paused, while few are.
        """
        under_holds = evaluation.under_holds
        if under_holds is None:
            return
        demand, defers_node = evaluation.demand, self._allocator.defers_node
        without_holds = filterfalse(under_holds.__contains__, reversed(ranking.unrated))
        due = list(islice((name for name in without_holds if not defers_node(demand, name)), count))
        for number, name in enumerate(due):
            if number >= _RATED_ANYWAY and evaluation.is_late():
                return
            yield name
            if name in ranking.unrated:
                # A limit of the call stopped its search, and would stop the next one.
                return

    def rate(self, ranking: NodeRanking, name: str, result: NodeResult) -> None:
        """Rate a node that is under no hold by its result; a node whose search was stopped stays due."""
        if result.limited:
            return
        rooms = self._rooms(ranking, name, result, self._ledger.claims.usage)
        ranking.put(name, rooms, None if rooms is None else self._expected.loss(name, rooms, ranking.pod_amounts))

    def order(
        self, ranking: NodeRanking, evaluation: NodeEvaluation, nodes: Collection[str], in_order: Iterable[str]
    ) -> Iterable[str]:
        """Return all `nodes` in the order in which they are evaluated for the pod; `in_order` has them in that of the call."""
        ranked = ranking.best_first(evaluation.under_holds, HELD_IN_ORDER)
        losses, earlier = ranking.losses, ranking.earlier
        return chain(_among(ranked, nodes), (name for name in in_order if name not in losses and name not in earlier))

    def add_losses(self, ranking: NodeRanking, evaluation: NodeEvaluation, result: FilterResult) -> None:
        """Add the losses of the nodes that fit to the result; once the slice of time is over, of eight nodes at most."""
        known, free, anyway = ranking.losses, evaluation.table.fits, _RATED_ANYWAY
        for name, fit in evaluation.fits.items():
            is_free = name in free
            loss = known.get(name) if is_free else None
            if loss is None:
                if not anyway and evaluation.is_late():
                    continue
                anyway -= bool(anyway)
                rooms = self._rooms(ranking, name, fit, self._ledger.claims.usage if is_free else self._ledger.usage())
                loss = 0.0 if rooms is None else self._expected.loss(name, rooms, ranking.pod_amounts)
                if is_free:
                    ranking.put(name, rooms, loss)
            result.losses[name] = loss

    def renew(self, evaluation: NodeEvaluation, count: int) -> bool:
        """Renew a part of what is expected; return whether more is due (`ExpectedDemand.renew`)."""
        return self._expected.renew(self._allocator, count, evaluation.is_late)

    def _rooms(self, ranking: NodeRanking, name: str, result: NodeResult, usage: Usage) -> PlacementRooms | None:
        """Return what is free on the node before and after its placement; None if the pod does not fit there."""
        known = ranking.rooms.get(name)
        if known is not None and known.result is result and self._expected.rates(known):
            return known
        node, placement = self._ledger.nodes.get(name), result.placement
        pools = None if node is None else self._allocator.pools_of(node)
        if node is None or placement is None or pools is None:
            return None
        return self._expected.rooms(node, pools, usage, placement, result)


def _among(names: Iterator[str], nodes: Collection[str]) -> Iterator[str]:
    """Return the names that are among the nodes; only for more than a few of them is a set of all nodes made."""
    return chain(filter(nodes.__contains__, islice(names, _LOOKED_UP_SINGLY)), _remaining_among(names, nodes))


def _remaining_among(names: Iterator[str], nodes: Collection[str]) -> Iterator[str]:
    if remaining := list(names):
        yield from filter(frozenset(nodes).__contains__, remaining)
