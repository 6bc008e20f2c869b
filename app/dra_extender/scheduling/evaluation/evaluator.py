"""Evaluates one demand on many nodes; a node without a change is not searched again."""

from collections.abc import Callable, Container, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from dra_extender.allocator.demand.demand import Demand, reads_of
from dra_extender.allocator.state.rejection import Code, Rejection
from dra_extender.allocator.state.result import NoFit
from dra_extender.allocator.state.usage import Usage
from dra_extender.ledger.ledger import Ledger
from dra_extender.model.allocation import Placement, ScoreTerms
from dra_extender.model.device import DeviceId
from dra_extender.model.node import Node
from dra_extender.scheduling.evaluation.backoff import DEVICES_IN_BACKOFF, BackoffUsage
from dra_extender.scheduling.evaluation.node_allocator import NodeAllocator
from dra_extender.scheduling.evaluation.node_equivalence import Inventory, NodeEquivalence
from dra_extender.scheduling.evaluation.placement_template import PlacementTemplate
from dra_extender.scheduling.evaluation.result import EvaluationResult, NodeResult, RejectedBatch
from dra_extender.scheduling.evaluation.result_cache import ClassResult, ResultCache, ResultTable
from dra_extender.scheduling.evaluation.scoring import has_alternatives, score_terms_of
from dra_extender.scheduling.search_time.time_slices import CallBudget
from dra_extender.telemetry.metrics import Metrics

NODE_UNKNOWN: Final = Rejection(code=Code.NODE_UNKNOWN)
_SECOND: Final = 2
# These rejections name a pool, and the pool of an equivalent node has another name.
_NAMING_POOLS: Final = frozenset({Code.POOL_INCOMPLETE, Code.POOL_INVALID})
_UNKNOWN: Final = NodeResult(0, 0, None, NODE_UNKNOWN, NODE_UNKNOWN.summary)


@dataclass(slots=True)
class _Pass:
    """One demand on its way over many nodes, and what was found so far.

    `equal`: the nodes that fit do not differ in score terms so far.  `rejected` are rejected in the table.  `uncached` are rejected
    as well: nodes that are unknown, under holds, or not searched to the end.  `paused` are nodes whose search was paused in an
    earlier slice; they come last.
    """

    demand: Demand
    table: ResultTable
    out_of_time: Callable[[], bool]
    max_feasible: int
    under_holds: Container[str] | None
    equal: bool
    fits: dict[str, NodeResult] = field(default_factory=dict)
    rejected: list[str] = field(default_factory=list)
    uncached: dict[str, NodeResult] = field(default_factory=dict)
    paused: list[str] = field(default_factory=list)
    searched: int = 0
    limited: bool = False

    @property
    def satisfied(self) -> bool:
        """Whether further nodes would change nothing."""
        return self.equal and len(self.fits) >= self.max_feasible

    @property
    def visited(self) -> int:
        """How many nodes have a result."""
        return len(self.fits) + len(self.rejected) + len(self.uncached)

    def evaluation(self, under_holds: Sequence[str]) -> EvaluationResult:
        """The results so far."""
        table, uncached = self.table, self.uncached
        texts = list(map(table.rejected.__getitem__, self.rejected))
        batch = RejectedBatch(self.rejected, texts, table.rejection)
        if uncached:
            nodes = [*self.rejected, *uncached]
            texts += [each.text for each in uncached.values()]
            batch = RejectedBatch(nodes, texts, self._rejection)
        return EvaluationResult(self.fits, batch, under_holds, self.limited, self.searched)

    def _rejection(self, name: str) -> Rejection:
        result = self.uncached.get(name)
        return self.table.rejection(name) if result is None or result.rejection is None else result.rejection


class _NodeState(NamedTuple):
    """A node under one usage: its versions (state, hold), its equivalence class, and where its result is cached."""

    node: Node
    usage: Usage
    cached: dict[str, NodeResult]
    versions: tuple[int, int]
    inventory: Inventory | None
    equivalence_class: Hashable | None


class _Found(NamedTuple):
    """What a search found.  `lasting`: it was not stopped at a limit.  `shared`: it is valid for equivalent nodes."""

    placement: Placement | None
    rejection: Rejection | None
    score_terms: tuple[ScoreTerms, ...]
    lasting: bool
    shared: bool


