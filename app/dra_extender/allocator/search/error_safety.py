"""The part of a demand that comes before anything that may end the search with an error.

A search that cannot get past this part ends without an error, so it may stop as soon as this part is known to be infeasible.
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
    for claim, each in enumerate(demand.claims):
        sound = 0
        for request, wish in enumerate(each.requests):
            if _may_fail(each, wish, node_view, partial(eligibility, claim, request)):
                break
            sound += 1
        else:
            claims.append(each)
            continue
        if sound:
            claims.append(replace(each, requests=each.requests[:sound]))
        return replace(demand, claims=tuple(claims))
    return demand


def _may_fail(
    claim: ClaimDemand,
    wish: RequestDemand,
    node_view: NodeView,
    eligibility: Callable[[int, SearchableRequest], Eligibility],
) -> bool:
    try:
        for index, wanted in enumerate(wish.options):
            verdicts = eligibility(index, wanted).all()
            for name in {claim.constraints[number].attribute for number in wanted.constraints} & set(wanted.derived):
                for location, verdict in enumerate(verdicts):
                    if verdict == DeviceVerdict.ELIGIBLE:
                        node_view.attribute(wanted, name, location)
    except SearchEndedError:
        return True
    return False


def may_end_in_error(claim: ClaimDemand) -> bool:
    """Whether a constraint may refuse a device of mode All, which is an error."""
    return claim.uses_all and bool(claim.constraints)


def never_exceeds_max_results(index: int, claim: ClaimDemand, all_mode: AllModeLocations) -> bool:
    """Whether the claim stays within the number of devices that it may have, whichever alternatives are chosen."""
    most = 0
    for request, wish in enumerate(claim.requests):
        most += max(
            len(all_mode.get((index, request, option), ())) if wanted.count == ALL else wanted.count
            for option, wanted in enumerate(wish.options)
        )
    return most <= MAX_RESULTS
