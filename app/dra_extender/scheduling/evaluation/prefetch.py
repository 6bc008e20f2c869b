import asyncio
from typing import Final

from dra_extender.allocator.demand.demand import Demand
from dra_extender.allocator.state.result import SearchPaused
from dra_extender.ledger.ledger import Ledger
from dra_extender.scheduling.evaluation.evaluator import NodeEvaluator
from dra_extender.scheduling.ports.cluster import Clock
from dra_extender.scheduling.search_time.time_slices import CallBudget

_AT_ONCE: Final = 2
_AT_MOST: Final = 64
_SECONDS: Final = 0.004


class Prefetch:
    """Between two calls, asks about the nodes that changed, so that the next replica of the same pod need not wait for searches.

    It fills the memory of `NodeEvaluator` and nothing else, in steps of a few searches between which everything else goes on, only
    for the question that was asked last, and not where searches take long.  It begins when a call is answered, and again whenever
    a hold ends, as it does in each bind.
    """

    def __init__(self, evaluator: NodeEvaluator, ledger: Ledger, clock: Clock, max_feasible: int) -> None:
        self._evaluator = evaluator
        self._ledger = ledger
        self._clock = clock
        self._max_feasible = max_feasible
        self._turn = 0
        self._demand: Demand | None = None
        self._waits = False

    def follow(self, demand: Demand) -> None:
        """This was asked just now; begin when the call is answered."""
        self._demand = demand
        self._begin()

    def _begin(self) -> None:
        self._turn += 1
        asyncio.get_running_loop().call_soon(self._step, self._turn, _AT_MOST)

    def _step(self, turn: int, left: int) -> None:
        if turn != self._turn or self._demand is None:
            return
        budget = CallBudget(self._clock, _SECONDS)
        budget.open_slice(_SECONDS)
        try:
            more = self._evaluator.prefetch(self._demand, _AT_ONCE, self._max_feasible, budget)
        except SearchPaused:
            more = False
        if more and left > _AT_ONCE:
            asyncio.get_running_loop().call_soon(self._step, turn, left - _AT_ONCE)
        elif not self._waits:
            self._waits = True
            ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            ended.add_done_callback(lambda _: self._again())
            self._ledger.holds.changed.join(ended)

    def _again(self) -> None:
        self._waits = False
        self._begin()
