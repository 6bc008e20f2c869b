"""The one service that changes holds, and the offers of nodes on which it places them.

Filter places holds on the nodes that it offers, and the coordinator of gangs on the nodes of a plan.  Stale holds are revoked, and
a bind releases the holds of its pod.  The ledger itself changes holds only for what it observes: it narrows them to a nominated
node, and ends them when their claim is allocated or deleted, or when their pod is bound, finished or deleted.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple, cast
from uuid import uuid4

from msgspec.structs import replace

from dra_extender.ledger.hold_book import Hold
from dra_extender.ledger.ledger import Ledger
from dra_extender.model.allocation import ClaimPlacement, ScoreTerms
from dra_extender.model.pod import Pod
from dra_extender.scheduling.claims.lookup import FoundClaim
from dra_extender.scheduling.evaluation.prefetch import Prefetch
from dra_extender.scheduling.evaluation.result import FilterResult, NodeResult
from dra_extender.scheduling.evaluation.scoring import ratings, total
from dra_extender.scheduling.holds.shares import HoldShares
from dra_extender.scheduling.ports.cluster import Clock
from dra_extender.scheduling.ports.errors import RetryableError
from dra_extender.scheduling.ports.options import Options

_NO_SCORE_TERMS: Final[Mapping[str, ScoreTerms]] = {}


class HoldUnit(NamedTuple):
    """Holds that are placed and revoked together: those of a pod or of a PodGroup, by `uid`.

    `placed`: when they are placed.  `expires` and `latest`: when they end without and with a nomination.  All are monotonic.
    """

    namespace: str
    uid: str
    placed: float
    expires: float
    latest: float


class HoldService:
    """Places, extends, transfers, releases and revokes holds.  Readers use `Ledger.holds`."""

    def __init__(self, ledger: Ledger, clock: Clock, options: Options) -> None:
        self._ledger = ledger
        self._clock = clock
        self._options = options

    def unit(self, namespace: str, uid: str) -> HoldUnit:
        now = self._clock.monotonic()
        expires = now + self._options.hold_seconds
        return HoldUnit(namespace, uid, now, expires, expires + self._options.binding_timeout_seconds)

    def place(
        self,
        unit: HoldUnit,
        claim_uid: str,
        pods: Iterable[str],
        placements: dict[str, ClaimPlacement],
        versions: dict[str, int],
        score_terms: Mapping[str, ScoreTerms] = _NO_SCORE_TERMS,
    ) -> None:
        """Hold these placements (by node) of the claim for these pods, in place of an earlier hold.

        `versions`: the state of each node at which its placement was decided.
        """
        hold = Hold(
            claim_uid=claim_uid,
            placements=placements,
            versions=versions,
            score_terms=score_terms,
            expires=unit.expires,
            pods=set(pods),
            namespace=unit.namespace,
            unit=unit.uid,
            since=unit.placed,
            latest=unit.latest,
        )
        self._ledger.hold_book.place(hold)

    def defer(self, place: Callable[[], None]) -> None:
        """Call `place` before anything reads holds: the response to kube-scheduler need not wait for it."""
        self._ledger.defer_hold(place)

    def extend(self, claim_uid: str, pod_uid: str) -> None:
        """Add a pod that uses the held claim, too: the hold lasts as long as one that is placed now."""
        self._ledger.hold_book.add_pod(claim_uid, pod_uid, self._clock.monotonic() + self._options.hold_seconds)

    def transfer(self, claim_uid: str, new_uid: str) -> None:
        """Give the hold of a claim that did not exist yet to the claim that was created for it."""
        self._ledger.hold_book.rekey(claim_uid, new_uid)

    def release_pods(self, *pods: str) -> None:
        """End the holds of these pods; a hold that further pods share stays for the further pods."""
        for uid in pods:
            self._ledger.hold_book.release_pod(uid)

    def release_claim(self, claim_uid: str) -> None:
        self._ledger.hold_book.end(claim_uid)

    def expire(self) -> None:
        self._ledger.hold_book.expire(self._clock.monotonic())


def with_own_shares(placement: ClaimPlacement) -> ClaimPlacement:
    """Return the placement with share IDs that no other hold and no allocation has (KEP-5075); the same object without shares.

    The result cache gives one placement to every replica of a workload, but a share ID names one share alone.
    """
    results = placement.allocation.devices.results
    if all(result.share_id is None for result in results):
        return placement
    share_ids = [None if result.share_id is None else str(uuid4()) for result in results]
    renamed = tuple(replace(result, share_id=share_id) for result, share_id in zip(results, share_ids, strict=True))
    devices = replace(placement.allocation.devices, results=renamed)
    return ClaimPlacement(
        allocation=replace(placement.allocation, devices=devices),
        holdings=tuple(
            replace(holding, share_id=share_id) for holding, share_id in zip(placement.holdings, share_ids, strict=True)
        ),
    )


_NO_TERMS = ScoreTerms()


class NodeOffers:
    """Offers the best nodes that fit, and defers the holds on them and the prefetch until the response is sent."""

    def __init__(
        self, ledger: Ledger, shares: HoldShares, holds: HoldService, prefetch: Prefetch, options: Options
    ) -> None:
        self._ledger = ledger
        self._shares = shares
        self.holds = holds
        self._prefetch = prefetch
        self._options = options

    def offer(self, pod: Pod, result: FilterResult) -> Sequence[str]:
        """Select the best nodes and hold there what the pod would get.  The holds of a gang member are placed already."""
        self._shares.end_waiting(pod.uid)
        if result.assigned_node is not None:
            return (result.assigned_node,)
        for claim in result.held:
            self.holds.extend(claim.record.claim.metadata.uid, pod.uid)
        if not result.open:
            return tuple(result.fits)
        # Mostly every node has a result, and there may be thousands.
        fits = cast("dict[str, NodeResult]", result.fits)
        without_holds: tuple[str, ...] = ()
        if None in result.fits.values():
            fits = {name: node_result for name, node_result in result.fits.items() if node_result is not None}
            without_holds = tuple(name for name in result.fits if name not in fits)
        offered: Mapping[str, NodeResult] = {}
        try:
            selected = self._shares.select(pod, self._best_first(result), fits, self._options.offered_nodes)
            offered = {name: fits[name] for name in selected}
        except RetryableError:
            if not without_holds:
                raise
        unit = self.holds.unit(pod.namespace, pod.uid)
        self.holds.defer(lambda: self._hold(unit, result.open, offered, result.losses))
        if result.demand is not None:
            asyncio.get_running_loop().call_soon(self._prefetch.start, result.demand)
        return (*without_holds, *offered)

    def score(self, pod_uid: str, nodes: Sequence[str]) -> Sequence[tuple[str, int]]:
        """Return (node, score from 0 to 10) for each node; nodes on which nothing is held for the pod get 0."""
        holds = self._ledger.holds.of_pod(pod_uid)
        if not any(hold.score_terms for hold in holds):
            return [(node, 0) for node in nodes]
        held_nodes = [node for node in nodes if all(node in hold.placements for hold in holds)]
        score_terms = {node: total(hold.score_terms.get(node, _NO_TERMS) for hold in holds) for node in held_nodes}
        rated = ratings(score_terms, self._options.weights)
        return [(node, round(rated.get(node, 0.0))) for node in nodes]

    def _best_first(self, result: FilterResult) -> Sequence[str]:
        """Return the nodes by rating; equal nodes, and nodes that are all offered, in the order of their evaluation."""
        names = [name for name, node_result in result.fits.items() if node_result is not None]
        if len(names) <= self._options.offered_nodes:
            return names
        uids = (claim.record.claim.metadata.uid for claim in result.held)
        hold_terms = [hold.score_terms for uid in uids if (hold := self._ledger.holds.get(uid))]
        score_terms = result.score_terms
        if hold_terms:
            score_terms = {
                name: total((terms, *(of_hold[name] for of_hold in hold_terms if name in of_hold)))
                for name, terms in score_terms.items()
            }
        rated = ratings(score_terms, self._options.weights)
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
            self._shares.offered(unit.uid)
        by_node = {
            name: () if (placement := result.placement) is None else placement.claims
            for name, result in offered.items()
        }
        for index, claim in enumerate(claims):
            placements = {
                name: with_own_shares(of_claims[index]) for name, of_claims in by_node.items() if index < len(of_claims)
            }
            # The loss is that of all claims: the first one has it.
            lost = losses if index == 0 else {}
            if placements:
                self.holds.place(
                    unit,
                    claim.record.claim.metadata.uid,
                    (unit.uid,),
                    placements,
                    versions={name: offered[name].state for name in placements},
                    score_terms=_score_terms({name: offered[name] for name in placements}, index, lost),
                )


def _score_terms(
    results: Mapping[str, NodeResult], index: int, losses: Mapping[str, float]
) -> Mapping[str, ScoreTerms]:
    """Return the score terms of one claim by node, where there are any."""
    of_claim = {name: result.score_terms[index] for name, result in results.items() if result.score_terms}
    return of_claim | {
        name: of_claim.get(name, _NO_TERMS) + ScoreTerms(loss=losses[name]) for name in results if name in losses
    }
