"""Feasibility: whether a demand certainly has no solution on a node, asked once by a search with many dead ends.

A search may stop only if it would end without an error.  So only the part of the demand is judged that comes before anything that
may end with one: a selector or a derived attribute that fails on some device of the node, or mode All beside constraints.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

from dra_extender.allocator.demand.build import MAX_RESULTS
from dra_extender.allocator.demand.demand import ALL, ClaimDemand, Demand, SearchableRequest
from dra_extender.allocator.pools.pools import Pool
from dra_extender.allocator.rules.capacity import CapacityMismatch
from dra_extender.allocator.rules.eligibility import DeviceVerdict
from dra_extender.allocator.rules.node_view import NodeView
from dra_extender.allocator.search.all_mode import AllModeLocations, OptionKey
from dra_extender.allocator.search.pruning import FindEligibility, Mask, PruningIndex, locations, mask_of
from dra_extender.allocator.search_state import PoolTables
from dra_extender.allocator.state.reasons import SearchEndedError
from dra_extender.model.device import CounterConsumption

SearchAlone = Callable[[Demand, AllModeLocations], Callable[[], bool]]
"""(demand of one claim, its devices of mode All) -> `Search.solve` of a search of the claim alone."""

DeviceNeed = tuple[int, Mask]
"""(devices that a request needs at least, devices that could serve it)."""


class _NodeAnalysis(NamedTuple):
    """The first `error_free_claims` claims of `demand` end without an error; `pruning_index` is None if the time was up."""

    demand: Demand
    error_free_claims: int
    pruning_index: PruningIndex | None


class Feasibility:
    """Judges one demand on one node by bounds, and by the search of each claim alone.

    `pruning_index` may prune the search of the whole demand; None before `is_infeasible`, or if that search may end with an error.
    """

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
        self._bounds = Bounds(node_view)
        self.pruning_index: PruningIndex | None = None
        # What a further call goes on with after a pause.
        self._partial_index: PruningIndex | None = None
        self._analysis: _NodeAnalysis | None = None
        self._feasible_claims = 0
        self._solve_claim: Callable[[], bool] | None = None

    def is_infeasible(self) -> bool:
        """Analyse the node; return whether the demand certainly has no solution there."""
        if self._analysis is None:
            self._analysis = self._analyse_node()
        demand, error_free_claims, index = self._analysis
        if index is None:
            return False
        return self._exceeds_bounds(demand.claims[:error_free_claims], index) or (
            self._is_monotone(index) and self._has_infeasible_claim(demand, error_free_claims)
        )

    def _analyse_node(self) -> _NodeAnalysis:
        demand = error_free_prefix(self._demand, self._node_view, self._eligibility)
        claims = demand.claims
        error_free_claims = next(
            (number for number, claim in enumerate(claims) if claim.uses_all and claim.constraints), len(claims)
        )
        if self._partial_index is None:
            self._partial_index = PruningIndex(demand, self._node_view, self._eligibility)
        index = self._partial_index
        try:
            index.find()
        except SearchEndedError:
            return _NodeAnalysis(demand, error_free_claims, None)  # the time is up
        if demand is self._demand and error_free_claims == len(claims):
            self.pruning_index = index
        return _NodeAnalysis(demand, error_free_claims, index)

    def _exceeds_bounds(self, claims: Sequence[ClaimDemand], index: PruningIndex) -> bool:
        """Return whether these claims certainly have no solution, whatever the search picks."""
        sharing = self._node_view.sharing
        shareable = mask_of(sharing.is_shareable(location) for location in range(len(self._node_view.pools.devices)))
        exclusive: list[DeviceNeed] = []
        for claim, claim_demand in enumerate(claims):
            for request, requested in enumerate(claim_demand.requests):
                # The fewest devices over the options that are possible by themselves.
                counts: list[int] = []
                union = 0
                for option_index, option in enumerate(requested.options):
                    mask = index.masks[claim, request, option_index]
                    count = self._possible_count((claim, request, option_index), option, mask)
                    if count is not None:
                        counts.append(count)
                        union |= mask
                if not counts:
                    return True
                if not union & shareable and not any(option.admin for option in requested.options):
                    exclusive.append((min(counts), union))
        return self._bounds.are_exceeded_by(exclusive)

    def _possible_count(self, key: OptionKey, option: SearchableRequest, candidates: Mask) -> int | None:
        """Return how many devices an option needs; None if it cannot have them even by itself."""
        count = option.count
        if count == ALL:
            selected = self._all_mode.get(key, ())
            if not selected or any(not candidates >> location & 1 for location in selected):
                return None
            count = len(selected)
        return count if self._bounds.upper_bound(candidates, admin=option.admin) >= count else None

    def _is_monotone(self, index: PruningIndex) -> bool:
        """Return whether a pick never frees what other picks need: no device draws, and no request asks for, a negative amount."""
        for device in self._node_view.pools.devices:
            if any(amount < 0 for entry in device.consumes_counters for _, amount in entry.counters):
                return False
        for key, option in index.options():
            for location in locations(index.masks[key]):
                needs = self._node_view.sharing.needs(option, location)
                if not isinstance(needs, CapacityMismatch) and any(amount < 0 for amount in needs):
                    return False
        return True

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
        devices = 0
        for request, requested in enumerate(claim.requests):
            devices += max(
                len(self._all_mode.get((number, request, option_index), ())) if option.count == ALL else option.count
                for option_index, option in enumerate(requested.options)
            )
        return devices <= MAX_RESULTS


def error_free_prefix(demand: Demand, node_view: NodeView, eligibility: FindEligibility) -> Demand:
    """Return the claims and requests before the first that has an expression that fails on some device of the node."""
    claims: list[ClaimDemand] = []
    for number, claim in enumerate(demand.claims):
        for request, requested in enumerate(claim.requests):
            try:
                for option_index, option in enumerate(requested.options):
                    verdicts = eligibility(number, request, option_index, option).verdicts()
                    compared = {claim.constraints[index].attribute for index in option.constraints}
                    for name in compared & set(option.derived):
                        for location, verdict in enumerate(verdicts):
                            if verdict == DeviceVerdict.ELIGIBLE:
                                node_view.attribute(option, name, location)
            except SearchEndedError:
                if request:
                    claims.append(replace(claim, requests=claim.requests[:request]))
                return replace(demand, claims=tuple(claims))
        claims.append(claim)
    return demand


class Bounds:
    """Upper bounds on one node from what is held there: how many of a set of devices can be allocated together, never too low."""

    def __init__(self, node_view: NodeView) -> None:
        self._node_view = node_view
        self._tables: dict[int, PoolTables] = {}
        self._bounds: dict[tuple[Mask, bool], int] = {}

    def are_exceeded_by(self, needs: Sequence[DeviceNeed]) -> bool:
        """Return whether some of these requests, all of whose devices are in one set, need more devices than the set can give.

        No device may serve two of the requests.
        """
        return any(
            sum(count for count, mask in needs if mask | outer == outer) > self.upper_bound(outer)
            for outer in {mask for _, mask in needs}
        )

    def upper_bound(self, mask: Mask, *, admin: bool = False) -> int:
        """Return how many of these devices can be allocated together at most, by shared counters and compatibility groups.

        With admin access only counters are looked at.
        """
        bound = self._bounds.get((mask, admin))
        if bound is None:
            pools, sharing = self._node_view.pools, self._node_view.sharing
            self._node_view.poll_deadline(len(pools.devices))
            bound = 0
            by_set: dict[tuple[int, str], tuple[Pool, list[CounterConsumption]]] = {}
            for location in locations(mask):
                consumption = pools.devices[location].consumes_counters
                if not consumption or (sharing.is_shareable(location) and sharing.is_shared(location)):
                    bound += 1
                    continue
                # A device counts in the first of its sets only: the bound may get higher, never lower.
                pool, first = pools.views[location].pool, consumption[0]
                by_set.setdefault((id(pool), first.counter_set), (pool, []))[1].append(first)
            bound += sum(self._bound_of_set(pool, entries, admin=admin) for pool, entries in by_set.values())
            self._bounds[mask, admin] = bound
        return bound

    def _bound_of_set(self, pool: Pool, entries: Sequence[CounterConsumption], *, admin: bool) -> int:
        tables = self._tables.get(id(pool))
        if tables is None:
            tables = self._tables[id(pool)] = PoolTables(pool, self._node_view)
        if admin or not self._node_view.features.compatibility_groups:
            return tables.counters.most_that_fit(entries)
        # Devices on one set all have no groups, or all have one group in common.
        admitted = [entry for entry in entries if tables.groups.conflict((entry,)) is None]
        compatible = [[entry for entry in admitted if not entry.compatibility_groups]]
        compatible += [
            [entry for entry in admitted if group in entry.compatibility_groups]
            for group in {group for entry in admitted for group in entry.compatibility_groups}
        ]
        return max(tables.counters.most_that_fit(entries) for entries in compatible)
