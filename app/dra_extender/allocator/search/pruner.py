"""What a search with many dead ends may skip: everything if the demand is infeasible, else states that fail as others did."""

from collections.abc import Hashable
from dataclasses import replace
from typing import Final, NamedTuple

from dra_extender.allocator.demand.demand import ClaimDemand, Demand
from dra_extender.allocator.rules.node_view import NodeView
from dra_extender.allocator.search.all_mode import AllModeLocations
from dra_extender.allocator.search.error_safety import (
    FindEligibility,
    error_free_prefix,
    may_end_in_error,
    never_exceeds_max_results,
)
from dra_extender.allocator.search.pruning import ExactStateIndex, PruningIndex
from dra_extender.allocator.search.search import Search
from dra_extender.allocator.search_state import SearchState
from dra_extender.allocator.state.result import SearchEndedError

_MAX_STEPS_PER_CLAIM: Final = 2_000


class _NodeAnalysis(NamedTuple):
    """The first `error_free_claims` claims of `demand` end without an error; `pruning_index` is None if the time was up."""

    demand: Demand
    error_free_claims: int
    pruning_index: PruningIndex | None


class NodePruner:
    """See `search.Pruner`.

    A search that may end with an error knows again only the very same state (`ExactStateIndex`).  Any other search also skips by
    bounds, by symmetry classes, and by the search of each claim alone (`PruningIndex`).
    """

    __slots__ = (
        "_all_mode",
        "_analysis",
        "_claim_search",
        "_demand",
        "_eligibility",
        "_feasible_claims",
        "_node_view",
        "_partial_index",
        "_state_index",
        "index",
    )

    def __init__(
        self, demand: Demand, node_view: NodeView, all_mode: AllModeLocations, eligibility: FindEligibility
    ) -> None:
        """Nothing is known before `is_infeasible`."""
        self._demand = demand
        self._node_view = node_view
        self._all_mode = all_mode
        self._eligibility = eligibility
        self.index: PruningIndex | None = None
        self._state_index: PruningIndex | ExactStateIndex = ExactStateIndex(demand, len(node_view.pools.devices))
        # What an analysis goes on with after a pause.
        self._partial_index: PruningIndex | None = None
        self._analysis: _NodeAnalysis | None = None
        self._feasible_claims = 0
        self._claim_search: Search | None = None

    def is_infeasible(self) -> bool:
        """See `search.Pruner`."""
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
        error_free_claims = next((number for number, each in enumerate(claims) if may_end_in_error(each)), len(claims))
        if self._partial_index is None:
            self._partial_index = PruningIndex(demand, self._node_view, self._all_mode, self._eligibility)
        index = self._partial_index
        try:
            index.find()
        except SearchEndedError:
            return _NodeAnalysis(demand, error_free_claims, None)  # the time is up
        if demand is self._demand and error_free_claims == len(claims):
            self.index = self._state_index = index
        return _NodeAnalysis(demand, error_free_claims, index)

    def _has_infeasible_claim(self, demand: Demand, error_free_claims: int) -> bool:
        """Whether one of several claims could not even be allocated if it were the only one.

        Of the claims that may end in an error, only the first one (number `error_free_claims`) is searched: if the search of this
        claim alone ends without an error, a search of all claims does too.
        """
        claims = demand.claims[: error_free_claims + 1] if len(self._demand.claims) > 1 else ()
        for number, claim in enumerate(claims[self._feasible_claims :], self._feasible_claims):
            if number < error_free_claims or never_exceeds_max_results(number, claim, self._all_mode):
                if self._claim_search is None:
                    self._claim_search = self._search_of(demand, number, claim)
                if not _may_be_feasible(self._claim_search):
                    return True
            self._feasible_claims, self._claim_search = number + 1, None
        return False

    def _search_of(self, demand: Demand, number: int, claim: ClaimDemand) -> Search:
        """A search of one claim alone."""
        alone = replace(demand, claims=(claim,))
        all_mode = {(0, *key[1:]): found for key, found in self._all_mode.items() if key[0] == number}
        return Search(alone, SearchState(alone, self._node_view), all_mode, NodePruner, _MAX_STEPS_PER_CLAIM)

    def nogood_key(self, state: SearchState, claim: int, request: int) -> Hashable:
        """All that decides whether the requests from this one on can be met, up to interchangeable devices."""
        index = self._state_index
        remaining, symmetry_class = index.remaining_requests(claim, request), index.symmetry_class
        whole = sorted(
            (symmetry_class[location], claims.bit_count(), claims >> claim & 1, state.is_member(location))
            for location, claims in state.picked_devices()
            if remaining.devices >> location & 1
        )
        shared = sorted(
            (symmetry_class[location], total, state.is_member(location))
            for location, total in state.shared_devices()
            if remaining.devices >> location & 1
        )
        states = state.constraint_states(claim)
        binding = tuple(states[constraint] for constraint in remaining.constraints)
        return claim, request, state.size(claim), binding, tuple(whole), tuple(shared)


def _may_be_feasible(search: Search) -> bool:
    """Whether a solution exists, or cannot be ruled out."""
    try:
        return search.run()
    except SearchEndedError:
        return True
