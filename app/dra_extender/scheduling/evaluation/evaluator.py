from collections.abc import Callable, Container, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from dra_extender.allocator.demand.demand import Demand
from dra_extender.allocator.demand.reads import reads_of
from dra_extender.allocator.state.result import NoFit
from dra_extender.allocator.state.usage import Usage
from dra_extender.ledger.ledger import Ledger
from dra_extender.model.allocation import Placement, ScoreTerms
from dra_extender.model.node import Node
from dra_extender.model.rejection import Code, Rejection
from dra_extender.scheduling.evaluation.node_allocator import NodeAllocator
from dra_extender.scheduling.evaluation.node_equivalence import Inventory, NodeEquivalence
from dra_extender.scheduling.evaluation.placement_template import PlacementTemplate
from dra_extender.scheduling.evaluation.result import FilterResult
from dra_extender.scheduling.evaluation.result_cache import ClassResult, NodeResult, ResultCache, ResultTable
from dra_extender.scheduling.evaluation.scoring import has_alternatives, merits_of
from dra_extender.telemetry.metrics import Metrics

NODE_UNKNOWN: Final = Rejection(code=Code.NODE_UNKNOWN)
_AGAIN: Final = 2
# Said of a pool by its name, which is another one on the next node.
_NAMING_POOLS: Final = frozenset({Code.POOL_INCOMPLETE, Code.POOL_INVALID})
_UNKNOWN: Final = NodeResult(0, 0, None, NODE_UNKNOWN, NODE_UNKNOWN.summary)


@dataclass(slots=True)
class _Asked:
    """One question put to many nodes.

    `equal`: nothing has been seen yet by which nodes that fit could differ.  `paused` are nodes whose search was begun before and
    takes long; they come last.
    """

    demand: Demand
    table: ResultTable
    out_of_time: Callable[[], bool]
    max_feasible: int
    attempt: FilterResult
    under_holds: Container[str] | None
    equal: bool
    paused: list[str] = field(default_factory=list)
    visited: int = 0
    searched: int = 0

    @property
    def satisfied(self) -> bool:
        """Whether further nodes would change nothing."""
        return self.equal and len(self.attempt.fits) >= self.max_feasible


