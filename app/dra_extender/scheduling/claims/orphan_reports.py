"""Tells people about claims that were deleted while pods use their devices."""

from typing import Final

import structlog

from dra_extender.ledger.events import ClaimOrphaned, Subscription
from dra_extender.ledger.index.orphans import Orphan
from dra_extender.ledger.ledger import Ledger
from dra_extender.scheduling.ports.cluster import Events
from dra_extender.telemetry.metrics import Metrics

REASON: Final = "ClaimDeletedInUse"
_MOST_DEVICES: Final = 4
_LOG = structlog.get_logger(__name__)


class OrphanReports:
    """An Event on each pod that uses devices of a deleted claim, a line in the log, and metrics.

    Nothing can be repaired from here: a claim cannot be made anew under its old UID.  The devices are free for others when the pods
    have ended, or at a restart of this service, which then knows nothing of them any more.
    """

    def __init__(self, ledger: Ledger, events: Events, metrics: Metrics) -> None:
        self._ledger = ledger
        self._events = events
        self._metrics = metrics
        self._subscription: Subscription | None = None
        metrics.before_render(lambda: metrics.orphaned(len(ledger.claims.orphans)))

    def start(self) -> None:
        """Report from now on, and what has been known before."""
        self.stop()
        self._subscription = self._ledger.events.subscribe(ClaimOrphaned, lambda event: self.report(event.orphan))
        for orphan in tuple(self._ledger.claims.orphans.all()):
            self.report(orphan)

    def stop(self) -> None:
        """Another replica reports from now on."""
        if self._subscription is not None:
            self._subscription.close()
            self._subscription = None

    def report(self, orphan: Orphan) -> None:
        """A claim was deleted while pods use its devices."""
        claim = "/".join(orphan.record.claim.metadata.key)
        names = [f"{each.driver}/{each.pool}/{each.device}" for each in orphan.record.holdings]
        more = len(names) - _MOST_DEVICES
        devices = ", ".join(names[:_MOST_DEVICES]) + (f" and {more} more" if more > 0 else "")
        pods = [pod for uid in sorted(orphan.pods) if (pod := self._ledger.pods.by_uid(uid)) is not None]
        self._metrics.claim_deleted_in_use()
        _LOG.warning("a claim was deleted while pods use its devices", claim=claim, pods=[each.key for each in pods])
        text = (
            f"ResourceClaim {claim} was deleted while this pod uses its devices ({devices}); no other pod gets them before"
            " this pod ends: delete the pod to free them"
        )
        for pod in pods:
            self._events.about_pod(pod, warning=True, reason=REASON, message=text)
