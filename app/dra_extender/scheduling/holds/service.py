"""Changes holds; nothing else in the service does, and inspections place those that a running extender reports.

Filter places holds on the nodes that it offers, and the coordinator of gangs on the nodes of a plan.  Stale holds are revoked, and
a bind releases the holds of its pod.  The ledger itself changes holds only for what it observes: it narrows them to a nominated
node, and ends them when their claim is allocated or deleted, or when their pod is bound, finished or deleted.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Final
from uuid import uuid4

from msgspec.structs import replace

from dra_extender.ledger.hold_book import Hold
from dra_extender.ledger.ledger import Ledger
from dra_extender.model.allocation import ClaimPlacement, ScoreTerms
from dra_extender.scheduling.ports.cluster import Clock
from dra_extender.scheduling.ports.options import Options

_NO_SCORE_TERMS: Final[Mapping[str, ScoreTerms]] = {}


class HoldService:
    """Places, extends, transfers, releases and revokes holds.  Readers use `Ledger.holds`."""

    def __init__(self, ledger: Ledger, clock: Clock, options: Options) -> None:
        self._ledger = ledger
        self._clock = clock
        self._options = options

    def place(
        self,
        namespace: str,
        unit: str,
        claim_uid: str,
        pods: Iterable[str],
        placements: dict[str, ClaimPlacement],
        versions: dict[str, int],
        score_terms: Mapping[str, ScoreTerms] = _NO_SCORE_TERMS,
        since: float | None = None,
    ) -> None:
        """Hold these placements (by node) of the claim for these pods, in place of an earlier hold.

        `unit`: UID of the pod or PodGroup.  `versions`: the state of each node at which its placement was decided.  `since`: when
        the hold begins (monotonic), now if that is not given.
        """
        since = self._clock.monotonic() if since is None else since
        expires = since + self._options.hold_seconds
        hold = Hold(
            claim_uid=claim_uid,
            placements=placements,
            versions=versions,
            expires=expires,
            pods=set(pods),
            score_terms=score_terms,
            namespace=namespace,
            unit=unit,
            since=since,
            latest=expires + self._options.binding_timeout_seconds,
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


def with_new_share_ids(placement: ClaimPlacement) -> ClaimPlacement:
    """Return the placement with share IDs that no other hold and no allocation has (KEP-5075); the same object without shares.

    A search only numbers the shares, and the result cache gives one placement to every replica of a workload.
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
