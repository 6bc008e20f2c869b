from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from app.allocator import Demand, NoFit, Usage
from app.ledger.ledger import Ledger
from app.model.allocation import Placement
from app.model.node import Node
from app.model.rejection import Code, Rejection
from app.scheduling.attempt import Attempt
from app.scheduling.likeness import Likeness
from app.scheduling.remembered import KindAnswer, Outcome, Remembered, Table
from app.scheduling.scoring import draws_on_counters, packing_score
from app.scheduling.searching import Searching
from app.scheduling.twin import Twin
from app.telemetry.metrics import Metrics

NODE_UNKNOWN: Final = Rejection(code=Code.NODE_UNKNOWN)
_UNKNOWN: Final = Outcome(0, 0, None, NODE_UNKNOWN, NODE_UNKNOWN.summary, 0)
# Said of a pool by its name, which is another one on the next node.
_NAMING_POOLS: Final = frozenset({Code.POOL_INCOMPLETE, Code.POOL_INVALID})


@dataclass(slots=True)
class _Asked:
    """One question put to many nodes."""

    demand: Demand
    table: Table
    out_of_time: Callable[[], bool]
    searched: int = 0


class Judging:
    """Puts one question to many nodes and remembers the answers: nodes about which nothing has changed are not searched again."""

    def __init__(
        self,
        ledger: Ledger,
        searching: Searching,
        metrics: Metrics,
        limit: int,
        likeness: Likeness | None = None,
    ) -> None:
        """Keep at most about `limit` answers; `likeness` tells which nodes need not be searched themselves."""
        self._ledger = ledger
        self._searching = searching
        self._metrics = metrics
        self._remembered = Remembered(limit)
        self._likeness = likeness or Likeness(ledger, searching.features)

    def search(
        self, demand: Demand, nodes: Sequence[str], enough: int, out_of_time: Callable[[], bool], attempt: Attempt
    ) -> Sequence[str]:
        """Ask about the nodes in this order and tell `attempt`; returns those that holds concern, which come last.

        Where nodes do not differ in score, it ends with `enough` nodes that fit.  Most answers are remembered, so the common
        way through the loop is kept short.
        """
        ledger, asked = self._ledger, _Asked(demand, self._remembered.table(demand.signature), out_of_time)
        under_holds = ledger.nodes_under_holds()
        versions, moved_all = ledger.state.parts()
        remembered, fits, texts, reasons = asked.table.free.get, attempt.fits, attempt.texts, attempt.reasons
        held: list[str] = []
        visited = 0
        for name in nodes:
            if under_holds is None or name in under_holds:
                held.append(name)
                continue
            visited += 1
            known = remembered(name)
            if known is None or known.state != versions.get(name, 0) + moved_all:
                known = self._ask(asked, name)
            if known.rejection is None:
                fits[name] = known
                if len(fits) >= enough and not asked.table.scored:
                    break
            else:
                texts[name] = known.text
                if known.text not in reasons:
                    reasons[known.text] = (name, known.rejection)
        visited += self._search_under_holds(asked, held, enough, attempt)
        self._metrics.search(remembered=True, steps=visited - asked.searched)
        return held

    def _search_under_holds(self, asked: _Asked, held: Sequence[str], enough: int, attempt: Attempt) -> int:
        """The nodes that holds concern, as far as they are needed; returns how many were looked at."""
        for index, name in enumerate(held):
            if len(attempt.fits) >= enough and not asked.table.scored:
                return index
            known = self._ask_under_holds(asked, name)
            if known.rejection is None:
                attempt.fits[name] = known
            else:
                attempt.refuse(name, known.rejection, known.text)
        return len(held)

    def _ask(self, asked: _Asked, name: str) -> Outcome:
        """The answer for a node without holds of which no answer is remembered: that for its kind, else a search."""
        ledger, table = self._ledger, asked.table
        node = ledger.nodes.get(name)
        if node is None:
            return _UNKNOWN
        state, kind = ledger.state.of(name), self._likeness.kind(node)
        inventory = self._likeness.inventory(node)
        answer = table.kinds.get(kind) if kind is not None else None
        if answer is not None and inventory is not None:
            outcome = table.free[name] = Outcome.of_twin(state, answer, name, inventory.pools)
            return outcome
        found = self._searched(asked, node, ledger.claims.usage)
        outcome = _outcome(state, 0, found)
        if found.lasting:
            table.free[name] = outcome
        if found.typical and kind is not None and inventory is not None:
            placement = found.placement
            twin = None if placement is None else Twin(name, inventory.pools, placement)
            table.learn(kind, KindAnswer(twin, outcome.rejection, outcome.text, outcome.score))
        return outcome

    def _ask_under_holds(self, asked: _Asked, name: str) -> Outcome:
        """The answer for a node under holds: remembered if nothing it was read from has changed, else searched anew."""
        ledger, answers = self._ledger, asked.table.held
        node = ledger.nodes.get(name)
        if node is None:
            return _UNKNOWN
        state, hold = ledger.state.of(name), ledger.held.of(name)
        known = answers.get(name)
        if known is not None and known.state == state and known.hold == hold:
            return known
        found = self._searched(asked, node, ledger.usage())
        outcome = _outcome(state, hold, found)
        if found.lasting:
            answers[name] = outcome
        return outcome

    def _searched(self, asked: _Asked, node: Node, usage: Usage) -> "_Found":
        asked.searched += 1
        answer = self._searching.on_node(asked.demand, node, usage, asked.out_of_time)
        self._metrics.search(remembered=False, steps=answer.steps)
        if isinstance(answer, NoFit):
            codes = {each.code for each in answer.rejections}
            typical = answer.verdict == "no" and codes.isdisjoint(_NAMING_POOLS)
            return _Found(None, answer.rejections[0], 0, lasting=Code.SEARCH_LIMIT not in codes, typical=typical)
        asked.table.scored = asked.table.scored or draws_on_counters(answer)
        score = packing_score(answer, usage, self._ledger.slices)
        return _Found(answer, None, score, lasting=True, typical=True)


class _Found(NamedTuple):
    """What a search found; `lasting` unless it was stopped at a limit, `typical` if it holds for nodes alike word by word."""

    placement: Placement | None
    rejection: Rejection | None
    score: int
    lasting: bool
    typical: bool


def _outcome(state: int, hold: int, found: _Found) -> Outcome:
    text = "" if found.rejection is None else found.rejection.summary
    return Outcome(state, hold, found.placement, found.rejection, text, found.score)
