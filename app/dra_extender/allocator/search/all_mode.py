"""Mode All: the devices that a request selects on a node, found before the search starts."""

from collections.abc import Mapping

from dra_extender.allocator.demand.demand import ALL, ClaimDemand, Demand, RequestDemand, SearchableRequest
from dra_extender.allocator.demand.validate import MAX_RESULTS
from dra_extender.allocator.explain.shortfall import may_serve
from dra_extender.allocator.rules.eligibility import UNSELECTABLE, DeviceVerdict, Eligibility
from dra_extender.allocator.rules.node_view import NodeView
from dra_extender.allocator.state.rejection import Code, Rejection
from dra_extender.allocator.state.result import SearchEndedError

Option = tuple[int, int, int]
"""(claim, request, option of the request), all numbers."""

AllModeLocations = Mapping[Option, tuple[int, ...]]
"""The locations of every device that an option with mode All selects."""


class AllModeDevices:
    """Finds the devices of every request with mode All, and checks that no claim gets too many.

    A device that is taken, tainted or blocked is among them: mode All allocates every device or none.
    """

    __slots__ = ("_demand", "_eligibility", "_found", "_node_view")

    def __init__(self, demand: Demand, node_view: NodeView) -> None:
        """Nothing is known yet."""
        self._demand = demand
        self._node_view = node_view
        self._found: dict[Option, tuple[int, ...]] = {}
        self._eligibility: Eligibility | None = None

    def run(self) -> AllModeLocations:
        """The devices of all requests with mode All.

        Raises:
            SearchEndedError: a pool is incomplete or invalid, a selector fails, the time is up, or a claim needs more devices
                than it may have.
            SearchPaused: the deadline raised it; a further `run` goes on.
        """
        for number, claim in enumerate(self._demand.claims):
            if claim.uses_all:
                self._find_claim(number, claim)
        return self._found

    def _find_claim(self, number: int, claim: ClaimDemand) -> None:
        least = 0
        for request, requested in enumerate(claim.requests):
            for option, wanted in enumerate(requested.options):
                if wanted.count == ALL and (number, request, option) not in self._found:
                    self._found[number, request, option] = self._find(wanted, claim.label)
            least += self._least(requested, number, request)
        if least > MAX_RESULTS:
            detail = f"needs {least} devices on this node, a claim may have {MAX_RESULTS}"
            raise SearchEndedError(Rejection(code=Code.TOO_MANY_DEVICES, claim=claim.label, detail=detail))

    def _find(self, wanted: SearchableRequest, label: str) -> tuple[int, ...]:
        node_view = self._node_view
        broken = [(pool.problem, pool.detail, pool.withheld) for pool in node_view.pools.unusable if pool.problem]
        if broken:
            serving = [each for each in broken if may_serve(each[0], each[2], wanted, node_view.deadline)]
            unmatched = None if serving else self._without_devices(wanted, label)
            code, detail = unmatched or (serving or broken)[0][:2]
            rejection = Rejection(code=code, claim=label, request=wanted.name, detail=detail)
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

    def _without_devices(self, wanted: SearchableRequest, label: str) -> tuple[Code, str] | None:
        """Return NO_MATCH with a detail if the request selects no device of the node; None if it selects any."""
        devices = self._node_view.pools.devices
        eligibility = Eligibility(wanted, label, self._node_view)
        if any(verdict not in UNSELECTABLE for verdict in eligibility.all()):
            return None
        return Code.NO_MATCH, f"none of {len(devices)} devices is selected" if devices else ""

    def _least(self, requested: RequestDemand, claim: int, request: int) -> int:
        """The devices of the smallest option."""
        return min(
            len(self._found[claim, request, option]) if wanted.count == ALL else wanted.count
            for option, wanted in enumerate(requested.options)
        )
