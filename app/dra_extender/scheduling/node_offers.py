"""Which of the nodes that fit are offered to kube-scheduler, and the holds that keep their devices free until the bind."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from dra_extender.ledger.holds import Hold, HoldBook
from dra_extender.ledger.ledger import Ledger
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
    """Offers the best nodes that fit and holds there what the pod would take."""

    def __init__(
        self, ledger: Ledger, fairness: HoldFairness, clock: Clock, prefetch: Prefetch, options: Options
    ) -> None:
        self._ledger = ledger
        self._fairness = fairness
        self._clock = clock
        self._prefetch = prefetch
        self._options = options

    def hold(self, pod: Pod, result: FilterResult) -> Sequence[str]:
        """Choose the best nodes and hold there what the pod would take; returns them.  A member of a gang has its holds already.

        Raises:
            RetryableError: the pod may be offered none at present, because others wait.
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
        unheld = [name for name, node_result in result.fits.items() if node_result is None]
        try:
            offered = self._best(pod, result)
        except RetryableError:
            if not unheld:
                raise
            offered = {}
        if offered:
            self._fairness.shares.offered(pod.uid)
        times = _Times(now, expires, expires + self._options.binding_timeout_seconds)
        # kube-scheduler need not wait for it: prefetching, which follows the response, is the first to read holds.
        ledger.defer_hold(lambda: _place_holds(ledger.holds, result.open, offered, pod, times))
        if result.demand is not None:
            self._prefetch.follow(result.demand)
        return (*unheld, *offered)

    def _best(self, pod: Pod, result: FilterResult) -> dict[str, NodeResult]:
        """The nodes with the highest ratings; among equals those that were looked at first.

        Raises:
            RetryableError: the pod may be offered none at present, because others wait.
        """
        fits = {name: node_result for name, node_result in result.fits.items() if node_result is not None}
        names, count = list(fits), self._options.offered_nodes
        if len(names) > count:
            held = [hold for each in result.held if (hold := self._ledger.holds.get(each.record.claim.metadata.uid))]
            score_terms = {
                name: total(
                    (*node_result.score_terms, *(hold.score_terms[name] for hold in held if name in hold.score_terms))
                )
                for name, node_result in fits.items()
            }
            rated = ratings(score_terms, self._options.weights)
            names.sort(key=rated.__getitem__, reverse=True)
        return {name: fits[name] for name in self._fairness.among(pod, names, fits, count)}


class _Times(NamedTuple):
    """When a hold was placed, and when it ends without and with a nomination (monotonic)."""

    since: float
    expires: float
    latest: float


def _place_holds(
    holds: HoldBook, claims: Sequence[FoundClaim], offered: Mapping[str, NodeResult], pod: Pod, times: _Times
) -> None:
    """Hold for each claim what it would get on the offered nodes; on some a claim for extended resources is not needed."""
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
