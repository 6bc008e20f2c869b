"""Conflicts that allocations of other processes cause: binds look again, and bound pods get an Event."""

import asyncio
from collections.abc import Callable, Collection, Iterator
from typing import Final

import structlog

from dra_extender.ledger.events import AllocationObserved, Subscription
from dra_extender.ledger.state.claim_record import ClaimRecord
from dra_extender.model.pod import Pod
from dra_extender.model.pod_group import is_group
from dra_extender.model.snapshot import is_snapshotted
from dra_extender.runtime.supervision import BackgroundTask
from dra_extender.scheduling.binding.conflicts import FOREIGN, OWN, find_conflicting_claims
from dra_extender.scheduling.ports.context import SchedulingContext

REASON: Final = "DevicesAllocatedTwice"
_REPORT_SECONDS: Final = 2.0
_LOG = structlog.get_logger(__name__)


class ConflictMonitor:
    """Looks for conflicts with allocations that another process stored.

    Binds of ours look again, and release what conflicts.  After the Binding nothing can be undone: then a conflict is reported by
    an Event on each pod that uses the device, a line in the log and a metric.  The report comes after `report_seconds`, if the
    conflict still exists: a second extender releases its own allocation by itself.
    """

    def __init__(self, context: SchedulingContext, recheck: Callable[[Collection[str] | None], None]) -> None:
        """`recheck`: has the binds of these pods look again, None: all binds."""
        self.report_seconds = _REPORT_SECONDS
        self._ledger = context.ledger
        self._recheck = recheck
        self._events = context.cluster.events
        self._metrics = context.metrics
        self._supervisor = context.supervisor
        self._suspects: dict[str, int] = {}
        self._seen = asyncio.Event()
        self._subscription: Subscription | None = None

    def start(self) -> None:
        """Look at each allocation that the ledger observes from now on."""
        self.stop()
        self._subscription = self._ledger.events.subscribe(AllocationObserved, lambda event: self.seen(event.record))

    def stop(self) -> None:
        """Look at no further allocation."""
        if self._subscription is not None:
            self._subscription.close()
            self._subscription = None

    def seen(self, record: ClaimRecord) -> None:
        """The watch delivered an allocation that this process did not write."""
        with self._supervisor.sparing(BackgroundTask.FOREIGN_ALLOCATIONS, claim=record.claim.metadata.key):
            self._suspect(record)

    def _suspect(self, record: ClaimRecord) -> None:
        if self._affects_compatibility(record):
            self._recheck(None)
        found = find_conflicting_claims(record, self._ledger.claims, self._ledger.slices)
        if found is None:
            return
        self._recheck(dict.fromkeys(pod.uid for other in found[1] for pod in self._users(other)))
        self._suspects[record.claim.metadata.uid] = record.allocated_version
        self._seen.set()

    def _affects_compatibility(self, record: ClaimRecord) -> bool:
        """Whether `compatibleOnlyWith` may exclude devices of waiting binds beside these; each bind finds out for its node."""
        names, slices = {(each.pool_id, each.device) for each in record.holdings}, self._ledger.slices
        return self._ledger.claims.usage.has_rules or any(
            device.compatible_only_with is not None and (pool_id, device.name) in names
            for pool_id in {each.pool_id for each in record.holdings}
            for published in slices.of_pool(pool_id)
            for device in published.devices
        )

    async def run(self) -> None:
        """Report until cancelled."""
        while True:
            await self._seen.wait()
            self._seen.clear()
            await asyncio.sleep(self.report_seconds)
            suspects, self._suspects = self._suspects, {}
            for uid, version in suspects.items():
                with self._supervisor.sparing(BackgroundTask.FOREIGN_ALLOCATIONS, claim=uid):
                    record = self._ledger.claims.by_uid(uid)
                    if record is not None and record.allocated_version == version:
                        self._report(record)

    def _report(self, record: ClaimRecord) -> None:
        found = find_conflicting_claims(record, self._ledger.claims, self._ledger.slices)
        if found is None:
            return
        conflict, others = found
        other_claim = "/".join(record.claim.metadata.key)
        ours = [each for each in others if is_snapshotted(each.claim)]
        if not ours:
            return
        own = is_snapshotted(record.claim)
        conflict = conflict._replace(writer=OWN if own else FOREIGN)
        by = "" if own else ", by another writer"
        self._metrics.overlap(conflict.kind, "reported", conflict.writer)
        names = ["/".join(each.claim.metadata.key) for each in ours]
        _LOG.warning("the same was allocated twice", to=other_claim, ours=names, **conflict._asdict())
        for other in ours:
            own_claim = "/".join(other.claim.metadata.key)
            text = f"{conflict.kind} {conflict.what} of claim {own_claim} was given to claim {other_claim}, too{by}"
            for pod in self._users(other):
                if pod.node_name:
                    self._events.about_pod(pod, warning=True, reason=REASON, message=text)

    def _users(self, record: ClaimRecord) -> Iterator[Pod]:
        """The pods for which the claim is reserved; the members, where it is reserved for a PodGroup."""
        pods = self._ledger.pods
        for consumer in record.claim.status.reserved_for:
            if is_group(consumer):
                yield from pods.members(record.claim.metadata.namespace, consumer.name)
            elif (pod := pods.by_uid(consumer.uid)) is not None:
                yield pod
