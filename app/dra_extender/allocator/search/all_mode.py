"""Mode All: which devices a request means on a node, found before the search starts."""

from collections.abc import Mapping

from dra_extender.allocator.demand.demand import ALL, Demand, RequestDemand, SearchableRequest
from dra_extender.allocator.demand.validate import MAX_RESULTS
from dra_extender.allocator.rules.eligibility import UNSELECTABLE, DeviceVerdict, Eligibility
from dra_extender.allocator.rules.node_view import NodeView
from dra_extender.allocator.state.result import SearchEndedError
from dra_extender.model.rejection import Code, Rejection

AllModeLocations = Mapping[tuple[int, int, int], tuple[int, ...]]
"""(claim, request, option) -> locations of every device that a request with mode All means."""


class AllModeDevices:
    """The devices of every request with mode All, and the check of the sizes that follow from them.

    Whether a device is taken, tainted or blocked does not matter here: mode All means every device or nothing.
    """

    __slots__ = ("_demand", "_eligibility", "_found", "_node_view")

    def __init__(self, demand: Demand, node_view: NodeView) -> None:
        """Nothing is known yet."""
        self._demand = demand
        self._node_view = node_view
        self._found: dict[tuple[int, int, int], tuple[int, ...]] = {}
        self._eligibility: Eligibility | None = None

    def run(self) -> AllModeLocations:
        """Find them.

        Raises:
            SearchEndedError: a pool is incomplete or invalid, a selector fails, the time is up, or a claim needs more devices
                than it may have.
            SearchPaused: the deadline raised it; a further `run` goes on.
        """
        for claim, wish in enumerate(self._demand.claims):
            if not wish.uses_all:
                continue
            least = 0
            for request, each in enumerate(wish.requests):
                for option, wanted in enumerate(each.options):
                    if wanted.count == ALL and (claim, request, option) not in self._found:
                        self._found[claim, request, option] = self._find_all(wanted, wish.label)
                least += _least(each, claim, request, self._found)
            if least > MAX_RESULTS:
                detail = f"needs {least} devices on this node, a claim may have {MAX_RESULTS}"
                raise SearchEndedError(Rejection(code=Code.TOO_MANY_DEVICES, claim=wish.label, detail=detail))
        return self._found

    def _find_all(self, wanted: SearchableRequest, label: str) -> tuple[int, ...]:
        node_view = self._node_view
        for pool in node_view.pools.unusable:
            if pool.problem is not None:
                rejection = Rejection(code=pool.problem, claim=label, request=wanted.name, detail=pool.detail)
                raise SearchEndedError(rejection, node_view.rules.all_beside_broken_pools)
        if self._eligibility is None:
            self._eligibility = Eligibility(wanted, label, node_view)
            node_view.poll_deadline(len(node_view.pools.devices))
        verdicts = self._eligibility.all()
        left_out = (
            UNSELECTABLE if node_view.rules.all_needs_used_up_devices else UNSELECTABLE | {DeviceVerdict.EXHAUSTED}
        )
        found = tuple([location for location, verdict in enumerate(verdicts) if verdict not in left_out])
        self._eligibility = None
        return found


def _least(wish: RequestDemand, claim: int, request: int, all_mode: AllModeLocations) -> int:
    return min(
        len(all_mode[claim, request, option]) if wanted.count == ALL else wanted.count
        for option, wanted in enumerate(wish.options)
    )
