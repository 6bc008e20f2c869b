"""Reports of what this service cannot repair: devices allocated twice, claims deleted in use, snapshots that differ."""

import asyncio
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import Final

import structlog

from dra_extender.ledger.claim_record import ClaimRecord, Orphan
from dra_extender.ledger.events import AllocationObserved, ClaimOrphaned, Subscription
from dra_extender.ledger.ledger import Ledger
from dra_extender.model.allocation_snapshot import is_snapshotted
from dra_extender.model.api_json import listed
from dra_extender.model.pod import Pod
from dra_extender.model.pod_group import is_group
from dra_extender.runtime.supervision import BackgroundTask, Supervisor
from dra_extender.scheduling.binding.conflicts import FOREIGN, OWN, find_conflicting_claims
from dra_extender.scheduling.ports.cluster import Events
from dra_extender.telemetry.metrics import Metrics

ALLOCATED_TWICE_REASON: Final = "DevicesAllocatedTwice"
DELETED_IN_USE_REASON: Final = "ClaimDeletedInUse"
_REPORT_SECONDS: Final = 2.0
_MOST_DEVICES: Final = 4
_LOG = structlog.get_logger(__name__)


@dataclass(eq=False)
class ConflictMonitor:
    """Looks for conflicts with allocations that another process stored.

    Binds of ours look again, and release what conflicts.  After the Binding nothing can be undone: then a conflict is reported by
    an Event on each pod that uses the device, a line in the log and a metric.  The report comes after `report_seconds`, if the
    conflict still exists: a second extender releases its own allocation by itself.

    `recheck`: has the binds of these pods look again, None: all binds.
    """

    ledger: Ledger
    events: Events
    metrics: Metrics
    supervisor: Supervisor
    recheck: Callable[[Collection[str] | None], None]

    def __post_init__(self) -> None:
        self.report_seconds = _REPORT_SECONDS
        self._suspects: dict[str, int] = {}
        self._some_suspects = asyncio.Event()

    def subscribe(self) -> tuple[Subscription, ...]:
        """Look at each allocation that the watch delivers and this process did not write, until the subscription is closed."""
        return (self.ledger.events.subscribe(AllocationObserved, self._observe),)

    async def keep_reporting(self) -> None:
        while True:
            await self._some_suspects.wait()
            self._some_suspects.clear()
            await asyncio.sleep(self.report_seconds)
            suspects, self._suspects = self._suspects, {}
            for uid, version in suspects.items():
                with self.supervisor.sparing(BackgroundTask.FOREIGN_ALLOCATIONS, claim=uid):
                    record = self.ledger.claims.by_uid(uid)
                    if record is not None and record.allocated_version == version:
                        self._report(record)

    def _observe(self, event: AllocationObserved) -> None:
        record = event.record
        with self.supervisor.sparing(BackgroundTask.FOREIGN_ALLOCATIONS, claim=record.claim.metadata.key):
            if self._affects_compatibility(record):
                self.recheck(None)
            conflict_and_claims = find_conflicting_claims(record, self.ledger.claims, self.ledger.slices)
            if conflict_and_claims is not None:
                _, claims = conflict_and_claims
                self.recheck(dict.fromkeys(pod.uid for claim in claims for pod in self._users(claim)))
                self._suspects[record.claim.metadata.uid] = record.allocated_version
                self._some_suspects.set()

    def _affects_compatibility(self, record: ClaimRecord) -> bool:
        """Return whether `compatibleOnlyWith` may exclude devices of waiting binds; each bind finds out for its node."""
        devices = {(holding.pool_id, holding.device) for holding in record.holdings}
        return self.ledger.claims.usage.has_rules or any(
            device.compatible_only_with is not None and (pool_id, device.name) in devices
            for pool_id in {pool_id for pool_id, _ in devices}
            for published in self.ledger.slices.of_pool(pool_id)
            for device in published.devices
        )

    def _report(self, record: ClaimRecord) -> None:
        conflict_and_claims = find_conflicting_claims(record, self.ledger.claims, self.ledger.slices)
        if conflict_and_claims is None:
            return
        conflict, claims = conflict_and_claims
        ours = [claim for claim in claims if is_snapshotted(claim.claim)]
        if not ours:
            return
        to, is_own = record.claim.metadata.full_name, is_snapshotted(record.claim)
        conflict = conflict._replace(writer=OWN if is_own else FOREIGN)
        self.metrics.allocation_overlaps.labels(conflict.kind, "reported", conflict.writer).inc()
        names = [claim.claim.metadata.full_name for claim in ours]
        _LOG.warning("the same was allocated twice", to=to, ours=names, **conflict._asdict())
        for claim, name in zip(ours, names, strict=True):
            by = "" if is_own else ", by another writer"
            text = f"{conflict.kind} {conflict.what} of claim {name} was given to claim {to}, too{by}"
            for pod in self._users(claim):
                if pod.node_name:
                    self.events.about_pod(pod, warning=True, reason=ALLOCATED_TWICE_REASON, message=text)

    def _users(self, record: ClaimRecord) -> Iterator[Pod]:
        """Yield the pods for which the claim is reserved; the members, where it is reserved for a PodGroup."""
        pods = self.ledger.pods
        for consumer in record.claim.status.reserved_for:
            if is_group(consumer):
                yield from pods.members(record.claim.metadata.namespace, consumer.name)
            elif (pod := pods.by_uid(consumer.uid)) is not None:
                yield pod


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
        self._logged: frozenset[str] = frozenset()
        metrics.before_render(lambda: metrics.orphaned_allocations.set(len(ledger.claims.orphans)))
        metrics.before_render(self._report_contradictions)

    def subscribe(self) -> tuple[Subscription, ...]:
        """Report the deleted claims that are known, and further ones until the subscription is closed."""
        subscription = self._ledger.events.subscribe(ClaimOrphaned, lambda event: self._report(event.orphan))
        for orphan in tuple(self._ledger.claims.orphans.all()):
            self._report(orphan)
        return (subscription,)

    def _report(self, orphan: Orphan) -> None:
        """Record an Event on each pod that uses devices of the deleted claim; log and count it."""
        claim = orphan.record.claim.metadata.full_name
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
            self._events.about_pod(pod, warning=True, reason=DELETED_IN_USE_REASON, message=text)

    def _report_contradictions(self) -> None:
        """Set the metric, and log each claim once for as long as its snapshots differ."""
        contradicted = self._ledger.claims.contradicted
        self._metrics.contradicted_snapshots.set(len(contradicted))
        for uid, device in contradicted.items():
            record = self._ledger.claims.by_uid(uid)
            if uid not in self._logged and record is not None:
                claim = record.claim.metadata.full_name
                _LOG.warning(
                    "the groups of an allocation and of its annotation differ", claim=claim, device="/".join(device)
                )
        self._logged = frozenset(contradicted)
