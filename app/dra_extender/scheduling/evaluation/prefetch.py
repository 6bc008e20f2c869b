"""Evaluates ahead: nodes that have changed are searched and rated between two calls."""

import asyncio
from functools import partial
from typing import Final, NamedTuple

from dra_extender.allocator.demand.demand import Demand
from dra_extender.ledger.ledger import Ledger
from dra_extender.scheduling.evaluation.evaluator import NodeEvaluator
from dra_extender.scheduling.ports.cluster import Clock
from dra_extender.scheduling.time_slices import CallBudget, within_slice

_STEP_SECONDS: Final = 0.004


class Ahead(NamedTuple):
    """The number of nodes to evaluate after one call at most, and in one step."""

    nodes: int
    per_step: int


SEARCHED_AHEAD: Final = Ahead(64, 2)
RATED_AHEAD: Final = Ahead(1_024, 8)
"""Ratings are more to do, and less for each node."""


class Prefetch:
    """Fills the cache of `NodeEvaluator` for the demand of the last filter call.

    It runs in steps of a few searches, between which the event loop runs, and stops where searches take long.  It begins when a
    call is answered, and again whenever a hold ends, as it does in each bind, or a pod takes CPU and memory of a node or ends.
    """

    def __init__(self, evaluator: NodeEvaluator, ledger: Ledger, clock: Clock, max_feasible: int, ahead: Ahead) -> None:
        self._evaluator = evaluator
        self._signals = (ledger.holds.changed, ledger.free_amounts.changed)
        self._clock = clock
        self._max_feasible = max_feasible
        self._ahead = ahead
        self._turn = 0
        self._demand: Demand | None = None
        self._waits = False

    def start(self, demand: Demand) -> None:
        """Evaluate this demand from the next turn of the event loop on, in place of an earlier demand."""
        self._demand = demand
        self._begin()

    def _begin(self) -> None:
        self._turn += 1
        asyncio.get_running_loop().call_soon(self._step, self._turn, self._ahead.nodes)

    def _step(self, turn: int, remaining: int) -> None:
        if turn != self._turn or self._demand is None:
            return
        budget = CallBudget(self._clock, _STEP_SECONDS)
        budget.open_slice(_STEP_SECONDS)
        more = within_slice(
            partial(self._evaluator.prefetch, self._demand, self._ahead.per_step, self._max_feasible, budget)
        )
        if more is True and remaining > self._ahead.per_step:
            asyncio.get_running_loop().call_soon(self._step, turn, remaining - self._ahead.per_step)
        elif not self._waits:
            self._waits = True
            changed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            changed.add_done_callback(self._again)
            for signal in self._signals:
                signal.join(changed)

    def _again(self, changed: asyncio.Future[None]) -> None:
        for signal in self._signals:
            signal.leave(changed)
        self._waits = False
        self._begin()