class NodeEvaluator:
    """Evaluates many nodes for one demand and caches the results."""

    def __init__(
        self,
        ledger: Ledger,
        allocator: NodeAllocator,
        metrics: Metrics,
        limit: int,
        equivalence: NodeEquivalence | None = None,
    ) -> None:
        """Cache at most about `limit` results."""
        self._ledger = ledger
        self._allocator = allocator
        self._metrics = metrics
        self._cache = ResultCache(limit)
        self._equivalence = equivalence or NodeEquivalence(ledger, allocator.features)
        self._cached_results = 0
        metrics.before_render(self._publish)

    def evaluate_nodes(
        self, demand: Demand, nodes: Iterable[str], max_feasible: int, out_of_time: Callable[[], bool]
    ) -> EvaluationResult:
        """Evaluate the nodes in this order, those under holds last.

        Where nodes do not differ in score terms, it ends with `max_feasible` nodes that fit.  Cached results decide how long this
        takes, never the outcome.

        Raises:
            SearchPaused: `out_of_time` raised it.
        """
        table, under_holds = self._cache.table(demand.signature), self._ledger.nodes_under_holds()
        self._begin(demand, table, under_holds)
        if not table.fits:
            nodes = list(nodes)
            texts = table.texts_of(nodes)
            if texts is not None:
                self._cached_results += len(nodes)
                return EvaluationResult({}, RejectedBatch(nodes, texts, table.rejection), (), limited=False)
        run = _Pass(demand, table, out_of_time, max_feasible, under_holds, equal=not table.alternatives)
        held = self._walk(run, nodes)
        for name in (*held, *run.paused):
            if run.satisfied:
                break
            self._visit(run, name)
        self._cached_results += run.visited - run.searched
        return run.evaluation(held)

    def evaluate_around(
        self,
        devices: frozenset[DeviceId],
        demand: Demand,
        nodes: Iterable[str],
        max_feasible: int,
        budget: CallBudget,
    ) -> EvaluationResult:
        """Evaluate the nodes without these devices, which are in backoff for one pod, until `max_feasible` nodes fit.

        A node that fits only with them is rejected as such if no other fits.  Results are cached for this call alone.
        """
        ledger, allocator = self._ledger, self._allocator
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
            score_terms = score_terms_of(demand, answer, usage, ledger.slices)
            fits[name] = NodeResult(state.version(name), held.version(name), answer, None, "", score_terms)
            if len(fits) >= max_feasible:
                break
        limited = any(each.code is Code.SEARCH_LIMIT for each in rejected.values())
        for name in () if fits else rejected:
            node = ledger.nodes.get(name)
            if node is not None and isinstance(
                allocator.search_in_call(demand, node, usage, budget, "all devices"), Placement
            ):
                rejected[name] = DEVICES_IN_BACKOFF
        texts = [each.summary for each in rejected.values()]
        return EvaluationResult(fits, RejectedBatch(list(rejected), texts, rejected.__getitem__), (), limited)

    def prefetch(self, demand: Demand, count: int, max_feasible: int, out_of_time: Callable[[], bool]) -> bool:
        """Evaluate up to `count` nodes that changed since the last call; returns whether more may be stale.

        The next pod with the same demand then finds cached results.  Nodes under holds are skipped while `max_feasible` others fit.
        """
        ledger, table = self._ledger, self._cache.table(demand.signature)
        under_holds = ledger.nodes_under_holds()
        table.catch_up(ledger.state, ledger.held, under_holds)
        run = _Pass(demand, table, out_of_time, max_feasible, under_holds, equal=False)
        while table.stale and count:
            name, _ = table.stale.popitem()
            if name in table.fits or name in table.rejected:
                continue
            if len(table.fits) >= max_feasible and (under_holds is None or name in under_holds):
                continue
            count -= 1
            if self._evaluate_node(run, name).limited:
                table.stale.clear()
        return bool(table.stale)

    def _publish(self) -> None:
        self._metrics.search(cached=True, steps=self._cached_results)
        self._cached_results = 0

    def _begin(self, demand: Demand, table: ResultTable, under_holds: Container[str] | None) -> None:
        """Drop what has changed.  From the second call on, all nodes are worth a prefetch."""
        table.catch_up(self._ledger.state, self._ledger.held, under_holds)
        if not table.asked:
            table.alternatives = has_alternatives(demand)
            table.reads = reads_of(demand)
        table.asked += 1
        if table.asked == _SECOND:
            table.stale.update(dict.fromkeys(self._ledger.nodes))

    def _walk(self, run: _Pass, nodes: Iterable[str]) -> Sequence[str]:
        """Go from node to node until nothing more is needed; returns those under holds, which come later."""
        cached, rejected, fits, under_holds = run.table.fits, run.table.rejected, run.fits, run.under_holds
        max_feasible, passed = run.max_feasible, run.rejected
        held: list[str] = []
        for name in nodes:
            result = cached.get(name)
            if result is not None:
                fits[name] = result
                if result.score_terms:
                    run.equal = False
            elif name in rejected:
                passed.append(name)
                continue
            elif under_holds is None or name in under_holds:
                held.append(name)
                continue
            elif self._allocator.is_paused(run.demand, name):
                run.paused.append(name)
                continue
            elif not self._visit(run, name):
                continue
            if len(fits) >= max_feasible and run.equal:
                break
        return held

    def _visit(self, run: _Pass, name: str) -> bool:
        """Evaluate a node without a valid cached result; returns whether it fits."""
        result = self._evaluate_node(run, name)
        if result.rejection is None:
            run.fits[name] = result
            if result.score_terms:
                run.equal = False
            return True
        if name in run.table.rejected:
            run.rejected.append(name)
        else:
            run.uncached[name] = result
            run.limited |= result.limited
        return False

    def _evaluate_node(self, run: _Pass, name: str) -> NodeResult:
        """The result for one node: cached if nothing that it depends on has changed, else that of its class, else searched."""
        node = self._ledger.nodes.get(name)
        if node is None:
            return _UNKNOWN
        if run.under_holds is None or name in run.under_holds:
            return self._evaluate_under_holds(run, node)
        result = run.table.free.get(name)
        if result is None or result.state != self._ledger.state.version(name):
            result = self._evaluate_free(run, node)
        if not result.limited:
            run.table.keep(name, result)
        return result

    def _evaluate_free(self, run: _Pass, node: Node) -> NodeResult:
        table, equivalence = run.table, self._equivalence
        inventory = equivalence.inventory(node)
        equivalence_class = None if inventory is None else equivalence.class_of(node, inventory, table.reads)
        versions = (self._ledger.state.version(node.name), 0)
        of_class = None if equivalence_class is None else table.classes.get(equivalence_class)
        if of_class is None or inventory is None:
            usage = self._ledger.claims.usage
            return self._search(run, _NodeState(node, usage, table.free, versions, inventory, equivalence_class))
        result = table.free[node.name] = of_class.on(node.name, inventory.pools, versions)
        return result

    def _evaluate_under_holds(self, run: _Pass, node: Node) -> NodeResult:
        ledger, table = self._ledger, run.table
        state, hold = versions = ledger.state.version(node.name), ledger.held.version(node.name)
        known = table.held.get(node.name)
        if known is not None and known.state == state and known.hold == hold:
            return known
        usage, inventory = ledger.usage(), self._equivalence.inventory(node)
        equivalence_class = (
            None if inventory is None else self._equivalence.class_under(node, inventory, table.reads, usage)
        )
        of_class = None if equivalence_class is None else table.classes.get(equivalence_class)
        if of_class is None or inventory is None:
            return self._search(run, _NodeState(node, usage, table.held, versions, inventory, equivalence_class))
        result = table.held[node.name] = of_class.on(node.name, inventory.pools, versions)
        return result

    def _search(self, run: _Pass, at: _NodeState) -> NodeResult:
        """Search the node; the result is cached for it and for its equivalence class, if it is valid there."""
        node, inventory, equivalence_class = at.node, at.inventory, at.equivalence_class
        found = self._find(run, at)
        placement, rejection, score_terms = found.placement, found.rejection, found.score_terms
        text = "" if rejection is None else rejection.summary
        result = NodeResult(*at.versions, placement, rejection, text, score_terms, limited=not found.lasting)
        if found.lasting:
            at.cached[node.name] = result
        if found.shared and equivalence_class is not None and inventory is not None:
            template = None if placement is None else PlacementTemplate(node.name, inventory.pools, placement)
            run.table.learn(equivalence_class, ClassResult(template, rejection, text, score_terms))
        return result

    def _find(self, run: _Pass, at: _NodeState) -> _Found:
        run.searched += 1
        under = (at.cached is run.table.held, *at.versions)
        answer = self._allocator.search(run.demand, at.node, at.usage, run.out_of_time, under)
        self._metrics.search(cached=False, steps=answer.steps)
        if isinstance(answer, NoFit):
            codes = {each.code for each in answer.rejections}
            shared = (answer.verdict == "no" and codes.isdisjoint(_NAMING_POOLS)) or answer.counted
            lasting = answer.counted or Code.SEARCH_LIMIT not in codes
            return _Found(None, answer.rejections[0], (), lasting=lasting, shared=shared)
        score_terms = score_terms_of(run.demand, answer, at.usage, self._ledger.slices)
        return _Found(answer, None, score_terms, lasting=True, shared=True)
