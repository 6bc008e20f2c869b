"""The search that prefers devices that are ready, and keeps to upstream's order wherever the preference does not decide.

The preference never costs a solution: a search in the preferred order that ends at a limit or with an error is repeated in
upstream's order, with all of its steps.  It never costs a better alternative of a request either.
"""

from collections.abc import Callable
from typing import Final

from dra_extender.allocator.demand.demand import Demand
from dra_extender.allocator.pools.pools import DeviceOrder
from dra_extender.allocator.rules.node_view import NodeView
from dra_extender.allocator.search.search import Search
from dra_extender.allocator.state.result import SearchEndedError

NewSearch = Callable[[int, DeviceOrder | None], Search]
"""(limit of steps, order of the devices) -> a search of the demand on the node."""

_MAX_STEPS: Final = 2_000
"""Steps in the preferred order: a search that finds a solution nearly always takes about as many steps as there are devices."""


class PreferringSearch:
    """Searches in the preferred order first; `solve` until it returns, then read `search`."""

    __slots__ = ("_max_steps", "_new_search", "_preferred", "_spent", "_undecided", "search")

    def __init__(self, new_search: NewSearch, max_steps: int, order: DeviceOrder) -> None:
        """`order` is the preferred one."""
        self._new_search = new_search
        self._max_steps = max_steps
        self._preferred: Search | None = None
        self._spent = 0
        self._undecided = True
        self.search = new_search(min(max_steps, _MAX_STEPS), order)

    @property
    def steps(self) -> int:
        """Steps made so far, in both orders."""
        return self._spent + self.search.steps

    def solve(self) -> bool:
        """Return whether there is a solution, as `Search.solve`, whose errors it raises."""
        if self._undecided:
            try:
                solved: bool | None = self.search.solve()
            except SearchEndedError:
                solved = None
            if solved and any(self.search.chosen.values()):
                self._preferred, solved = self.search, None
            if solved is not None:
                return solved
            self._undecided = False
            self._spent, self.search = self.search.steps, self._new_search(self._max_steps, None)
        if self._preferred is None:
            return self.search.solve()
        try:
            better = self.search.solve() and _alternatives(self.search) < _alternatives(self._preferred)
        except SearchEndedError:
            better = False
        if not better:
            self._spent, self.search = self.search.steps, self._preferred
        return True


def _alternatives(search: Search) -> tuple[int, ...]:
    return tuple(index for _, index in sorted(search.chosen.items()))


def preference(demand: Demand, node_view: NodeView) -> DeviceOrder | None:
    """Return the preferred order of the devices; None where it changes nothing, or could change whether there is a solution."""
    order, features = node_view.pools.ready_first, node_view.features
    if order is None or not node_view.rules.ready_devices_first or not features.device_binding_and_status:
        return None
    # Whether scalar constraints can be met depends on the order of devices.
    return None if demand.constrained and not features.list_type_attributes else order
