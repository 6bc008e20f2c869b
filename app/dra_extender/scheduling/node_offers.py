"""Which of the nodes that fit are offered to kube-scheduler, and the holds that keep their devices free until the bind."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import cast

from dra_extender.ledger.holds import Hold
from dra_extender.ledger.ledger import Ledger
from dra_extender.model.allocation import ScoreTerms
from dra_extender.model.pod import Pod
from dra_extender.scheduling.claims.lookup import FoundClaim
from dra_extender.scheduling.evaluation.prefetch import Prefetch
from dra_extender.scheduling.evaluation.result import FilterResult, NodeResult
from dra_extender.scheduling.evaluation.scoring import ratings, total
from dra_extender.scheduling.fairness.hold_fairness import HoldFairness
from dra_extender.scheduling.holds import HoldService, HoldUnit
from dra_extender.scheduling.ports.errors import RetryableError
from dra_extender.scheduling.ports.options import Options


class NodeOffers:
    """Offers the best nodes that fit, and defers the holds on them and the prefetch until the response is sent."""

    def __init__(
        self, ledger: Ledger, fairness: HoldFairness, holds: HoldService, prefetch: Prefetch, options: Options
    ) -> None:
        self._ledger = ledger
        self._fairness = fairness
        self._holds = holds
        self._prefetch = prefetch
        self._options = options

    def hold(self, pod: Pod, result: FilterResult) -> Sequence[str]:
        """Select the best nodes and hold there what the pod would get.  The holds of a gang member are placed already.

        Raises:
            RetryableError: the pod may be offered none at present, because pods of other namespaces wait.
        """
        if result.assigned_node is not None:
            return (result.assigned_node,)
        for claim in result.held:
            self._holds.extend(claim.record.claim.metadata.uid, pod.uid)
        if not result.open:
            return tuple(result.fits)
        fits, without_holds = _by_holds(result.fits)
        try:
            offered = self._best(pod, fits, result.held)
        except RetryableError:
            if not without_holds:
                raise
            offered = {}
        unit = self._holds.unit(pod.namespace, pod.uid)
        self._holds.defer(lambda: self._place(unit, result.open, offered))
        if result.demand is not None:
            asyncio.get_running_loop().call_soon(self._prefetch.start, result.demand)
        return (*without_holds, *offered)

    def _best(
        self, pod: Pod, fits: Mapping[str, NodeResult], held_claims: Sequence[FoundClaim]
    ) -> dict[str, NodeResult]:
        """The nodes with the highest ratings; among equals those that were evaluated first.

        Raises:
            RetryableError: the pod may be offered none at present, because pods of other namespaces wait.
        """
        names, count = list(fits), self._options.offered_nodes
        if len(names) > count:
            held = [hold for each in held_claims if (hold := self._ledger.holds.get(each.record.claim.metadata.uid))]
            score_terms = {
                name: total((*node_result.score_terms, *_terms_on(name, held))) for name, node_result in fits.items()
            }
            rated = ratings(score_terms, self._options.weights)
            names.sort(key=rated.__getitem__, reverse=True)
        fairness = self._fairness
        offered = fairness.select(pod, names, fits, count) if fairness.shares.waiting else names[:count]
        return {name: fits[name] for name in offered}

    def _place(self, unit: HoldUnit, claims: Sequence[FoundClaim], offered: Mapping[str, NodeResult]) -> None:
        """Hold for each claim what it would get on the offered nodes; some nodes need no claim for extended resources."""
        if offered:
            self._fairness.shares.offered(unit.uid)
        on_nodes = {name: () if (found := each.placement) is None else found.claims for name, each in offered.items()}
        for index, claim in enumerate(claims):
            placements = {
                name: self._holds.with_own_shares(of_claims[index])
                for name, of_claims in on_nodes.items()
                if index < len(of_claims)
            }
            if placements:
                self._holds.place(
                    unit,
                    claim.record.claim.metadata.uid,
                    (unit.uid,),
                    placements,
                    versions={name: offered[name].state for name in placements},
                    score_terms={
                        name: offered[name].score_terms[index] for name in placements if offered[name].score_terms
                    },
                )


def _by_holds(fits: Mapping[str, NodeResult | None]) -> tuple[Mapping[str, NodeResult], Sequence[str]]:
    """The nodes where something has to be held, with its result, and those where nothing has."""
    if None not in fits.values():
        return cast("Mapping[str, NodeResult]", fits), ()
    with_holds = {name: each for name, each in fits.items() if each is not None}
    return with_holds, [name for name in fits if name not in with_holds]


def _terms_on(node: str, holds: Sequence[Hold]) -> Sequence[ScoreTerms]:
    return [hold.score_terms[node] for hold in holds if node in hold.score_terms]
