"""Which of the nodes that fit are offered to kube-scheduler, and the holds that keep their devices free until the bind."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from dra_extender.ledger.holds import Hold, HoldBook
from dra_extender.ledger.ledger import Ledger
from dra_extender.model.allocation import ScoreTerms
from dra_extender.model.pod import Pod
from dra_extender.scheduling.claims.lookup import FoundClaim
from dra_extender.scheduling.evaluation.placement_template import new_share_id, with_fresh_shares
from dra_extender.scheduling.evaluation.prefetch import Prefetch
from dra_extender.scheduling.evaluation.result import FilterResult, NodeResult
from dra_extender.scheduling.evaluation.scoring import ratings, total
from dra_extender.scheduling.fairness.hold_fairness import HoldFairness
from dra_extender.scheduling.ports.cluster import Clock
from dra_extender.scheduling.ports.errors import RetryableError
from dra_extender.scheduling.ports.options import Options


class NodeOffers:
    """Offers the best nodes that fit, and defers the holds on them and the prefetch until the response is sent."""

    def __init__(
        self, ledger: Ledger, fairness: HoldFairness, clock: Clock, prefetch: Prefetch, options: Options
    ) -> None:
        self._ledger = ledger
        self._fairness = fairness
        self._clock = clock
        self._prefetch = prefetch
        self._options = options

    def hold(self, pod: Pod, result: FilterResult) -> Sequence[str]:
        """Select the best nodes and hold there what the pod would get.  The holds of a gang member are placed already.

        Raises:
            RetryableError: the pod may be offered none at present, because pods of other namespaces wait.
        """
        if result.assigned_node is not None:
            return (result.assigned_node,)
        now = self._clock.monotonic()
        expires = now + self._options.hold_seconds
        ledger = self._ledger
        for claim in result.held:
            ledger.holds.add_pod(claim.record.claim.metadata.uid, pod.uid, expires)
        if not result.open:
            return tuple(result.fits)
        without_holds = [name for name, node_result in result.fits.items() if node_result is None]
        try:
            offered = self._best(pod, result)
        except RetryableError:
            if not without_holds:
                raise
            offered = {}
        if offered:
            self._fairness.shares.offered(pod.uid)
        times = _HoldTimes(now, expires, expires + self._options.binding_timeout_seconds)
        ledger.defer_hold(lambda: _place_holds(ledger.holds, result.open, offered, pod, times))
        if result.demand is not None:
            asyncio.get_running_loop().call_soon(self._prefetch.start, result.demand)
        return (*without_holds, *offered)

    def _best(self, pod: Pod, result: FilterResult) -> dict[str, NodeResult]:
        """The nodes with the highest ratings; among equals those that were evaluated first.

        Raises:
            RetryableError: the pod may be offered none at present, because pods of other namespaces wait.
        """
        fits = {name: node_result for name, node_result in result.fits.items() if node_result is not None}
        names, count = list(fits), self._options.offered_nodes
        if len(names) > count:
            held = [hold for each in result.held if (hold := self._ledger.holds.get(each.record.claim.metadata.uid))]
            score_terms = {
                name: total((*node_result.score_terms, *_terms_on(name, held))) for name, node_result in fits.items()
            }
            rated = ratings(score_terms, self._options.weights)
            names.sort(key=rated.__getitem__, reverse=True)
        fairness = self._fairness
        offered = fairness.select(pod, names, fits, count) if fairness.shares.has_waiting_pods else names[:count]
        return {name: fits[name] for name in offered}


class _HoldTimes(NamedTuple):
    """When a hold was placed, and when it ends without and with a nomination (monotonic)."""

    since: float
    expires: float
    latest: float


def _terms_on(node: str, holds: Sequence[Hold]) -> Sequence[ScoreTerms]:
    return [hold.score_terms[node] for hold in holds if node in hold.score_terms]


def _place_holds(
    holds: HoldBook, claims: Sequence[FoundClaim], offered: Mapping[str, NodeResult], pod: Pod, times: _HoldTimes
) -> None:
    """Hold for each claim what it would get on the offered nodes; some nodes need no claim for extended resources."""
    for index, claim in enumerate(claims):
        placements = {
            name: with_fresh_shares(node_result.placement.claims[index], new_share_id)
            for name, node_result in offered.items()
            if node_result.placement is not None and index < len(node_result.placement.claims)
        }
        if placements:
            hold = Hold(
                claim_uid=claim.record.claim.metadata.uid,
                placements=placements,
                versions={name: offered[name].state for name in placements},
                score_terms={
                    name: offered[name].score_terms[index] for name in placements if offered[name].score_terms
                },
                expires=times.expires,
                pods={pod.uid},
                namespace=pod.namespace,
                unit=pod.uid,
                since=times.since,
                latest=times.latest,
            )
            holds.place(hold)
