"""Mode All: which devices a request means on a node, found before the search starts."""

from collections.abc import Mapping

from app.allocator.demand import ALL, Demand, RequestDemand, Wanted
from app.allocator.eligibility import UNSELECTABLE, Eligibility, Standing
from app.allocator.node_facts import NodeFacts
from app.allocator.outcome import Fatal
from app.allocator.requests import MAX_RESULTS
from app.model.rejection import Code, Rejection

Gathered = Mapping[tuple[int, int, int], tuple[int, ...]]
"""(claim, request, option) -> locations of every device that a request with mode All means."""


def gather_all(demand: Demand, facts: NodeFacts) -> Gathered:
    """The devices of every request with mode All, and the check of the sizes that follow from them.

    Whether a device is taken, tainted or blocked does not matter here: mode All means every device or nothing.

    Raises:
        Fatal: a pool is incomplete or invalid, a selector fails, or a claim needs more devices than it may have.
    """
    gathered: dict[tuple[int, int, int], tuple[int, ...]] = {}
    for claim, wish in enumerate(demand.claims):
        if not wish.uses_all:
            continue
        least = 0
        for request, each in enumerate(wish.requests):
            for option, wanted in enumerate(each.options):
                if wanted.count == ALL:
                    gathered[claim, request, option] = _every(wanted, wish.label, facts)
            least += _least(each, claim, request, gathered)
        if least > MAX_RESULTS:
            detail = f"needs {least} devices on this node, a claim may have {MAX_RESULTS}"
            raise Fatal(Rejection(code=Code.TOO_MANY_DEVICES, claim=wish.label, detail=detail))
    return gathered


def _every(wanted: Wanted, label: str, facts: NodeFacts) -> tuple[int, ...]:
    for pool in facts.pools.troubled:
        if pool.problem is not None:
            rejection = Rejection(code=pool.problem, claim=label, request=wanted.name, detail=pool.detail)
            raise Fatal(rejection, facts.rules.all_beside_broken_pools)
    eligibility = Eligibility(wanted, label, facts)
    left_out = UNSELECTABLE if facts.rules.all_needs_used_up_devices else UNSELECTABLE | {Standing.EXHAUSTED}
    return tuple(location for location in range(len(facts.pools.devices)) if eligibility.of(location) not in left_out)


def _least(wish: RequestDemand, claim: int, request: int, gathered: Gathered) -> int:
    return min(
        len(gathered[claim, request, option]) if wanted.count == ALL else wanted.count
        for option, wanted in enumerate(wish.options)
    )
