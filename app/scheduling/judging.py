from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from app.allocator import Demand
from app.ledger.ledger import Ledger
from app.model.allocation import Placement
from app.model.rejection import Code, Rejection
from app.scheduling.attempt import Attempt
from app.scheduling.remembered import Outcome, Remembered, Table
from app.scheduling.scoring import draws_on_counters, packing_score
from app.scheduling.searching import Searching
from app.telemetry.metrics import Metrics

NODE_UNKNOWN: Final = Rejection(code=Code.NODE_UNKNOWN)
_UNKNOWN: Final = Outcome(0, 0, None, NODE_UNKNOWN, NODE_UNKNOWN.summary, 0)


@dataclass(slots=True)
class _Asked:
    """One question put to many nodes."""

    demand: Demand
    table: Table
    out_of_time: Callable[[], bool]
    searched: int = 0


class Judging:
    """Puts one question to many nodes and remembers the answers: nodes about which nothing has changed are not searched again."""

    def __init__(self, ledger: Ledger, searching: Searching, metrics: Metrics, limit: int) -> None:
        """Keep at most about `limit` answers."""
        self._ledger = ledger
        self._searching = searching
        self._metrics = metrics
        self._remembered = Remembered(limit)

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
        remembered, fits = asked.table.free.get, attempt.fits
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
            if known.placement is not None:
                fits[name] = known
                if len(fits) >= enough and not asked.table.scored:
                    break
            else:
                attempt.refuse(name, known.rejection or NODE_UNKNOWN, known.text)
        visited += self._search_under_holds(asked, held, enough, attempt)
        self._metrics.search(remembered=True, steps=visited - asked.searched)
        return held

    def _search_under_holds(self, asked: _Asked, held: Sequence[str], enough: int, attempt: Attempt) -> int:
        """The nodes that holds concern, as far as they are needed; returns how many were looked at."""
        for index, name in enumerate(held):
            if len(attempt.fits) >= enough and not asked.table.scored:
                return index
            known = self._ask(asked, name)
            if known.placement is not None:
                attempt.fits[name] = known
            else:
                attempt.refuse(name, known.rejection or NODE_UNKNOWN, known.text)
        return len(held)

    def _ask(self, asked: _Asked, name: str) -> Outcome:
        """The answer for one node: remembered if nothing it was read from has changed, else searched anew."""
        ledger = self._ledger
        node = ledger.nodes.get(name)
        if node is None:
            return _UNKNOWN
        under_holds = ledger.nodes_under_holds()
        held = under_holds is None or name in under_holds
        state, hold = ledger.state.of(name), ledger.held.of(name) if held else 0
        answers = asked.table.held if held else asked.table.free
        known = answers.get(name)
        if known is not None and known.state == state and known.hold == hold:
            return known
        asked.searched += 1
        usage = ledger.usage() if held else ledger.claims.usage
        answer = self._searching.on_node(asked.demand, node, usage, asked.out_of_time)
        self._metrics.search(remembered=False, steps=answer.steps)
        if isinstance(answer, Placement):
            outcome = Outcome(state, hold, answer, None, "", packing_score(answer, usage, ledger.slices))
            asked.table.scored = asked.table.scored or draws_on_counters(answer)
        else:
            outcome = Outcome(state, hold, None, answer.rejections[0], answer.rejections[0].summary, 0)
            if any(each.code is Code.SEARCH_LIMIT for each in answer.rejections):
                return outcome
        answers[name] = outcome
        return outcome
