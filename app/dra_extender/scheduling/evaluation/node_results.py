"""The results of demands on nodes: cached, those of an equivalent node, or searched."""

import sys
from collections.abc import Container, Hashable
from dataclasses import dataclass, field
from typing import Final

from dra_extender.allocator.demand.demand import Demand, Reads, reads_of
from dra_extender.allocator.state.reasons import Code, NoFit, Rejection
from dra_extender.allocator.state.usage import Usage
from dra_extender.ledger.ledger import Ledger
from dra_extender.model.allocation import Placement, ScoreTerms
from dra_extender.model.device import PoolId
from dra_extender.model.node import Node
from dra_extender.runtime.caches import LruCache
from dra_extender.scheduling.call_budget import CallBudget
from dra_extender.scheduling.evaluation.filter_result import ClassResult, NodeResult
from dra_extender.scheduling.evaluation.node_allocator import NodeAllocator
from dra_extender.scheduling.evaluation.node_equivalence import NodeEquivalence
from dra_extender.scheduling.evaluation.result_table import ResultTable
from dra_extender.scheduling.evaluation.scoring import has_alternatives, placed_claims
from dra_extender.telemetry.metrics import Metrics

NODE_UNKNOWN: Final = Rejection(code=Code.NODE_UNKNOWN)
ALL_NODES: Final = sys.maxsize
_SECOND: Final = 2
_MOST_DEMANDS: Final = 1_000
"""A demand takes 3 to 5 KB in addition to its results, and at each new one the results of all are counted."""
# These rejections name a pool, and the pool of an equivalent node has another name.
_NAMING_POOLS: Final = frozenset({Code.POOL_INCOMPLETE, Code.POOL_INVALID})
_UNKNOWN: Final = NodeResult(0, 0, NODE_UNKNOWN, NODE_UNKNOWN.summary)


@dataclass(slots=True)
class NodeEvaluation:
    """The evaluation of one demand on many nodes, and what was found so far.

    `max_feasible`: so many nodes that fit are enough, unless some of them have score terms.
    `rejected`: nodes that the table has as rejected.  `uncached`: other nodes that do not fit; they are unknown, under holds, or
    not searched to the end.  `held` are nodes under holds, and `paused` nodes whose search was paused: most of them come last.
    """

    demand: Demand
    table: ResultTable
    budget: CallBudget
    under_holds: Container[str] | None
    max_feasible: int
    fits: dict[str, NodeResult] = field(default_factory=dict)
    rejected: list[str] = field(default_factory=list)
    uncached: dict[str, NodeResult] = field(default_factory=dict)
    held: list[str] = field(default_factory=list)
    paused: list[str] = field(default_factory=list)
    searched: int = 0
    limited: bool = False

    def is_held(self, name: str) -> bool:
        return self.under_holds is None or name in self.under_holds

    def is_late(self) -> bool:
        """Return whether the slice of time, or the call, is over, so that optional work should be left out."""
        return self.budget.closed or self.budget.slice_over

    def add(self, name: str, result: NodeResult) -> bool:
        """Add the result of a node that was not cached as valid; return whether the node fits."""
        if result.rejection is None:
            self.fits[name] = result
            if result.score_terms:
                self.max_feasible = ALL_NODES
        elif name in self.table.rejected:
            self.rejected.append(name)
        else:
            self.uncached[name] = result
            self.limited |= result.limited
        return result.rejection is None


