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

    `equal`: nothing has been seen yet by which nodes that fit could differ.  `slow` are nodes whose search was begun before and
    takes long; they come last.
    """

    demand: Demand
    table: ResultTable
    out_of_time: Callable[[], bool]
    enough: int
    attempt: FilterResult
    under_holds: Container[str] | None
    equal: bool
    slow: list[str] = field(default_factory=list)
    visited: int = 0
    searched: int = 0

    @property
    def satisfied(self) -> bool:
        """Whether further nodes would change nothing."""
        return self.equal and len(self.attempt.fits) >= self.enough


class NodeEvaluator:
    """Puts one question to many nodes and remembers the answers: nodes about which nothing has changed are not searched again."""

    def __init__(
        self,
        ledger: Ledger,
        searching: NodeAllocator,
        metrics: Metrics,
        limit: int,
        likeness: NodeEquivalence | None = None,
    ) -> None:
        """Keep at most about `limit` answers; `likeness` tells which nodes need not be searched themselves."""
        self._ledger = ledger
        self._searching = searching
        self._metrics = metrics
        self._remembered = ResultCache(limit)
        self._likeness = likeness or NodeEquivalence(ledger, searching.features)

    def search(
        self, demand: Demand, nodes: Iterable[str], enough: int, out_of_time: Callable[[], bool], attempt: FilterResult
    ) -> Sequence[str]:
        """Ask about the nodes in this order and tell `attempt`; returns those that holds concern, which come last.

        Where nodes do not differ in what speaks for them, it ends with `enough` nodes that fit.  What is remembered decides how
        long this takes, never what comes out.
        """
        ledger, table = self._ledger, self._remembered.table(demand.signature)
        under_holds = ledger.nodes_under_holds()
        self._begin(demand, table, under_holds)
        asked = _Asked(demand, table, out_of_time, enough, attempt, under_holds, equal=not table.alternatives)
        held: Sequence[str] = ()
        if table.fits or not self._all_refused(asked, nodes := list(nodes)):
            held = self._walk(asked, nodes)
        for name in (*held, *asked.slow):
            if asked.satisfied:
                break
            if self._visit(asked, name):
                self._refuse(asked, (name,), (table.refused[name],))
        self._metrics.search(remembered=True, steps=asked.visited - asked.searched)
        return held

    def look_ahead(self, demand: Demand, count: int, enough: int, out_of_time: Callable[[], bool]) -> bool:
        """Ask about up to `count` nodes that changed since the last time; returns whether there may be more of them.

        So that the next pod with the same question finds the answers.  Nodes under holds are left alone while `enough` others fit.
        """
        ledger, table = self._ledger, self._remembered.table(demand.signature)
        under_holds = ledger.nodes_under_holds()
        table.catch_up(ledger.state, ledger.held, under_holds)
        asked = _Asked(demand, table, out_of_time, enough, FilterResult(), under_holds, equal=False)
        while table.stale and count:
            name, _ = table.stale.popitem()
            if name in table.fits or name in table.refused:
                continue
            if len(table.fits) >= enough and (asked.under_holds is None or name in asked.under_holds):
                continue
            count -= 1
            if self._ask(asked, name).limited:
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
        enough = asked.enough
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
            elif self._searching.set_aside(asked.demand, name):
                asked.slow.append(name)
                continue
            elif self._visit(asked, name):
                passed.append(name)
                continue
            if len(fits) >= enough and asked.equal:
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
        """One node of which nothing is known that is good for sure; True if it has still to be told with the refused ones."""
        outcome = self._ask(asked, name)
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

    def _ask(self, asked: _Asked, name: str) -> NodeResult:
        """The answer for one node: remembered if nothing it was read from has changed, else that for its kind, else searched."""
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
        inventory = self._likeness.inventory(node)
        kind = None if inventory is None else self._likeness.kind_of(node, inventory, asked.table.reads)
        usage, versions = self._ledger.claims.usage, (self._ledger.state.of(node.name), 0)
        return self._answer(asked, node, usage, asked.table.free, versions, inventory, kind)

    def _under_holds(self, asked: _Asked, node: Node) -> NodeResult:
        ledger, answers = self._ledger, asked.table.held
        state, hold = versions = ledger.state.of(node.name), ledger.held.of(node.name)
        known = answers.get(node.name)
        if known is not None and known.state == state and known.hold == hold:
            return known
        usage, inventory = ledger.usage(), self._likeness.inventory(node)
        kind = None if inventory is None else self._likeness.kind_under(node, inventory, asked.table.reads, usage)
        return self._answer(asked, node, usage, answers, versions, inventory, kind)

    def _answer(
        self,
        asked: _Asked,
        node: Node,
        usage: Usage,
        answers: dict[str, NodeResult],
        versions: tuple[int, int],
        inventory: Inventory | None,
        kind: Hashable | None,
    ) -> NodeResult:
        """The answer under this usage, kept among `answers`: that for the node's kind if there is one, else what a search finds."""
        known = None if kind is None else asked.table.kinds.get(kind)
        if known is not None and inventory is not None:
            outcome = answers[node.name] = NodeResult.of_twin(versions, known, node.name, inventory.pools)
            return outcome
        found = self._searched(asked, node, usage, (answers is asked.table.held, *versions))
        outcome = _outcome(versions, found)
        if found.lasting:
            answers[node.name] = outcome
        if found.typical and kind is not None and inventory is not None:
            placement = found.placement
            twin = None if placement is None else PlacementTemplate(node.name, inventory.pools, placement)
            asked.table.learn(kind, ClassResult(twin, outcome.rejection, outcome.text, outcome.merits))
        return outcome

    def _searched(self, asked: _Asked, node: Node, usage: Usage, under: Hashable) -> "_Found":
        asked.searched += 1
        answer = self._searching.on_node(asked.demand, node, usage, asked.out_of_time, under)
        self._metrics.search(remembered=False, steps=answer.steps)
        if isinstance(answer, NoFit):
            codes = {each.code for each in answer.rejections}
            typical = (answer.verdict == "no" and codes.isdisjoint(_NAMING_POOLS)) or answer.counted
            lasting = answer.counted or Code.SEARCH_LIMIT not in codes
            return _Found(None, answer.rejections[0], (), lasting=lasting, typical=typical)
        merits = merits_of(asked.demand, answer, usage, self._ledger.slices)
        return _Found(answer, None, merits, lasting=True, typical=True)


class _Found(NamedTuple):
    """What a search found; `lasting` unless it was stopped at a limit, `typical` if it holds for nodes alike word by word."""

    placement: Placement | None
    rejection: Rejection | None
    merits: tuple[ScoreTerms, ...]
    lasting: bool
    typical: bool


def _outcome(versions: tuple[int, int], found: _Found) -> NodeResult:
    text = "" if found.rejection is None else found.rejection.summary
    return NodeResult(*versions, found.placement, found.rejection, text, found.merits, limited=not found.lasting)
