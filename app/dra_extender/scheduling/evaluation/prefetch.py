"""Evaluates changed nodes between two calls, so that the next pod of the same workload need not wait."""

import asyncio
from typing import Final

from dra_extender.allocator.demand.demand import Demand
from dra_extender.allocator.state.result import SearchPaused
from dra_extender.ledger.ledger import Ledger
from dra_extender.scheduling.evaluation.evaluator import NodeEvaluator
from dra_extender.scheduling.ports.cluster import Clock
from dra_extender.scheduling.time_slices import CallBudget

_NODES_PER_STEP: Final = 2
_MOST_NODES: Final = 64
_STEP_SECONDS: Final = 0.004


class Prefetch:
    """Fills the cache of `NodeEvaluator` for the demand of the last filter call.

    It runs in steps of a few searches, between which the event loop runs, and stops where searches take long.  It begins when a
    call is answered, and again whenever a hold ends, as it does in each bind.
    """

    def __init__(self, evaluator: NodeEvaluator, ledger: Ledger, clock: Clock, max_feasible: int) -> None:
        self._evaluator = evaluator
        self._ledger = ledger
        self._clock = clock
        self._max_feasible = max_feasible
        self._turn = 0
        self._demand: Demand | None = None
        self._waits_for_holds = False

    def start(self, demand: Demand) -> None:
        """Evaluate this demand from the next turn of the event loop on, in place of an earlier demand."""
        self._demand = demand
        self._begin()

    def _begin(self) -> None:
        self._turn += 1
        asyncio.get_running_loop().call_soon(self._step, self._turn, _MOST_NODES)

    def _step(self, turn: int, left: int) -> None:
        if turn != self._turn or self._demand is None:
            return
        budget = CallBudget(self._clock, _STEP_SECONDS)
        budget.open_slice(_STEP_SECONDS)
        try:
            more = self._evaluator.prefetch(self._demand, _NODES_PER_STEP, self._max_feasible, budget)
        except SearchPaused:
            more = False
        if more and left > _NODES_PER_STEP:
            asyncio.get_running_loop().call_soon(self._step, turn, left - _NODES_PER_STEP)
        elif not self._waits_for_holds:
            self._waits_for_holds = True
            ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            ended.add_done_callback(lambda _: self._again())
            self._ledger.holds.changed.join(ended)

    def _again(self) -> None:
        self._waits_for_holds = False
        self._begin()
