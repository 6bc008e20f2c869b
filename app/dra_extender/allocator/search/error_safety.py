"""Error safety: the part of a demand that comes before anything that may end the search with an error.

A search that cannot get past this part ends without an error, so that it may stop once this part is known to be infeasible.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from dra_extender.allocator.demand.demand import ALL, ClaimDemand, Demand, RequestDemand, SearchableRequest
from dra_extender.allocator.demand.validate import MAX_RESULTS
from dra_extender.allocator.rules.eligibility import DeviceVerdict, Eligibility
from dra_extender.allocator.rules.node_view import NodeView
from dra_extender.allocator.search.all_mode import AllModeLocations
from dra_extender.allocator.state.result import SearchEndedError

FindEligibility = Callable[[int, int, int, SearchableRequest], Eligibility]
"""The eligibility for (claim, request, option, wanted)."""


def error_free_prefix(demand: Demand, node_view: NodeView, eligibility: FindEligibility) -> Demand:
    """The claims and requests before the first that has a selector or a derived attribute that fails on some device of the node."""
    claims: list[ClaimDemand] = []
    for number, claim in enumerate(demand.claims):
        safe = _count_error_free(claim, node_view, partial(eligibility, number))
        if safe < len(claim.requests):
            if safe:
                claims.append(replace(claim, requests=claim.requests[:safe]))
            return replace(demand, claims=tuple(claims))
        claims.append(claim)
    return demand


def _count_error_free(
    claim: ClaimDemand, node_view: NodeView, eligibility: Callable[[int, int, SearchableRequest], Eligibility]
) -> int:
    """How many requests of the claim come before the first that may fail."""
    for request, requested in enumerate(claim.requests):
        if _may_fail(claim, requested, node_view, partial(eligibility, request)):
            return request
    return len(claim.requests)


def _may_fail(
    claim: ClaimDemand,
    requested: RequestDemand,
    node_view: NodeView,
    eligibility: Callable[[int, SearchableRequest], Eligibility],
) -> bool:
    try:
        for option, wanted in enumerate(requested.options):
            verdicts = eligibility(option, wanted).all()
            for name in {claim.constraints[number].attribute for number in wanted.constraints} & set(wanted.derived):
                for location, verdict in enumerate(verdicts):
                    if verdict == DeviceVerdict.ELIGIBLE:
                        node_view.attribute(wanted, name, location)
    except SearchEndedError:
        return True
    return False


def may_end_in_error(claim: ClaimDemand) -> bool:
    """Whether a constraint may exclude a device of mode All, which is an error."""
    return claim.uses_all and bool(claim.constraints)


def never_exceeds_max_results(number: int, claim: ClaimDemand, all_mode: AllModeLocations) -> bool:
    """Whether the claim, the one of this number, stays within MAX_RESULTS devices, whichever alternatives are chosen."""
    most = 0
    for request, requested in enumerate(claim.requests):
        most += max(
            len(all_mode.get((number, request, option), ())) if wanted.count == ALL else wanted.count
            for option, wanted in enumerate(requested.options)
        )
    return most <= MAX_RESULTS
