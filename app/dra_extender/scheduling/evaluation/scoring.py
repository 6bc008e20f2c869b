"""Rates the nodes that fit.

Four terms count, each as a share of the best node's:

* alternatives: how early the chosen alternatives of `firstAvailable` requests are in their lists, as upstream's DynamicResources
  plugin scores;
* readiness: whether all devices are ready, without binding conditions to wait for (KEP-5007);
* alignment: how many of the attributes in which its devices should agree (soft alignment) they do;
* packing: where losses are known (`scheduling.placement` is `preserve`), the rank of the node by what the placement costs the
  expected demand: half for the second, a third for the third and so on.  Otherwise how many of the counter sets that the pod draws
  on are in use already.  A partition beside other partitions keeps the remaining devices whole.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from dra_extender.allocator.demand.alignment import meets
from dra_extender.allocator.demand.constraints import Constraint, lookup
from dra_extender.allocator.demand.demand import ClaimDemand, Demand
from dra_extender.allocator.state.usage import Usage
from dra_extender.cel.device import Attribute
from dra_extender.ledger.slices import SliceIndex
from dra_extender.model.allocation import DeviceResult, Placement, ScoreTerms
from dra_extender.model.device import Device, PoolId
from dra_extender.scheduling.ports.options import Options

BEST: Final = 10.0
NO_TERMS: Final = ScoreTerms()
_FIRST_ALTERNATIVE: Final = 8


def has_alternatives(demand: Demand) -> bool:
    """Return whether nodes may differ in the alternatives that they offer."""
    return any(request.prioritized for claim in demand.claims for request in claim.requests)


class PlacedClaim(NamedTuple):
    """What a score term may read of a claim's placement: equal on all nodes of an equivalence class, which share the terms.

    `alternatives`: of each `firstAvailable` request, the names of its alternatives in order.  `chosen`: the requests and
    alternatives that got a device.  `waits`: some device has binding conditions.  `counter_sets`: of each pool that the placement
    draws on, the counter sets that it draws on, and those that are in use already.  `preferences`: of each attribute in which the
    devices should agree, whether they do.
    """

    alternatives: tuple[tuple[str, ...], ...]
    chosen: frozenset[str]
    waits: bool
    counter_sets: tuple[tuple[frozenset[str], frozenset[str]], ...]
    preferences: tuple[bool, ...] = ()

    @property
    def terms(self) -> ScoreTerms:
        """Compute the score terms from nothing but this value."""
        return ScoreTerms(
            alternatives=sum(
                _FIRST_ALTERNATIVE - place
                for names in self.alternatives
                for place, name in enumerate(names)
                if name in self.chosen
            ),
            waits=self.waits,
            counter_sets=sum(len(drawn) for drawn, _ in self.counter_sets),
            joined=sum(len(drawn & in_use) for drawn, in_use in self.counter_sets),
            preferences=len(self.preferences),
            aligned=sum(self.preferences),
        )


def placed_claims(
    demand: Demand, placement: Placement, usage: Usage, slices: SliceIndex, *, packing: bool = True
) -> Iterator[PlacedClaim]:
    """Yield what the score terms of this placement depend on, by claim, without the names of node and pools.

    `packing`: also the counter sets.
    """
    for claim_demand, claim in zip(demand.claims, placement.claims, strict=True):
        results = claim.allocation.devices.results
        drawn: dict[PoolId, set[str]] = {}
        for holding in claim.holdings if packing else ():
            for consumption in () if holding.admin else holding.consumption or ():
                drawn.setdefault(holding.pool_id, set()).add(consumption.counter_set)
        yield PlacedClaim(
            alternatives=tuple(
                tuple(option.name for option in request.options)
                for request in claim_demand.requests
                if request.prioritized
            ),
            chosen=frozenset(result.request for result in results),
            waits=any(result.binding_conditions for result in results),
            counter_sets=tuple(
                (frozenset(sets), _counter_sets_in_use(pool_id, usage, slices)) for pool_id, sets in drawn.items()
            ),
            preferences=tuple(
                meets(*preference_and_values)
                for preference_and_values in preferred_values(claim_demand, results, slices)
            )
            if claim_demand.preferences
            else (),
        )


def preferred_values(
    claim_demand: ClaimDemand, results: Sequence[DeviceResult], slices: SliceIndex
) -> Iterator[tuple[Constraint, tuple[Attribute | None, ...]]]:
    """Yield each preference of a claim with the attributes of its devices that should agree; None: a device has it not."""
    names = {result.device for result in results}
    # A pool may have thousands of devices.
    published = {
        (*pool_id, device.name): device
        for pool_id in {(result.driver, result.pool) for result in results}
        for item in slices.of_pool(pool_id)
        for device in item.devices
        if device.name in names
    }
    for preference in claim_demand.preferences:
        devices = (
            (result.driver, published.get(result.device_id))
            for result in results
            if preference.applies_to(result.request.partition("/")[0], result.request)
        )
        yield (
            preference,
            tuple(
                None if device is None else lookup(preference.attribute, driver, device) for driver, device in devices
            ),
        )


def ratings(score_terms: Mapping[str, ScoreTerms], options: Options) -> dict[str, float]:
    """Return by node, from 0 to 10, the weighted mean of the terms that some node has; 0 for all nodes if there is none."""
    most_alternatives = max((terms.alternatives for terms in score_terms.values()), default=0)
    waiting = any(terms.waits for terms in score_terms.values())
    packed = _packed(score_terms)
    by_alternatives = options.alternatives_weight if most_alternatives else 0
    by_readiness = options.readiness_weight if waiting else 0
    by_packing = options.packing_weight if packed else 0
    by_alignment = options.alignment_weight if any(terms.preferences for terms in score_terms.values()) else 0
    total = by_alternatives + by_readiness + by_packing + by_alignment
    if not total:
        return dict.fromkeys(score_terms, 0.0)
    return {
        name: BEST
        * (
            by_alternatives * (terms.alternatives / most_alternatives if most_alternatives else 0)
            + by_readiness * (not terms.waits)
            + by_packing * packed.get(name, 0.0)
            + by_alignment * (terms.aligned / terms.preferences if terms.preferences else 0)
        )
        / total
        for name, terms in score_terms.items()
    }


def _packed(score_terms: Mapping[str, ScoreTerms]) -> Mapping[str, float]:
    """Return by node how well the placement is packed, from 0 to 1; empty if no node differs in that."""
    losses = {name: terms.loss for name, terms in score_terms.items() if terms.loss is not None}
    if losses:
        ranks = {loss: 1 + rank for rank, loss in enumerate(sorted(set(losses.values())))}
        return {name: 1 / ranks[loss] for name, loss in losses.items()} if len(ranks) > 1 else {}
    return {name: terms.joined / terms.counter_sets for name, terms in score_terms.items() if terms.counter_sets}


def _counter_sets_in_use(pool_id: PoolId, usage: Usage, slices: SliceIndex) -> frozenset[str]:
    pool_usage = usage.pool(pool_id)
    if not pool_usage:
        return frozenset()
    published: dict[str, Device] = {}
    if any(holding.consumption is None for holdings in pool_usage.values() for holding in holdings):
        published = {device.name: device for item in slices.of_pool(pool_id) for device in item.devices}
    return frozenset(
        consumption.counter_set
        for holdings in pool_usage.values()
        for holding in holdings
        if not holding.admin
        for consumption in holding.drawn(published.get(holding.device))
    )
