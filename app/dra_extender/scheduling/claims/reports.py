"""Reports about claims that this service cannot repair: deleted in use, or with two snapshots that differ."""

from typing import Final

import structlog

from dra_extender.ledger.events import ClaimOrphaned, Subscription
from dra_extender.ledger.ledger import Ledger
from dra_extender.ledger.state.claim_record import Orphan
from dra_extender.model.api_json import listed
from dra_extender.scheduling.ports.cluster import Events
from dra_extender.telemetry.metrics import Metrics

REASON: Final = "ClaimDeletedInUse"
_MOST_DEVICES: Final = 4
_LOG = structlog.get_logger(__name__)


class ClaimReports:
    """Reports claims that were deleted while pods use their devices, and claims whose snapshots of compatibility groups differ.

    A deleted claim cannot be made anew under its old UID.  Its devices are free for others when the pods have ended, or at a
    restart of this service, which then knows nothing of them any more.  Of two snapshots the groups in the allocation count, which
    nobody can change; the annotation can be edited by every client that may edit the claim.
    """

    def __init__(self, ledger: Ledger, events: Events, metrics: Metrics) -> None:
        self._ledger = ledger
        self._events = events
        self._metrics = metrics
        self._subscription: Subscription | None = None
        self._logged: frozenset[str] = frozenset()
        metrics.before_render(lambda: metrics.orphaned_allocations.set(len(ledger.claims.orphans)))
        metrics.before_render(self._report_contradictions)

    def start(self) -> None:
        """Report deleted claims from now on, and those that are known already."""
        self.stop()
        self._subscription = self._ledger.events.subscribe(ClaimOrphaned, lambda event: self._report(event.orphan))
        for orphan in tuple(self._ledger.claims.orphans.all()):
            self._report(orphan)

    def stop(self) -> None:
        """Report no further deleted claims: another replica does."""
        if self._subscription is not None:
            self._subscription.close()
            self._subscription = None

    def _report(self, orphan: Orphan) -> None:
        """Record an Event on each pod that uses devices of the deleted claim; log and count it."""
        claim = "/".join(orphan.record.claim.metadata.key)
        names = [f"{holding.driver}/{holding.pool}/{holding.device}" for holding in orphan.record.holdings]
        devices = listed(names, _MOST_DEVICES)
        pods = [pod for uid in sorted(orphan.pods) if (pod := self._ledger.pods.by_uid(uid)) is not None]
        self._metrics.claims_deleted_in_use.inc()
        _LOG.warning("a claim was deleted while pods use its devices", claim=claim, pods=[pod.key for pod in pods])
        text = (
            f"ResourceClaim {claim} was deleted while this pod uses its devices ({devices}); no other pod gets them before"
            " this pod ends: delete the pod to free them"
        )
        for pod in pods:
            self._events.about_pod(pod, warning=True, reason=REASON, message=text)

    def _report_contradictions(self) -> None:
        """Set the metric, and log each claim once for as long as its snapshots differ."""
        contradicted = self._ledger.claims.contradicted
        self._metrics.contradicted_snapshots.set(len(contradicted))
        for uid, device in contradicted.items():
            record = self._ledger.claims.by_uid(uid)
            if uid not in self._logged and record is not None:
                claim = "/".join(record.claim.metadata.key)
                _LOG.warning(
                    "the groups of an allocation and of its annotation differ", claim=claim, device="/".join(device)
                )
        self._logged = frozenset(contradicted)
