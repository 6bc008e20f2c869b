"""Evaluates one demand on many nodes, in the order that the placement policy prefers, and ahead of the next call."""

import asyncio
import zlib
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Final

from dra_extender.allocator.demand.demand import Demand
from dra_extender.allocator.state.reasons import Code, NoFit, Rejection
from dra_extender.ledger.ledger import Ledger
from dra_extender.model.allocation import Placement
from dra_extender.model.device import DeviceId
from dra_extender.model.lazy_node_names import rotated
from dra_extender.scheduling.call_budget import CallBudget, within_slice
from dra_extender.scheduling.evaluation.backoff import DEVICES_IN_BACKOFF, BackoffUsage
from dra_extender.scheduling.evaluation.filter_result import FilterResult, NodeResult
from dra_extender.scheduling.evaluation.least_loss import HELD_IN_ORDER, LeastLoss
from dra_extender.scheduling.evaluation.node_results import ALL_NODES, NODE_UNKNOWN, NodeEvaluation, NodeResults
from dra_extender.scheduling.ports.cluster import Clock
from dra_extender.telemetry.metrics import Metrics

_STEP_SECONDS: Final = 0.004
_SEARCHED_AHEAD: Final = (64, 2)
"""The nodes to evaluate after one call at most, and in one step."""
_RATED_AHEAD: Final = (1_024, 8)
"""The same where nodes are rated: more nodes have to be rated than searched, and a rating takes less time than a search."""


class NodeEvaluator:
    """Evaluates many nodes for one demand."""

    def __init__(self, ledger: Ledger, metrics: Metrics, results: NodeResults, least_loss: LeastLoss | None) -> None:
        """`least_loss`: decides which nodes come first; None: the order of the call does, for upstream's scores."""
        self._ledger = ledger
        self._metrics = metrics
        self._results = results
        self._least_loss = least_loss
        self._held_in_order = 0 if least_loss is None else HELD_IN_ORDER
        self.allocator = results.allocator
        self._cached_results = 0
        metrics.before_render(self._publish)

    def evaluate_nodes(
        self,
        pod_uid: str,
        demand: Demand,
        nodes: Sequence[str],
        max_feasible: int,
        budget: CallBudget,
        result: FilterResult,
    ) -> Sequence[str]:
        """Evaluate the nodes and add what was found to `result`; return the nodes that are under holds.

        Nodes that no ranking orders are evaluated in their order, beginning at a place that depends on the pod.  Deferred nodes
        come last, and so do nodes under holds, except the first HELD_IN_ORDER of a ranking.
        Evaluation stops at `max_feasible` nodes that fit, unless nodes that fit differ in score terms.
        """
        evaluation = self._results.begin_call(demand, budget, max_feasible)
        table, find, least_loss = evaluation.table, self._results.find, self._least_loss
        cached, known_rejected = table.fits, table.rejected
        in_order = _from_own_place(pod_uid, nodes)
        if not cached:
            in_order = list(in_order)
            texts = table.texts_of(in_order)
            if texts is not None:
                self._cached_results += len(in_order)
                result.reject_batch(in_order, texts, table.rejection)
                return ()
        ranking = None
        if least_loss is not None:
            ranking = least_loss.ranking(pod_uid, evaluation)
            for name in least_loss.due_in_call(ranking, evaluation):
                least_loss.rate(ranking, name, cached.get(name) or find(evaluation, name))
            in_order = least_loss.order(ranking, evaluation, nodes, in_order)
        fits, searched = evaluation.fits, evaluation.searched
        # Without function calls for nodes with a cached result: the loop runs over thousands of them.
        for name in in_order:
            node_result = cached.get(name)
            if node_result is not None:
                fits[name] = node_result
                if node_result.score_terms:
                    evaluation.max_feasible = ALL_NODES
            elif name in known_rejected:
                evaluation.rejected.append(name)
                continue
            elif self._comes_later(evaluation, name) or not evaluation.add(name, find(evaluation, name)):
                continue
            if len(fits) >= evaluation.max_feasible:
                break
        for name in (*evaluation.held[self._held_in_order :], *evaluation.paused):
            if len(fits) >= evaluation.max_feasible:
                break
            evaluation.add(name, find(evaluation, name))
        self._report(evaluation, evaluation.searched - searched, result)
        if least_loss is not None and ranking is not None:
            least_loss.add_losses(ranking, evaluation, result)
        return evaluation.held

    def _comes_later(self, evaluation: NodeEvaluation, name: str) -> bool:
        """Return whether the node is evaluated after the others, and take note of it if it is under holds."""
        if evaluation.is_held(name):
            evaluation.held.append(name)
            return len(evaluation.held) > self._held_in_order
        is_paused = self.allocator.defers_node(evaluation.demand, name)
        if is_paused:
            evaluation.paused.append(name)
        return is_paused

    def _report(self, evaluation: NodeEvaluation, searched: int, result: FilterResult) -> None:
        """Add what was found to the result of the call; `searched`: how many of these nodes were searched, not cached."""
        rejected, uncached = evaluation.rejected, evaluation.uncached
        self._cached_results += len(evaluation.fits) + len(rejected) + len(uncached) - searched
        result.fits.update(evaluation.fits)
        result.limited |= evaluation.limited
        result.searched += evaluation.searched
        texts = [
            *map(evaluation.table.rejected.__getitem__, rejected),
            *(rejection.text for rejection in uncached.values()),
        ]

        def rejection_of(name: str) -> Rejection:
            uncached_result = uncached.get(name)
            return (
                evaluation.table.rejection(name)
                if uncached_result is None or uncached_result.rejection is None
                else uncached_result.rejection
            )

        result.reject_batch([*rejected, *uncached] if uncached else rejected, texts, rejection_of)

    def evaluate_without_devices(
        self,
        devices: frozenset[DeviceId],
        pod_uid: str,
        demand: Demand,
        nodes: Sequence[str],
        max_feasible: int,
        budget: CallBudget,
        result: FilterResult,
    ) -> None:
        """Evaluate the nodes without these devices, which are in backoff for one pod, until `max_feasible` nodes fit.

        A node that fits only with them is rejected as such if no other fits.  Results are cached only for this call.
        """
        ledger, allocator = self._ledger, self.allocator
        usage, state, hold_versions = ledger.usage(), ledger.state_versions, ledger.hold_versions
        usage_in_backoff = BackoffUsage(usage, devices)
        fits: dict[str, NodeResult] = {}
        rejected: dict[str, Rejection] = {}
        for name in _from_own_place(pod_uid, nodes):
            node = ledger.nodes.get(name)
            if node is None:
                rejected[name] = NODE_UNKNOWN
                continue
            answer = allocator.search_in_call(demand, node, usage_in_backoff, budget, devices)
            if isinstance(answer, NoFit):
                rejected[name] = answer.rejections[0]
                continue
            score_terms = self._results.score_terms(demand, answer, usage)
            fits[name] = NodeResult(
                state.version(name), hold_versions.version(name), score_terms=score_terms, _placement=answer
            )
            if len(fits) >= max_feasible:
                break
        result.limited |= any(rejection.code is Code.SEARCH_LIMIT for rejection in rejected.values())
        for name in () if fits else rejected:
            node = ledger.nodes.get(name)
            if node is not None and isinstance(
                allocator.search_in_call(demand, node, usage, budget, "all devices"), Placement
            ):
                rejected[name] = DEVICES_IN_BACKOFF
        result.fits.update(fits)
        texts = [rejection.summary for rejection in rejected.values()]
        result.reject_batch(list(rejected), texts, rejected.__getitem__)

    def prefetch(self, demand: Demand, count: int, max_feasible: int, budget: CallBudget) -> bool:
        """Evaluate up to `count` nodes that changed since the last call, then renew ratings; return whether more may be stale.

        The next pod with the same demand then finds cached results.  Nodes under holds are skipped while `max_feasible` others fit.
        """
        evaluation = self._results.begin(demand, budget, max_feasible)
        table = evaluation.table
        while table.stale and count:
            name, _ = table.stale.popitem()
            if name in table.fits or name in table.rejected:
                continue
            if len(table.fits) >= max_feasible and evaluation.is_held(name):
                continue
            count -= 1
            if self._results.find(evaluation, name).limited:
                table.stale.clear()
        least_loss = self._least_loss
        if least_loss is None:
            return bool(table.stale)
        more = not count or least_loss.renew(evaluation, count)
        if more and evaluation.is_late():
            return True
        for ranking in least_loss.rankings(evaluation):
            for name in least_loss.due(ranking, evaluation, count):
                count -= 1
                least_loss.rate(ranking, name, table.fits.get(name) or self._results.find(evaluation, name))
            more |= not count
        return more or bool(table.stale)

    def _publish(self) -> None:
        self._metrics.cached_results(self._cached_results)
        self._cached_results = 0


