"""The search that prefers devices which are ready, and keeps to upstream's order wherever the preference does not decide.

The preference never costs a solution: what is found with it counts, and so does that there is none; a search that ends at a limit
or with an error is made again in upstream's order, with all of its steps.  It never costs a better alternative of a request either.
"""

from typing import Final

from dra_extender.allocator.demand.demand import Demand
from dra_extender.allocator.pools.device_order import DeviceOrder
from dra_extender.allocator.rules.node_view import NodeView
from dra_extender.allocator.search.all_mode import AllModeLocations
from dra_extender.allocator.search.search import Search
from dra_extender.allocator.state.result import SearchEndedError

_MAX_STEPS: Final = 2_000
"""Steps of the search with the preference: what is found at all is nearly always found in as many steps as there are devices."""


class PreferringSearch:
    """One question, tried in this order first; `run` until it returns, then read `search`."""

    __slots__ = ("_all_mode", "_demand", "_max_steps", "_node_view", "_preferred", "_spent", "_undecided", "search")

    def __init__(
        self, demand: Demand, node_view: NodeView, all_mode: AllModeLocations, max_steps: int, order: DeviceOrder
    ) -> None:
        self._demand = demand
        self._node_view = node_view
        self._all_mode = all_mode
        self._max_steps = max_steps
        self._preferred: Search | None = None
        self._spent = 0
        self._undecided = True
        self.search = Search(demand, node_view, all_mode, min(max_steps, _MAX_STEPS), order)

    @property
    def steps(self) -> int:
        """Steps made so far, in both orders."""
        return self._spent + self.search.steps

    def run(self) -> bool:
        """Whether there is a solution, as `Search.run`, whose errors it raises."""
        if self._undecided:
            found = self._run_preferring()
            if found is not None:
                return found
            self._undecided = False
            self._spent, self.search = self.search.steps, self._plain()
        if self._preferred is None:
            return self.search.run()
        return self._compared(self._preferred)

    def _run_preferring(self) -> bool | None:
        """Whether there is a solution; None if that has still to be decided in upstream's order."""
        try:
            found = self.search.run()
        except SearchEndedError:
            return None
        if found and any(self.search.chosen.values()):
            self._preferred = self.search
            return None
        return found

    def _compared(self, preferred: Search) -> bool:
        """Whether the solution with the preference took later alternatives than the one without: then the latter is the one."""
        try:
            better = self.search.run() and _alternatives(self.search) < _alternatives(preferred)
        except SearchEndedError:
            better = False
        if not better:
            self._spent, self.search = self.search.steps, preferred
        return True

    def _plain(self) -> Search:
        return Search(self._demand, self._node_view, self._all_mode, self._max_steps)


def preference(demand: Demand, node_view: NodeView) -> DeviceOrder | None:
    """The order of preference; None where it changes nothing, or would change what is possible."""
    order, features = node_view.pools.ready_first, node_view.features
    if order is None or not node_view.rules.ready_devices_first or not features.device_binding_and_status:
        return None
    # Whether scalar constraints can be met depends on the order of devices.
    return None if demand.constrained and not features.list_type_attributes else order


def _alternatives(search: Search) -> tuple[int, ...]:
    return tuple(index for _, index in sorted(search.chosen.items()))
