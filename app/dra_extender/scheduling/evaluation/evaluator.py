"""Evaluates one demand on many nodes; a node without a change is not searched again, and changed ones are searched ahead."""

import asyncio
from collections.abc import Callable, Collection, Container, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, islice
from operator import itemgetter
from typing import Final

from dra_extender.allocator.demand.demand import Demand, Reads, reads_of
from dra_extender.allocator.fragmentation.kinds import NO_AMOUNTS, NodeAmounts
from dra_extender.allocator.state.reasons import Code, NoFit, Rejection
from dra_extender.allocator.state.usage import Usage
from dra_extender.ledger.ledger import Ledger
from dra_extender.ledger.node_versions import NodeVersions
from dra_extender.model.allocation import Placement, ScoreTerms
from dra_extender.model.device import DeviceId, PoolId
from dra_extender.model.pod import Pod
from dra_extender.runtime.caches import LruCache
from dra_extender.scheduling.evaluation.backoff import DEVICES_IN_BACKOFF, BackoffUsage
from dra_extender.scheduling.evaluation.expected_demand import ExpectedDemand, PlacementRooms
from dra_extender.scheduling.evaluation.node_allocator import NodeAllocator
from dra_extender.scheduling.evaluation.node_equivalence import NodeEquivalence
from dra_extender.scheduling.evaluation.node_ranking import NodeRanking
from dra_extender.scheduling.evaluation.result import FilterResult, NodeResult, PlacementTemplate
from dra_extender.scheduling.evaluation.scoring import has_alternatives, score_terms_of
from dra_extender.scheduling.ports.cluster import Clock
from dra_extender.scheduling.time_slices import CallBudget, within_slice
from dra_extender.telemetry.metrics import Metrics

_CLASSES_PER_NODE = 2
_RANKINGS = 8
_REJECTED_VERSIONS = 64


@dataclass(frozen=True, slots=True)
class ClassResult:
    """The result for all nodes of one equivalence class: a template with its score terms, or a rejection with its summary.

    `rejected` has the results of rejected nodes by versions, because nodes at the same versions share one object.
    """

    template: PlacementTemplate | None
    rejection: Rejection | None
    text: str
    score_terms: tuple[ScoreTerms, ...]
    rejected: dict[tuple[int, int], NodeResult] = field(default_factory=dict, compare=False)

    def on(self, node: str, pools: tuple[PoolId, ...], versions: tuple[int, int]) -> NodeResult:
        """Return the result on a node of the class with these local pools, at these versions (state, hold)."""
        if self.template is not None:
            return NodeResult(*versions, None, None, "", self.score_terms, (self.template, node, pools))
        rejected = self.rejected.get(versions)
        if rejected is None:
            if len(self.rejected) >= _REJECTED_VERSIONS:
                self.rejected.clear()
            rejected = self.rejected[versions] = NodeResult(*versions, None, self.rejection, self.text)
        return rejected