class Prefetch:
    """Fills the cache of `NodeEvaluator` for the demand of the last filter call.

    It runs in steps of a few searches, between which calls that arrive are answered, and stops where searches take long.  It begins
    when a call is answered, and again when a hold ends or is narrowed to one node, or a pod changes the free CPU and memory of a
    node.
    """

    def __init__(
        self, evaluator: NodeEvaluator, ledger: Ledger, clock: Clock, max_feasible: int, *, rates_nodes: bool
    ) -> None:
        self._evaluator = evaluator
        self._signals = (ledger.holds.changed, ledger.free_amounts.changed)
        self._clock = clock
        self._max_feasible = max_feasible
        self._nodes, self._per_step = _RATED_AHEAD if rates_nodes else _SEARCHED_AHEAD
        self._turn = 0
        self._demand: Demand | None = None
        self._waits = False

    def start(self, demand: Demand) -> None:
        """Evaluate this demand from the next turn of the event loop on, in place of an earlier demand."""
        self._demand = demand
        self._begin()

    def _begin(self) -> None:
        self._turn += 1
        self._step_later(self._turn, self._nodes)

    def _step_later(self, turn: int, remaining: int) -> None:
        """Begin a step after the calls that arrived during the last one: uvloop reads them before it runs what is due next."""
        loop = asyncio.get_running_loop()
        loop.call_soon(loop.call_soon, self._step, turn, remaining)

    def _step(self, turn: int, remaining: int) -> None:
        if turn != self._turn or self._demand is None:
            return
        budget = CallBudget(self._clock, _STEP_SECONDS)
        budget.open_slice(_STEP_SECONDS)
        more = within_slice(partial(self._evaluator.prefetch, self._demand, self._per_step, self._max_feasible, budget))
        if more is True and remaining > self._per_step:
            self._step_later(turn, remaining - self._per_step)
        elif not self._waits:
            self._waits = True
            changed: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
            changed.add_done_callback(self._again)
            for signal in self._signals:
                signal.join(changed)

    def _again(self, changed: asyncio.Future[bool]) -> None:
        for signal in self._signals:
            signal.leave(changed)
        self._waits = False
        self._begin()


def _from_own_place(pod_uid: str, nodes: Sequence[str]) -> Iterable[str]:
    """Return the nodes, beginning at a place that depends on the pod, so that pods spread."""
    return rotated(nodes, zlib.crc32(pod_uid.encode()))
