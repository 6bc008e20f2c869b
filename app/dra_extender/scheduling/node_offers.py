"""The nodes that filter offers to kube-scheduler, with holds on them."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from dra_extender.ledger.ledger import Ledger
from dra_extender.model.allocation import ScoreTerms
from dra_extender.model.pod import Pod
from dra_extender.scheduling.claims.lookup import FoundClaim
from dra_extender.scheduling.evaluation.evaluator import Prefetch
from dra_extender.scheduling.evaluation.result import FilterResult, NodeResult
from dra_extender.scheduling.evaluation.scoring import NO_TERMS, ratings
from dra_extender.scheduling.holds.fairness import HoldFairness
from dra_extender.scheduling.holds.service import HoldService, HoldUnit, with_new_share_ids
from dra_extender.scheduling.ports.errors import RetryableError
from dra_extender.scheduling.ports.options import Options


@dataclass(eq=False)
class NodeOffers:
    """Offers the best nodes that fit, and defers the holds on them and the prefetch until the response is sent."""

    ledger: Ledger
    fairness: HoldFairness
    holds: HoldService
    prefetch: Prefetch
    options: Options

    def offer(self, pod: Pod, result: FilterResult) -> Sequence[str]:
        """Select the best nodes and hold there what the pod would get.  The holds of a gang member are placed already."""
        self.fairness.end_waiting(pod.uid)
        if result.assigned_node is not None:
            return (result.assigned_node,)
        for claim in result.held:
            self.holds.extend(claim.uid, pod.uid)
        if not result.open:
            return tuple(result.fits)
        # Mostly every node has a result, and there may be thousands.
        fits = cast("dict[str, NodeResult]", result.fits)
        nodes_without_holds: tuple[str, ...] = ()
        if None in result.fits.values():
            fits = {name: node_result for name, node_result in result.fits.items() if node_result is not None}
            nodes_without_holds = tuple(name for name in result.fits if name not in fits)
        offered: Mapping[str, NodeResult] = {}
        try:
            selected = self.fairness.select(pod, self._best_first(result), fits, self.options.offered_nodes)
            offered = {name: fits[name] for name in selected}
        except RetryableError:
            if not nodes_without_holds:
                raise
        unit = self.holds.unit(pod.namespace, pod.uid)
        self.holds.defer(lambda: self._hold(unit, result.open, offered, result.losses))
        if result.demand is not None:
            asyncio.get_running_loop().call_soon(self.prefetch.start, result.demand)
        return (*nodes_without_holds, *offered)

    def _best_first(self, result: FilterResult) -> Sequence[str]:
        """Return the nodes by rating; equal nodes, and nodes that are all offered, in the order of their evaluation."""
        names = [name for name, node_result in result.fits.items() if node_result is not None]
        if len(names) <= self.options.offered_nodes:
            return names
        uids = (claim.uid for claim in result.held)
        hold_terms = [hold.score_terms for uid in uids if (hold := self.ledger.holds.get(uid))]
        score_terms = result.score_terms
        if hold_terms:
            score_terms = {
                name: sum((by_node[name] for by_node in hold_terms if name in by_node), terms)
                for name, terms in score_terms.items()
            }
        rated = ratings(score_terms, self.options)
        return sorted(names, key=rated.__getitem__, reverse=True)

    def _hold(
        self,
        unit: HoldUnit,
        claims: Sequence[FoundClaim],
        offered: Mapping[str, NodeResult],
        losses: Mapping[str, float],
    ) -> None:
        """Hold the placements of each claim on the offered nodes; some nodes need no claim for extended resources."""
        if offered:
            self.fairness.offered(unit.unit)
        claims_by_node = {
            name: () if (placement := result.placement) is None else placement.claims
            for name, result in offered.items()
        }
        for index, claim in enumerate(claims):
            placements = {
                name: with_new_share_ids(placed[index])
                for name, placed in claims_by_node.items()
                if index < len(placed)
            }
            # The loss is that of all claims: the first one has it.
            lost = losses if index == 0 else {}
            if placements:
                self.holds.place(
                    unit,
                    claim.uid,
                    (unit.unit,),
                    placements,
                    versions={name: offered[name].state for name in placements},
                    score_terms=_score_terms({name: offered[name] for name in placements}, index, lost),
                )


def _score_terms(
    results: Mapping[str, NodeResult], index: int, losses: Mapping[str, float]
) -> Mapping[str, ScoreTerms]:
    """Return the score terms of one claim by node, where there are any."""
    terms = {name: result.score_terms[index] for name, result in results.items() if result.score_terms}
    return terms | {
        name: terms.get(name, NO_TERMS) + ScoreTerms(loss=losses[name]) for name in results if name in losses
    }