class NodeResults:
    """Keeps the results of demands as long as they are valid."""

    def __init__(
        self,
        ledger: Ledger,
        allocator: NodeAllocator,
        metrics: Metrics,
        limit: int,
        equivalence: NodeEquivalence,
        *,
        packing: bool = True,
    ) -> None:
        """Keep at most about `limit` results in all, of `_MOST_DEMANDS` demands; those used least recently go first.

        `packing`: nodes differ in the counter sets that placements draw on.
        """
        self._ledger = ledger
        self.allocator = allocator
        self._metrics = metrics
        self._tables: LruCache[bytes, ResultTable] = LruCache(min(limit, _MOST_DEMANDS), weigh=len, max_weight=limit)
        self._equivalence = equivalence
        self._packing = packing

    def begin_call(self, demand: Demand, budget: CallBudget, max_feasible: int) -> NodeEvaluation:
        """Begin the evaluation of a filter call, and count the call."""
        evaluation = self.begin(demand, budget, max_feasible)
        table = evaluation.table
        table.calls += 1
        if table.calls == _SECOND:
            # From the second call on, all nodes are worth a prefetch.
            table.stale.update(dict.fromkeys(self._ledger.nodes))
        return evaluation

    def begin(self, demand: Demand, budget: CallBudget, max_feasible: int) -> NodeEvaluation:
        """Begin an evaluation, such as a prefetch for later calls."""
        ledger, table = self._ledger, self._tables.use(demand.signature)
        if table is None:
            table = ResultTable(alternatives=has_alternatives(demand), reads=reads_of(demand))
            self._tables[demand.signature] = table
        under_holds = ledger.nodes_under_holds()
        table.drop_changed(ledger.state_versions, ledger.hold_versions, under_holds)
        return NodeEvaluation(demand, table, budget, under_holds, ALL_NODES if table.alternatives else max_feasible)

    def find(self, evaluation: NodeEvaluation, name: str) -> NodeResult:
        """Return the node's result: the cached one if it is valid, otherwise that of an equivalent node, otherwise of a search."""
        ledger, table = self._ledger, evaluation.table
        node = ledger.nodes.get(name)
        if node is None:
            return _UNKNOWN
        is_held = evaluation.is_held(name)
        versions = (ledger.state_versions.version(name), ledger.hold_versions.version(name) if is_held else 0)
        cached = table.held if is_held else table.free
        result = cached.get(name)
        if result is None or result.state != versions[0] or result.hold != versions[1]:
            usage = ledger.usage() if is_held else ledger.claims.usage
            equivalence_class, pools = self._class_of(node, table.reads, usage if is_held else None)
            class_result = table.classes.get(equivalence_class)
            if class_result is not None:
                result = cached[name] = class_result.on(name, pools, versions)
            else:
                evaluation.searched += 1
                answer = self.allocator.search(evaluation.demand, node, usage, evaluation.budget, (is_held, *versions))
                self._metrics.searched(answer.steps)
                result, is_shared = self._read_answer(evaluation.demand, answer, usage, versions)
                if not result.limited:
                    cached[name] = result
                if is_shared and equivalence_class is not None:
                    table.learn(equivalence_class, ClassResult(name, pools, result))
        if not (is_held or result.limited):
            table.keep(name, result)
        return result

    def _class_of(
        self, node: Node, reads: Reads | None, usage_with_holds: Usage | None
    ) -> tuple[Hashable | None, tuple[PoolId, ...]]:
        """Return the node's equivalence class and its local pools in order; None and no pools if it cannot be compared."""
        inventory = self._equivalence.inventory(node)
        if inventory is None:
            return None, ()
        return self._equivalence.class_of(node, inventory, reads, usage_with_holds), inventory.pools

    def _read_answer(
        self, demand: Demand, answer: Placement | NoFit, usage: Usage, versions: tuple[int, int]
    ) -> tuple[NodeResult, bool]:
        """Return the result that the search of a node means, and whether it holds for every equivalent node."""
        if not isinstance(answer, NoFit):
            score_terms = self.score_terms(demand, answer, usage)
            return NodeResult(*versions, score_terms=score_terms, _placement=answer), True
        rejection = answer.rejections[0]
        codes = {reason.code for reason in answer.rejections}
        is_limited = Code.SEARCH_LIMIT in codes and not answer.at_step_limit
        is_shared = answer.at_step_limit or (answer.verdict == "no" and codes.isdisjoint(_NAMING_POOLS))
        return NodeResult(*versions, rejection, rejection.summary, limited=is_limited), is_shared

    def score_terms(self, demand: Demand, placement: Placement, usage: Usage) -> tuple[ScoreTerms, ...]:
        """Return the score terms of a placement under this usage, by claim; empty if no claim has any."""
        claims = placed_claims(demand, placement, usage, self._ledger.slices, packing=self._packing)
        score_terms = tuple(claim.terms for claim in claims)
        return score_terms if any(score_terms) else ()