@dataclass(slots=True)
class ResultTable:
    """The results of one signature: `free` by node without holds, `held` by node under holds, `classes` by equivalence class.

    `fits` and `rejected` (with the summary) are the part of `free` that is valid now, after `drop_changed`.  Nodes that a change
    took out of them are in `stale`.  `asked` counts the calls.  `alternatives`: nodes may differ in the alternatives that they
    offer.  `reads`: the attributes that can matter (None: any).  `rankings`: by CPU and memory of the pod, the nodes by what the
    placement costs the expected demand.
    """

    free: dict[str, NodeResult] = field(default_factory=dict)
    held: dict[str, NodeResult] = field(default_factory=dict)
    classes: dict[Hashable, ClassResult] = field(default_factory=dict)
    fits: dict[str, NodeResult] = field(default_factory=dict)
    rejected: dict[str, str] = field(default_factory=dict)
    stale: dict[str, None] = field(default_factory=dict)
    asked: int = 0
    alternatives: bool = False
    reads: Reads | None = None
    rankings: LruCache[NodeAmounts, NodeRanking] = field(default_factory=lambda: LruCache(_RANKINGS))
    _places: tuple[int, int] = (-1, -1)

    def __len__(self) -> int:
        # The name of a node without a loss takes a quarter of the memory.
        ranked = sum(len(ranking.losses) + len(ranking.unrated) // 4 for ranking in self.rankings.values())
        return len(self.free) + len(self.held) + len(self.classes) + ranked

    def drop_changed(self, state: NodeVersions, held: NodeVersions, under_holds: Container[str] | None) -> None:
        """Drop the results of nodes that have changed since the last call, or that have come under holds."""
        moved, state_place = state.since(self._places[0])
        touched, held_place = held.since(self._places[1])
        self._places = (state_place, held_place)
        if moved is None or touched is None or under_holds is None:
            self.fits.clear()
            self.rejected.clear()
            self.stale.clear()
            self.rankings.clear()
            return
        for name in moved:
            self._drop(name)
            for ranking in self.rankings.values():
                ranking.changed(name)
        if touched:
            free, (versions, moved_all) = self.free, state.parts()
            for name in dict.fromkeys(touched):
                result = None if name in under_holds else free.get(name)
                if result is not None and result.state == versions.get(name, 0) + moved_all:
                    self.keep(name, result)
                else:
                    self._drop(name)

    def _drop(self, name: str) -> None:
        self.fits.pop(name, None)
        self.rejected.pop(name, None)
        self.stale[name] = None

    def keep(self, name: str, result: NodeResult) -> None:
        """Record that this result is valid now, and that the node is under no hold."""
        if result.rejection is None:
            self.fits[name] = result
        else:
            self.rejected[name] = result.text

    def texts_of(self, names: Sequence[str]) -> Sequence[str] | None:
        """Return the summaries if all these nodes are rejected, otherwise None: one pass in C for a full cluster."""
        try:
            # Faster than a map, and a tuple from two names on.
            return itemgetter(*names)(self.rejected) if len(names) > 1 else [self.rejected[name] for name in names]
        except KeyError:
            return None

    def ranking(self, asks: NodeAmounts, nodes: Iterable[str]) -> NodeRanking:
        """Return the ranking for a pod with this CPU and memory; a new one has these nodes to rate."""
        known = self.rankings.use(asks)
        if known is None:
            known = self.rankings[asks] = NodeRanking(nodes)
        return known

    def rejection(self, name: str) -> Rejection:
        """Return the rejection of a node in `rejected`, with its details."""
        return self.free[name].rejection or Rejection(code=Code.COMBINATION)

    def learn(self, equivalence_class: Hashable, result: ClassResult) -> None:
        """Keep the result of an equivalence class.  Classes without nodes are not recognized; too many classes clear the table."""
        if len(self.classes) > _CLASSES_PER_NODE * (len(self.free) + 1):
            self.classes.clear()
        self.classes[equivalence_class] = result


NODE_UNKNOWN: Final = Rejection(code=Code.NODE_UNKNOWN)
_SECOND: Final = 2
_PREFETCHED_PER_STEP: Final = 2
_MOST_PREFETCHED: Final = 64
_RATED_IN_CALL: Final = 64
_RATED_PER_STEP: Final = 8
_MOST_RATED: Final = 1_024
_HELD_IN_ORDER: Final = 2
_LOOKED_UP_SINGLY: Final = 32
_PREFETCH_STEP_SECONDS: Final = 0.004
# These rejections name a pool, and the pool of an equivalent node has another name.
_NAMING_POOLS: Final = frozenset({Code.POOL_INCOMPLETE, Code.POOL_INVALID})
_UNKNOWN: Final = NodeResult(0, 0, None, NODE_UNKNOWN, NODE_UNKNOWN.summary)


@dataclass(slots=True)
class _Evaluation:
    """One demand on its way over many nodes, and what was found so far.

    `equal`: the nodes that fit do not differ in score terms so far.  `rejected` are rejected in the table.  `uncached` are rejected
    as well: nodes that are unknown, under holds, or not searched to the end.
    """

    demand: Demand
    table: ResultTable
    out_of_time: Callable[[], bool]
    under_holds: Container[str] | None
    equal: bool = False
    fits: dict[str, NodeResult] = field(default_factory=dict)
    rejected: list[str] = field(default_factory=list)
    uncached: dict[str, NodeResult] = field(default_factory=dict)
    searched: int = 0
    limited: bool = False

    def add(self, name: str, result: NodeResult) -> None:
        """Add the result of a node that was not cached as valid."""
        if result.rejection is None:
            self.fits[name] = result
            if result.score_terms:
                self.equal = False
        elif name in self.table.rejected:
            self.rejected.append(name)
        else:
            self.uncached[name] = result
            self.limited |= result.limited


class NodeEvaluator:
    """Evaluates many nodes for one demand and caches the results."""

    def __init__(
        self,
        ledger: Ledger,
        allocator: NodeAllocator,
        metrics: Metrics,
        limit: int,
        equivalence: NodeEquivalence,
        expected: ExpectedDemand | None = None,
    ) -> None:
        """Cache at most about `limit` results in all; those of the demands used least recently go first.

        `expected`: what placements may cost; None if nodes are not ranked by that.
        """
        self._ledger = ledger
        self.allocator = allocator
        self._metrics = metrics
        self._tables: LruCache[bytes, ResultTable] = LruCache(limit, weigh=len, max_weight=limit)
        self._equivalence = equivalence
        self._expected = expected
        self._cached_results = 0
        metrics.before_render(self._publish)

    def evaluate_nodes(
        self,
        demand: Demand,
        nodes: Iterable[str],
        max_feasible: int,
        out_of_time: Callable[[], bool],
        result: FilterResult,
    ) -> Sequence[str]:
        """Evaluate the nodes in this order, those under holds and those with a paused search last; return those under holds.

        Where nodes do not differ in score terms, it ends with `max_feasible` nodes that fit.  Cached results decide how long this
        takes, never the outcome.
        """
        return self._evaluate(self._begin(demand, out_of_time), nodes, max_feasible, result)

    def _begin(self, demand: Demand, out_of_time: Callable[[], bool]) -> _Evaluation:
        ledger, table = self._ledger, self._table(demand)
        under_holds = ledger.nodes_under_holds()
        table.drop_changed(ledger.state, ledger.held, under_holds)
        table.asked += 1
        if table.asked == _SECOND:
            # From the second call on, all nodes are worth a prefetch.
            table.stale.update(dict.fromkeys(ledger.nodes))
        return _Evaluation(demand, table, out_of_time, under_holds, equal=not table.alternatives)

    def _evaluate(
        self,
        evaluation: _Evaluation,
        nodes: Iterable[str],
        max_feasible: int,
        result: FilterResult,
        held_in_order: int = 0,
    ) -> Sequence[str]:
        """Evaluate as `evaluate_nodes` does, but the first `held_in_order` nodes under holds in their place."""
        demand, table, under_holds = evaluation.demand, evaluation.table, evaluation.under_holds
        if not table.fits:
            nodes = list(nodes)
            texts = table.texts_of(nodes)
            if texts is not None:
                self._cached_results += len(nodes)
                result.reject_batch(nodes, texts, table.rejection)
                return ()
        held: list[str] = []
        eager: list[str] = []
        paused: list[str] = []
        cached, known_rejected = table.fits, table.rejected
        fits, rejected = evaluation.fits, evaluation.rejected
        # Without function calls for nodes with a cached result: the loop runs over thousands of them.
        for name in nodes:
            node_result = cached.get(name)
            if node_result is not None:
                fits[name] = node_result
                if node_result.score_terms:
                    evaluation.equal = False
            elif name in known_rejected:
                rejected.append(name)
                continue
            else:
                if under_holds is None or name in under_holds:
                    if len(eager) == held_in_order:
                        held.append(name)
                        continue
                    eager.append(name)
                elif self.allocator.is_paused(demand, name):
                    paused.append(name)
                    continue
                node_result = self._node_result(evaluation, name)
                evaluation.add(name, node_result)
                if node_result.rejection is not None:
                    continue
            if len(fits) >= max_feasible and evaluation.equal:
                break
        for name in (*held, *paused):
            if len(fits) >= max_feasible and evaluation.equal:
                break
            evaluation.add(name, self._node_result(evaluation, name))
        self._report(evaluation, result)
        return [*eager, *held]

    def _report(self, evaluation: _Evaluation, result: FilterResult) -> None:
        """Add what was found to the result of the call."""
        rejected, uncached = evaluation.rejected, evaluation.uncached
        self._cached_results += len(evaluation.fits) + len(rejected) + len(uncached) - evaluation.searched
        result.fits.update(evaluation.fits)
        result.limited |= evaluation.limited
        result.searched += evaluation.searched
        texts = [
            *map(evaluation.table.rejected.__getitem__, rejected),
            *(rejection.text for rejection in uncached.values()),
        ]

        def rejection_of(name: str) -> Rejection:
            known = uncached.get(name)
            return evaluation.table.rejection(name) if known is None or known.rejection is None else known.rejection

        result.reject_batch([*rejected, *uncached] if uncached else rejected, texts, rejection_of)

    def note(self, pod: Pod, demand: Demand) -> NodeAmounts:
        """Count the pod as one that is expected to come again, and return the CPU and memory that it asks for."""
        if self._expected is None:
            return NO_AMOUNTS
        self._expected.note(pod, demand)
        return self._expected.asked_by(pod)

    def evaluate_best_first(
        self,
        demand: Demand,
        asks: NodeAmounts,
        nodes: Collection[str],
        in_order: Iterable[str],
        max_feasible: int,
        out_of_time: Callable[[], bool],
        result: FilterResult,
    ) -> Sequence[str]:
        """As `evaluate_nodes`, but begin with those of the `nodes` where the placement costs the expected demand least.

        `asks`: CPU and memory of the pod.  `in_order`: the same nodes, in the order in which those without a rating are evaluated.
        A call rates 64 nodes at most; the others keep their rating of before, if they have one.
        """
        expected = self._expected
        if expected is None:
            return self.evaluate_nodes(demand, in_order, max_feasible, out_of_time, result)
        evaluation = self._begin(demand, out_of_time)
        ranking = evaluation.table.ranking(asks, self._ledger.nodes)
        self._rate(evaluation, ranking, asks, _RATED_IN_CALL)
        losses = ranking.losses
        ranked = ranking.best_first(evaluation.under_holds, _HELD_IN_ORDER)
        best_first = chain(_among(ranked, nodes), (name for name in in_order if name not in losses))
        under_holds = self._evaluate(evaluation, best_first, max_feasible, result, _HELD_IN_ORDER)
        free = evaluation.table.fits
        for name, fit in result.fits.items():
            if fit is not None:
                loss = losses.get(name) if name in free else None
                result.losses[name] = self._loss(name, fit, self._ledger.usage(), asks) if loss is None else loss
        return under_holds

    def _rate(self, evaluation: _Evaluation, ranking: NodeRanking, asks: NodeAmounts, count: int) -> int:
        """Rate so many of the nodes that are due; return how many are left of the count.

        Nodes under holds stay due, and so do those whose search was paused, while few are.
        """
        ledger, under_holds = self._ledger, evaluation.under_holds
        expected, usage = self._expected, self._ledger.claims.usage
        if expected is None or under_holds is None:
            return 0
        ranking.outdate(expected.version, ledger.free_amounts.changes)
        for name in list(reversed(ranking.unrated)):
            if not count:
                break
            if name in under_holds or self.allocator.is_paused(evaluation.demand, name):
                continue
            count -= 1
            result = evaluation.table.fits.get(name) or self._node_result(evaluation, name)
            if result.limited:
                break
            rooms = ranking.rooms.get(name) if result.rejection is None else None
            if rooms is None or rooms.result is not result or not expected.rates(rooms):
                rooms = self._rooms(name, result, usage)
            ranking.put(name, rooms, None if rooms is None else expected.loss(name, rooms, asks))
            del ranking.unrated[name]
        return count

    def _rooms(self, name: str, result: NodeResult, usage: Usage) -> PlacementRooms | None:
        """Return what is free on the node before and after its placement; None if the pod does not fit there."""
        node, placement = self._ledger.nodes.get(name), result.placement
        pools = None if node is None else self.allocator.pools_of(node)
        if self._expected is None or node is None or placement is None or pools is None:
            return None
        return self._expected.rooms(node, pools, usage, placement, result)

    def _loss(self, name: str, result: NodeResult, usage: Usage, asks: NodeAmounts) -> float:
        rooms = self._rooms(name, result, usage)
        return 0.0 if rooms is None or self._expected is None else self._expected.loss(name, rooms, asks)

    def evaluate_around(
        self,
        devices: frozenset[DeviceId],
        demand: Demand,
        nodes: Iterable[str],
        max_feasible: int,
        budget: CallBudget,
        result: FilterResult,
    ) -> None:
        """Evaluate the nodes without these devices, which are in backoff for one pod, until `max_feasible` nodes fit.

        A node that fits only with them is rejected as such if no other fits.  Results are cached for this call alone.
        """
        ledger, allocator = self._ledger, self.allocator
        usage, state, held = ledger.usage(), ledger.state, ledger.held
        without = BackoffUsage(usage, devices)
        fits: dict[str, NodeResult] = {}
        rejected: dict[str, Rejection] = {}
        for name in nodes:
            node = ledger.nodes.get(name)
            if node is None:
                rejected[name] = NODE_UNKNOWN
                continue
            answer = allocator.search_in_call(demand, node, without, budget, devices)
            if isinstance(answer, NoFit):
                rejected[name] = answer.rejections[0]
                continue
            score_terms = self._score_terms(demand, answer, usage)
            fits[name] = NodeResult(state.version(name), held.version(name), answer, None, "", score_terms)
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

    def prefetch(self, demand: Demand, count: int, max_feasible: int, out_of_time: Callable[[], bool]) -> bool:
        """Evaluate up to `count` nodes that changed since the last call; returns whether more may be stale.

        The next pod with the same demand then finds cached results.  Nodes under holds are skipped while `max_feasible` others fit.
        """
        ledger, table = self._ledger, self._table(demand)
        under_holds = ledger.nodes_under_holds()
        table.drop_changed(ledger.state, ledger.held, under_holds)
        evaluation = _Evaluation(demand, table, out_of_time, under_holds)
        while table.stale and count:
            name, _ = table.stale.popitem()
            if name in table.fits or name in table.rejected:
                continue
            if len(table.fits) >= max_feasible and (under_holds is None or name in under_holds):
                continue
            count -= 1
            if self._node_result(evaluation, name).limited:
                table.stale.clear()
        if self._expected is None:
            return bool(table.stale)
        is_late = out_of_time.pause_due if isinstance(out_of_time, CallBudget) else lambda: False
        due = not count or self._expected.renew(self.allocator, count, is_late)
        if due and is_late():
            return True
        for asks, ranking in table.rankings.items():
            count = self._rate(evaluation, ranking, asks, count)
            due |= not count
        return bool(table.stale) or due

    def _table(self, demand: Demand) -> ResultTable:
        table = self._tables.use(demand.signature)
        if table is None:
            table = ResultTable(alternatives=has_alternatives(demand), reads=reads_of(demand))
            self._tables[demand.signature] = table
        return table

    def _node_result(self, evaluation: _Evaluation, name: str) -> NodeResult:
        """Return the result for one node: cached if nothing that it depends on has changed, or of its class, or searched."""
        ledger, table = self._ledger, evaluation.table
        node = ledger.nodes.get(name)
        if node is None:
            return _UNKNOWN
        is_held = evaluation.under_holds is None or name in evaluation.under_holds
        versions = (ledger.state.version(name), ledger.held.version(name) if is_held else 0)
        cached = table.held if is_held else table.free
        result = cached.get(name)
        if result is None or result.state != versions[0] or result.hold != versions[1]:
            usage = ledger.usage() if is_held else ledger.claims.usage
            inventory = self._equivalence.inventory(node)
            equivalence_class = None
            if inventory is not None:
                under = usage if is_held else None
                equivalence_class = self._equivalence.class_of(node, inventory, table.reads, under)
            of_class = None if equivalence_class is None else table.classes.get(equivalence_class)
            if of_class is not None and inventory is not None:
                result = cached[name] = of_class.on(name, inventory.pools, versions)
            else:
                evaluation.searched += 1
                answer = self.allocator.search(
                    evaluation.demand, node, usage, evaluation.out_of_time, (is_held, *versions)
                )
                self._metrics.search(cached=False, steps=answer.steps)
                result, is_shared = self._read_answer(evaluation.demand, answer, usage, versions)
                if not result.limited:
                    cached[name] = result
                if is_shared and equivalence_class is not None and inventory is not None:
                    placement = result.placement
                    template = None if placement is None else PlacementTemplate(name, inventory.pools, placement)
                    of_all = ClassResult(template, result.rejection, result.text, result.score_terms)
                    table.learn(equivalence_class, of_all)
        if not (is_held or result.limited):
            table.keep(name, result)
        return result

    def _read_answer(
        self, demand: Demand, answer: Placement | NoFit, usage: Usage, versions: tuple[int, int]
    ) -> tuple[NodeResult, bool]:
        """Return the result that the search of a node means, and whether it holds for every equivalent node."""
        if not isinstance(answer, NoFit):
            score_terms = self._score_terms(demand, answer, usage)
            return NodeResult(*versions, answer, None, "", score_terms), True
        rejection = answer.rejections[0]
        codes = {reason.code for reason in answer.rejections}
        is_limited = Code.SEARCH_LIMIT in codes and not answer.counted
        is_shared = answer.counted or (answer.verdict == "no" and codes.isdisjoint(_NAMING_POOLS))
        return NodeResult(*versions, None, rejection, rejection.summary, (), limited=is_limited), is_shared

    def _score_terms(self, demand: Demand, placement: Placement, usage: Usage) -> tuple[ScoreTerms, ...]:
        """Return the score terms by claim; counter sets are none where the ranking has what becomes of them."""
        return score_terms_of(demand, placement, usage, self._ledger.slices, packing=self._expected is None)

    def _publish(self) -> None:
        self._metrics.search(cached=True, steps=self._cached_results)
        self._cached_results = 0


def _among(names: Iterator[str], nodes: Collection[str]) -> Iterator[str]:
    """Yield the names that are among the nodes; only for more than a few of them is a set of all nodes made."""
    yield from (name for name in islice(names, _LOOKED_UP_SINGLY) if name in nodes)
    if rest := list(names):
        yield from filter(frozenset(nodes).__contains__, rest)


class Prefetch:
    """Fills the cache of `NodeEvaluator` for the demand of the last filter call.

    It runs in steps of a few searches, between which the event loop runs, and stops where searches take long.  It begins when a
    call is answered, and again whenever a hold ends, as it does in each bind.
    """

    def __init__(
        self, evaluator: NodeEvaluator, ledger: Ledger, clock: Clock, max_feasible: int, *, ranks: bool = False
    ) -> None:
        """`ranks`: the evaluator ranks nodes, which is much more to do, and less for each."""
        self._evaluator = evaluator
        self._ledger = ledger
        self._clock = clock
        self._max_feasible = max_feasible
        self._most, self._per_step = (
            (_MOST_RATED, _RATED_PER_STEP) if ranks else (_MOST_PREFETCHED, _PREFETCHED_PER_STEP)
        )
        self._turn = 0
        self._demand: Demand | None = None
        self._waits_for_holds = False

    def start(self, demand: Demand) -> None:
        """Evaluate this demand from the next turn of the event loop on, in place of an earlier demand."""
        self._demand = demand
        self._begin()

    def _begin(self) -> None:
        self._turn += 1
        asyncio.get_running_loop().call_soon(self._step, self._turn, self._most)

    def _step(self, turn: int, left: int) -> None:
        if turn != self._turn or self._demand is None:
            return
        budget = CallBudget(self._clock, _PREFETCH_STEP_SECONDS)
        budget.open_slice(_PREFETCH_STEP_SECONDS)
        more = within_slice(partial(self._evaluator.prefetch, self._demand, self._per_step, self._max_feasible, budget))
        if more is True and left > self._per_step:
            asyncio.get_running_loop().call_soon(self._step, turn, left - self._per_step)
        elif not self._waits_for_holds:
            self._waits_for_holds = True
            ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            ended.add_done_callback(self._again)
            self._ledger.holds.changed.join(ended)

    def _again(self, _: asyncio.Future[None]) -> None:
        self._waits_for_holds = False
        self._begin()