class NodeEvaluator:
    """Evaluates many nodes for one demand and caches the results: a node that has not changed is not searched again."""

    def __init__(
        self,
        ledger: Ledger,
        allocator: NodeAllocator,
        metrics: Metrics,
        limit: int,
        equivalence: NodeEquivalence | None = None,
    ) -> None:
        """Keep at most about `limit` answers; `equivalence` tells which nodes need not be searched themselves."""
        self._ledger = ledger
        self._allocator = allocator
        self._metrics = metrics
        self._cache = ResultCache(limit)
        self._equivalence = equivalence or NodeEquivalence(ledger, allocator.features)

    def evaluate_nodes(
        self,
        demand: Demand,
        nodes: Iterable[str],
        max_feasible: int,
        out_of_time: Callable[[], bool],
        attempt: FilterResult,
    ) -> Sequence[str]:
        """Evaluate the nodes in this order and add the results to `attempt`; returns the nodes under holds, which come last.

        Where nodes do not differ in score terms, it ends with `max_feasible` nodes that fit.  Cached results decide how long this
        takes, never the outcome.
        """
        ledger, table = self._ledger, self._cache.table(demand.signature)
        under_holds = ledger.nodes_under_holds()
        self._begin(demand, table, under_holds)
        asked = _Asked(demand, table, out_of_time, max_feasible, attempt, under_holds, equal=not table.alternatives)
        held: Sequence[str] = ()
        if table.fits or not self._all_refused(asked, nodes := list(nodes)):
            held = self._walk(asked, nodes)
        for name in (*held, *asked.paused):
            if asked.satisfied:
                break
            if self._visit(asked, name):
                self._refuse(asked, (name,), (table.refused[name],))
        self._metrics.search(remembered=True, steps=asked.visited - asked.searched)
        return held

    def prefetch(self, demand: Demand, count: int, max_feasible: int, out_of_time: Callable[[], bool]) -> bool:
        """Evaluate up to `count` nodes that changed since the last call; returns whether more may be stale.

        The next pod with the same question then finds cached results.  Nodes under holds are skipped while `max_feasible` others
        fit.
        """
        ledger, table = self._ledger, self._cache.table(demand.signature)
        under_holds = ledger.nodes_under_holds()
        table.catch_up(ledger.state, ledger.held, under_holds)
        asked = _Asked(demand, table, out_of_time, max_feasible, FilterResult(), under_holds, equal=False)
        while table.stale and count:
            name, _ = table.stale.popitem()
            if name in table.fits or name in table.refused:
                continue
            if len(table.fits) >= max_feasible and (asked.under_holds is None or name in asked.under_holds):
                continue
            count -= 1
            if self._evaluate_node(asked, name).limited:
                table.stale.clear()
        return bool(table.stale)

    def _begin(self, demand: Demand, table: ResultTable, under_holds: Container[str] | None) -> None:
        """Forget what has changed; a question that is put again makes nodes worth asking about that were never needed before."""
        table.catch_up(self._ledger.state, self._ledger.held, under_holds)
        if not table.asked:
            table.alternatives = has_alternatives(demand)
            table.reads = reads_of(demand)
        table.asked += 1
        if table.asked == _AGAIN:
            table.stale.update(dict.fromkeys(self._ledger.nodes))

    def _walk(self, asked: _Asked, nodes: Iterable[str]) -> Sequence[str]:
        """Go from node to node until nothing more is needed; returns those under holds, which are left for later."""
        known, refused, fits, under_holds = asked.table.fits, asked.table.refused, asked.attempt.fits, asked.under_holds
        max_feasible = asked.max_feasible
        passed: list[str] = []
        held: list[str] = []
        for name in nodes:
            outcome = known.get(name)
            if outcome is not None:
                fits[name] = outcome
                asked.visited += 1
                if outcome.merits:
                    asked.equal = False
            elif name in refused:
                passed.append(name)
                continue
            elif under_holds is None or name in under_holds:
                held.append(name)
                continue
            elif self._allocator.is_paused(asked.demand, name):
                asked.paused.append(name)
                continue
            elif self._visit(asked, name):
                passed.append(name)
                continue
            if len(fits) >= max_feasible and asked.equal:
                break
        self._refuse(asked, passed, list(map(refused.__getitem__, passed)))
        return held

    def _all_refused(self, asked: _Asked, nodes: Sequence[str]) -> bool:
        """Whether it is known of all nodes that they are refused, and then tell so: the shortest way over a full cluster."""
        try:
            texts = list(map(asked.table.refused.__getitem__, nodes))
        except KeyError:
            return False
        self._refuse(asked, nodes, texts)
        return True

    def _refuse(self, asked: _Asked, nodes: Sequence[str], texts: Sequence[str]) -> None:
        """Nodes that are known to be refused."""
        asked.visited += len(nodes)
        asked.attempt.refuse_all(nodes, texts, asked.table.rejection)

    def _visit(self, asked: _Asked, name: str) -> bool:
        """Evaluate a node without a valid cached result.  True: the caller must add it to the rejected batch."""
        outcome = self._evaluate_node(asked, name)
        if outcome.rejection is not None and name in asked.table.refused:
            return True
        asked.visited += 1
        if outcome.rejection is not None:
            asked.attempt.refuse(name, outcome.rejection, outcome.text)
            asked.attempt.limited |= outcome.limited
            return False
        asked.attempt.fits[name] = outcome
        if outcome.merits:
            asked.equal = False
        return False

    def _evaluate_node(self, asked: _Asked, name: str) -> NodeResult:
        """The result for one node: cached if nothing that it depends on has changed, else that of its class, else searched."""
        node = self._ledger.nodes.get(name)
        if node is None:
            return _UNKNOWN
        if asked.under_holds is None or name in asked.under_holds:
            return self._under_holds(asked, node)
        outcome = asked.table.free.get(name)
        if outcome is None or outcome.state != self._ledger.state.of(name):
            outcome = self._without_holds(asked, node)
        if not outcome.limited:
            asked.table.keep(name, outcome)
        return outcome

    def _without_holds(self, asked: _Asked, node: Node) -> NodeResult:
        inventory = self._equivalence.inventory(node)
        equivalence_class = (
            None if inventory is None else self._equivalence.class_of(node, inventory, asked.table.reads)
        )
        usage, versions = self._ledger.claims.usage, (self._ledger.state.of(node.name), 0)
        return self._answer(asked, node, usage, asked.table.free, versions, inventory, equivalence_class)

    def _under_holds(self, asked: _Asked, node: Node) -> NodeResult:
        ledger, answers = self._ledger, asked.table.held
        state, hold = versions = ledger.state.of(node.name), ledger.held.of(node.name)
        known = answers.get(node.name)
        if known is not None and known.state == state and known.hold == hold:
            return known
        usage, inventory = ledger.usage(), self._equivalence.inventory(node)
        equivalence_class = (
            None if inventory is None else self._equivalence.class_under(node, inventory, asked.table.reads, usage)
        )
        return self._answer(asked, node, usage, answers, versions, inventory, equivalence_class)

    def _answer(
        self,
        asked: _Asked,
        node: Node,
        usage: Usage,
        answers: dict[str, NodeResult],
        versions: tuple[int, int],
        inventory: Inventory | None,
        equivalence_class: Hashable | None,
    ) -> NodeResult:
        """The result under this usage, cached in `answers`: that of the node's equivalence class, else what a search finds."""
        known = None if equivalence_class is None else asked.table.classes.get(equivalence_class)
        if known is not None and inventory is not None:
            outcome = answers[node.name] = NodeResult.from_class(versions, known, node.name, inventory.pools)
            return outcome
        found = self._searched(asked, node, usage, (answers is asked.table.held, *versions))
        outcome = _outcome(versions, found)
        if found.lasting:
            answers[node.name] = outcome
        if found.shared and equivalence_class is not None and inventory is not None:
            placement = found.placement
            template = None if placement is None else PlacementTemplate(node.name, inventory.pools, placement)
            asked.table.learn(equivalence_class, ClassResult(template, outcome.rejection, outcome.text, outcome.merits))
        return outcome

    def _searched(self, asked: _Asked, node: Node, usage: Usage, under: Hashable) -> "_Found":
        asked.searched += 1
        answer = self._allocator.on_node(asked.demand, node, usage, asked.out_of_time, under)
        self._metrics.search(remembered=False, steps=answer.steps)
        if isinstance(answer, NoFit):
            codes = {each.code for each in answer.rejections}
            shared = (answer.verdict == "no" and codes.isdisjoint(_NAMING_POOLS)) or answer.counted
            lasting = answer.counted or Code.SEARCH_LIMIT not in codes
            return _Found(None, answer.rejections[0], (), lasting=lasting, shared=shared)
        merits = merits_of(asked.demand, answer, usage, self._ledger.slices)
        return _Found(answer, None, merits, lasting=True, shared=True)


class _Found(NamedTuple):
    """What a search found; `lasting` unless it was stopped at a limit, `shared` if it holds for nodes alike word by word."""

    placement: Placement | None
    rejection: Rejection | None
    merits: tuple[ScoreTerms, ...]
    lasting: bool
    shared: bool


def _outcome(versions: tuple[int, int], found: _Found) -> NodeResult:
    text = "" if found.rejection is None else found.rejection.summary
    return NodeResult(*versions, found.placement, found.rejection, text, found.merits, limited=not found.lasting)
