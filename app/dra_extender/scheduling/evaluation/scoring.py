"""Rates the nodes that fit.

Three terms count, each as a share of the best node's:

* alternatives: how early the chosen alternatives of `firstAvailable` requests are in their lists, as upstream's DynamicResources
  plugin scores;
* readiness: whether all devices are ready, without binding conditions to wait for (KEP-5007);
* packing: how many of the counter sets that the pod draws on are in use already.  A partition beside other partitions keeps the
  remaining devices whole.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from dra_extender.allocator.demand.demand import Demand
from dra_extender.allocator.state.usage import Usage
from dra_extender.ledger.index.slices import SliceIndex
from dra_extender.model.allocation import ClaimPlacement, Placement, ScoreTerms
from dra_extender.model.device import Device, PoolId
from dra_extender.scheduling.ports.options import Weights

BEST: Final = 10.0
_FIRST_ALTERNATIVE: Final = 8


def has_alternatives(demand: Demand) -> bool:
    """Whether nodes may differ in the alternatives that they offer."""
    return any(request.prioritized for claim in demand.claims for request in claim.requests)


def score_terms_of(demand: Demand, placement: Placement, usage: Usage, slices: SliceIndex) -> tuple[ScoreTerms, ...]:
    """The score terms of this placement under this usage, by claim; empty if no claim has any."""
    score_terms = tuple(
        ScoreTerms(
            alternatives=_alternatives(demand, index, claim),
            waits=any(each.binding_conditions for each in claim.allocation.devices.results),
            counter_sets=sum(map(len, wanted.values())),
            joined=sum(len(sets & _drawn(pool_id, usage, slices)) for pool_id, sets in wanted.items()),
        )
        for index, claim in enumerate(placement.claims)
        for wanted in (_counter_sets(claim),)
    )
    return score_terms if any(score_terms) else ()


def ratings(score_terms: Mapping[str, ScoreTerms], weights: Weights) -> dict[str, float]:
    """By node, 0 to 10: the weighted mean of the terms that some node has; 0 for all nodes if there is none."""
    most = max((each.alternatives for each in score_terms.values()), default=0)
    waiting = any(each.waits for each in score_terms.values())
    packing = any(each.counter_sets for each in score_terms.values())
    by_alternatives = weights.alternatives if most else 0
    by_readiness = weights.readiness if waiting else 0
    by_packing = weights.packing if packing else 0
    total = by_alternatives + by_readiness + by_packing
    if not total:
        return dict.fromkeys(score_terms, 0.0)
    return {
        name: BEST
        * (
            by_alternatives * (each.alternatives / most if most else 0)
            + by_readiness * (not each.waits)
            + by_packing * (each.joined / each.counter_sets if each.counter_sets else 0)
        )
        / total
        for name, each in score_terms.items()
    }


def total(score_terms: Iterable[ScoreTerms]) -> ScoreTerms:
    """The sum of these score terms."""
    return sum(score_terms, ScoreTerms())


def _alternatives(demand: Demand, index: int, claim: ClaimPlacement) -> int:
    """The sum of 8 - index over the alternatives that got a device."""
    requests = demand.claims[index].requests
    if not any(each.prioritized for each in requests):
        return 0
    chosen = {each.request for each in claim.allocation.devices.results}
    return sum(
        _FIRST_ALTERNATIVE - place
        for request in requests
        if request.prioritized
        for place, option in enumerate(request.options)
        if option.name in chosen
    )


def _counter_sets(claim: ClaimPlacement) -> dict[PoolId, set[str]]:
    wanted: dict[PoolId, set[str]] = {}
    for holding in claim.holdings:
        for consumption in () if holding.admin else holding.consumption or ():
            wanted.setdefault(holding.pool_id, set()).add(consumption.counter_set)
    return wanted


def _drawn(pool_id: PoolId, usage: Usage, slices: SliceIndex) -> set[str]:
    """The counter sets of a pool that are in use."""
    held = usage.pool(pool_id)
    if not held:
        return set()
    published: dict[str, Device] = {}
    if any(each.consumption is None for holdings in held.values() for each in holdings):
        published = {device.name: device for item in slices.of_pool(pool_id) for device in item.devices}
    return {
        consumption.counter_set
        for holdings in held.values()
        for holding in holdings
        if not holding.admin
        for consumption in holding.drawn(published.get(holding.device))
    }
