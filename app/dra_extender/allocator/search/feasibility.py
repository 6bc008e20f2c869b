"""Feasibility: whether a demand certainly has no solution on a node, asked once by a search with many dead ends.

A search may stop only if it would end without an error.  So only the part of the demand is judged that comes before anything that
may end with one: a selector or a derived attribute that fails on some device of the node, or mode All beside constraints.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from dra_extender.allocator.demand.demand import ALL, ClaimDemand, Demand
from dra_extender.allocator.demand.validate import MAX_RESULTS
from dra_extender.allocator.rules.eligibility import DeviceVerdict
from dra_extender.allocator.rules.node_view import NodeView
from dra_extender.allocator.search.all_mode import AllModeLocations
from dra_extender.allocator.search.pruning_index import FindEligibility, PruningIndex
from dra_extender.allocator.state.result import SearchEndedError

SearchAlone = Callable[[Demand, AllModeLocations], Callable[[], bool]]
"""(demand of one claim, its devices of mode All) -> `Search.solve` of a search of the claim alone."""


class _NodeAnalysis(NamedTuple):
    """The first `error_free_claims` claims of `demand` end without an error; `pruning_index` is None if the time was up."""

    demand: Demand
    error_free_claims: int
    pruning_index: PruningIndex | None


class Feasibility:
    """Judges one demand on one node by bounds, and by the search of each claim alone.

    `pruning_index` may prune the search of the whole demand; None before `is_infeasible`, or if that search may end with an error.
    """

    __slots__ = (
        "_all_mode",
        "_analysis",
        "_demand",
        "_eligibility",
        "_feasible_claims",
        "_node_view",
        "_partial_index",
        "_search_alone",
        "_solve_claim",
        "pruning_index",
    )

    def __init__(
        self,
        demand: Demand,
        node_view: NodeView,
        all_mode: AllModeLocations,
        eligibility: FindEligibility,
        search_alone: SearchAlone,
    ) -> None:
        self._demand = demand
        self._node_view = node_view
        self._all_mode = all_mode
        self._eligibility = eligibility
        self._search_alone = search_alone
        self.pruning_index: PruningIndex | None = None
        # What a further call goes on with after a pause.
        self._partial_index: PruningIndex | None = None
        self._analysis: _NodeAnalysis | None = None
        self._feasible_claims = 0
        self._solve_claim: Callable[[], bool] | None = None

    def is_infeasible(self) -> bool:
        """Analyse the node; return whether the demand certainly has no solution there.

        Raises:
            SearchPaused: the deadline raised it; a further call goes on.
        """
        if self._analysis is None:
            self._analysis = self._analyse_node()
        demand, error_free_claims, index = self._analysis
        return index is not None and (
            index.is_infeasible(error_free_claims)
            or (index.is_monotone and self._has_infeasible_claim(demand, error_free_claims))
        )

    def _analyse_node(self) -> _NodeAnalysis:
        demand = error_free_prefix(self._demand, self._node_view, self._eligibility)
        claims = demand.claims
        error_free_claims = next(
            (number for number, claim in enumerate(claims) if claim.uses_all and claim.constraints), len(claims)
        )
        if self._partial_index is None:
            self._partial_index = PruningIndex(demand, self._node_view, self._all_mode, self._eligibility)
        index = self._partial_index
        try:
            index.find()
        except SearchEndedError:
            return _NodeAnalysis(demand, error_free_claims, None)  # the time is up
        if demand is self._demand and error_free_claims == len(claims):
            self.pruning_index = index
        return _NodeAnalysis(demand, error_free_claims, index)

    def _has_infeasible_claim(self, demand: Demand, error_free_claims: int) -> bool:
        """Return whether one of several claims could not even be allocated if it were the only one.

        Of the claims that may end in an error, only the first one (number `error_free_claims`) is searched: if the search of this
        claim alone ends without an error, a search of all claims does too.
        """
        claims = demand.claims[: error_free_claims + 1] if len(self._demand.claims) > 1 else ()
        for number, claim in enumerate(claims[self._feasible_claims :], self._feasible_claims):
            if number < error_free_claims or self._never_exceeds_max_results(number, claim):
                if self._solve_claim is None:
                    all_mode = {(0, *key[1:]): devices for key, devices in self._all_mode.items() if key[0] == number}
                    self._solve_claim = self._search_alone(replace(demand, claims=(claim,)), all_mode)
                try:
                    if not self._solve_claim():
                        return True
                except SearchEndedError:
                    pass  # a solution cannot be ruled out
            self._feasible_claims, self._solve_claim = number + 1, None
        return False

    def _never_exceeds_max_results(self, number: int, claim: ClaimDemand) -> bool:
        """Return whether the claim of this number stays within MAX_RESULTS devices, whichever alternatives are chosen."""
        most = 0
        for request, requested in enumerate(claim.requests):
            most += max(
                len(self._all_mode.get((number, request, option), ())) if wanted.count == ALL else wanted.count
                for option, wanted in enumerate(requested.options)
            )
        return most <= MAX_RESULTS


def error_free_prefix(demand: Demand, node_view: NodeView, eligibility: FindEligibility) -> Demand:
    """Return the claims and requests before the first that has an expression that fails on some device of the node."""
    claims: list[ClaimDemand] = []
    for number, claim in enumerate(demand.claims):
        for request, requested in enumerate(claim.requests):
            try:
                for option, wanted in enumerate(requested.options):
                    verdicts = eligibility(number, request, option, wanted).verdicts()
                    compared = {claim.constraints[index].attribute for index in wanted.constraints}
                    for name in compared & set(wanted.derived):
                        for location, verdict in enumerate(verdicts):
                            if verdict == DeviceVerdict.ELIGIBLE:
                                node_view.attribute(wanted, name, location)
            except SearchEndedError:
                if request:
                    claims.append(replace(claim, requests=claim.requests[:request]))
                return replace(demand, claims=tuple(claims))
        claims.append(claim)
    return demand
