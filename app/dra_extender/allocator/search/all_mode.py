"""Mode All: the devices that a request selects on a node, found before the search starts."""

from collections.abc import Mapping

from dra_extender.allocator.demand.build import MAX_RESULTS
from dra_extender.allocator.demand.demand import ALL, Demand, SearchableRequest
from dra_extender.allocator.explain.shortfall import may_serve
from dra_extender.allocator.rules.eligibility import UNSELECTABLE, Eligibility
from dra_extender.allocator.rules.node_view import NodeView
from dra_extender.allocator.state.reasons import Code, Rejection, SearchEndedError

OptionKey = tuple[int, int, int]
"""(claim, request, option of the request), as indexes."""

AllModeLocations = Mapping[OptionKey, tuple[int, ...]]
"""The locations of every device that an option with mode All selects."""


class AllModeDevices:
    """Finds the devices of every request with mode All, and checks that no claim gets too many.

    A device that is taken, tainted or blocked is among them: mode All allocates every device or none.
    """

    def __init__(self, demand: Demand, node_view: NodeView) -> None:
        self._demand = demand
        self._node_view = node_view
        self._locations: dict[OptionKey, tuple[int, ...]] = {}
        # The verdicts for the option that is looked at, to go on with after a pause.
        self._eligibility: Eligibility | None = None

    def find(self) -> AllModeLocations:
        """Return the devices of all requests with mode All.

        The search ends if a pool is incomplete or invalid, or a claim needs more devices than it may have.
        """
        for number, claim in enumerate(self._demand.claims):
            least = 0
            for request, requested in enumerate(claim.requests if claim.uses_all else ()):
                counts: list[int] = []
                for option_index, option in enumerate(requested.options):
                    key = (number, request, option_index)
                    if option.count == ALL and key not in self._locations:
                        self._locations[key] = self._find_selected(option, claim.label)
                    counts.append(len(self._locations[key]) if option.count == ALL else option.count)
                least += min(counts)
            if least > MAX_RESULTS:
                detail = f"needs {least} devices on this node, a claim may have {MAX_RESULTS}"
                raise SearchEndedError(Rejection(code=Code.TOO_MANY_DEVICES, claim=claim.label, detail=detail))
        return self._locations

    def _find_selected(self, option: SearchableRequest, label: str) -> tuple[int, ...]:
        node_view = self._node_view
        broken = [(pool.problem, pool.detail, pool.withheld) for pool in node_view.pools.unusable if pool.problem]
        if broken:
            serving = [
                (problem, detail)
                for problem, detail, withheld in broken
                if may_serve(problem, withheld, option, node_view.deadline)
            ]
            code, detail = serving[0] if serving else broken[0][:2]
            if not serving and all(
                verdict in UNSELECTABLE for verdict in Eligibility(option, label, node_view).verdicts()
            ):
                devices = len(node_view.pools.devices)
                code, detail = Code.NO_MATCH, f"none of {devices} devices is selected" if devices else ""
            rejection = Rejection(code=code, claim=label, request=option.name, detail=detail)
            raise SearchEndedError(rejection)
        if self._eligibility is None:
            self._eligibility = Eligibility(option, label, node_view)
            node_view.poll_deadline(len(node_view.pools.devices))
        verdicts = self._eligibility.verdicts()
        self._eligibility = None
        return tuple([location for location, verdict in enumerate(verdicts) if verdict not in UNSELECTABLE])
