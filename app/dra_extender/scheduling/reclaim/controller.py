"""Releases the unused parts of claims, once they have been unused for a grace and the live objects show the same."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

import structlog
from msgspec.structs import replace

from dra_extender.ledger.claim_record import ClaimRecord
from dra_extender.ledger.ledger import Ledger
from dra_extender.model.allocation_snapshot import SNAPSHOT_ANNOTATION
from dra_extender.model.api_json import ModelError
from dra_extender.model.claim_edits import without
from dra_extender.model.managed_fields import Writers, writers_of
from dra_extender.model.pod import Pod
from dra_extender.model.pod_group import is_group
from dra_extender.model.resource_claim import FINALIZER, ClaimHead, ConsumerReference, ResourceClaim, read_claim
from dra_extender.runtime.supervision import BackgroundTask, StoppableWork, Supervisor
from dra_extender.scheduling.binding.busy_claims import BusyClaims
from dra_extender.scheduling.claims.writer import ClaimWriter, same_allocation
from dra_extender.scheduling.evaluation.backoff import DeviceBackoff
from dra_extender.scheduling.holds.service import HoldService
from dra_extender.scheduling.ports.cluster import (
    Cluster,
    ClusterError,
    ConflictError,
    NotFoundError,
    RequestRejectedError,
    ServerUnavailableError,
)
from dra_extender.scheduling.ports.errors import RetryableError
from dra_extender.scheduling.ports.options import Options
from dra_extender.scheduling.reclaim.release_reasons import (
    NOT_READY,
    RELEASE_MESSAGES,
    ReclaimableClaim,
    ReclaimFacts,
    ReclaimReason,
    Releasable,
    permitted_part,
)
from dra_extender.telemetry.metrics import Metrics

RELEASED_REASON: Final = "DevicesReleased"
_TICK_SECONDS: Final = 0.25
_TURN_SECONDS: Final = 0.002
_TRIES: Final = 5
_LOG = structlog.get_logger(__name__)


class ReclaimResult(StrEnum):
    """The outcome of a release; also a label of the metric."""

    DONE = "done"
    CHANGED = "changed"
    FOREIGN = "foreign"
    FAILED = "failed"


@dataclass(slots=True)
class _Suspect:
    """A claim with an unused part: its state, and since when it has been the same (monotonic).

    `foreign_version`: the resourceVersion at which it was left alone, because another field manager wrote it.
    """

    state: tuple[object, ...]
    since: float
    foreign_version: str = ""


@dataclass(eq=False, slots=True)
class ReclaimController:
    """Releases devices that no pod uses, in the background: kube-scheduler reports no failure after filter to an extender.

    Only what stays the same for a grace is released; the grace and the rate are settings.  Before a release, the live objects are
    read: the watch may be behind.  The controller leaves the claims of a bind in progress alone, and binds wait for a claim that is
    being released.  What field managers other than that of this service wrote stays.
    """

    ledger: Ledger
    cluster: Cluster
    facts: ReclaimFacts
    claim_writer: ClaimWriter
    busy_claims: BusyClaims
    holds: HoldService
    device_backoff: DeviceBackoff
    metrics: Metrics
    options: Options
    supervisor: Supervisor
    _suspects: dict[str, _Suspect] = field(default_factory=dict, init=False)
    _expired: int = field(default=0, init=False)
    _work: StoppableWork = field(default_factory=StoppableWork, init=False)

    async def keep_reclaiming(self) -> None:
        """Check suspects often and all claims now and then, until `stop`."""
        self._work.begin()
        self._suspects.clear()
        next_sweep = self.cluster.clock.monotonic()
        while not await self._work.stopped_within(_TICK_SECONDS):
            await self.check_suspects()
            if self.cluster.clock.monotonic() >= next_sweep:
                await self.sweep()
                next_sweep = self.cluster.clock.monotonic() + self.options.reclaim_interval_seconds

    async def stop(self) -> None:
        """End `keep_reclaiming`; return when a write in progress has ended."""
        await self._work.stop()

    async def check_suspects(self) -> None:
        """End expired holds, and check claims that block a rejected pod or were suspects before."""
        self.holds.expire()
        # Other calls of `expire` have ended some since the last time.
        expired = self.ledger.holds.expired
        for _ in range(expired - self._expired):
            self.metrics.reclaims.labels(ReclaimReason.HOLD_EXPIRED, ReclaimResult.DONE).inc()
        self._expired = expired
        if not self.options.reclaim_enabled:
            return
        by_uid, blocking = self.ledger.claims.by_uid, self.facts.blocking_claims()
        self._suspects = {uid: suspect for uid, suspect in self._suspects.items() if by_uid(uid) is not None}
        suspects = [by_uid(uid) for uid in dict.fromkeys((*self._suspects, *blocking))]
        await self._check((record for record in suspects if record is not None), blocking)

    async def sweep(self) -> None:
        if self.options.reclaim_enabled:
            await self._check(list(self.ledger.claims.records()), self.facts.blocking_claims())

    async def _check(self, records: Iterable[ClaimRecord], blocking: AbstractSet[str]) -> None:
        """Release the unused parts of these claims that are due; other tasks get a turn every few milliseconds."""
        loop = asyncio.get_running_loop()
        turn = loop.time()
        for record in records:
            due = None
            # No context manager: in a large cluster this loop runs for thousands of claims several times a second.
            try:
                due = self._find_due(record, blocking)
                if due is not None:
                    await self._release(record, due, blocking)
            except Exception as problem:  # noqa: BLE001 - a failure costs only this claim, and its grace begins anew
                self.supervisor.report(str(BackgroundTask.RECLAIM), problem, claim=record.claim.metadata.key)
                self._suspects.pop(record.claim.metadata.uid, None)
            if due is not None and await self._work.stopped_within(self.options.reclaim_pause_seconds):
                return
            if due is not None or loop.time() - turn > _TURN_SECONDS:
                await asyncio.sleep(0)
                turn = loop.time()

    def _find_due(self, record: ClaimRecord, blocking: AbstractSet[str]) -> ReclaimableClaim | None:
        """Return the unused part of the claim, once its state has been the same for the grace; None before."""
        uid = record.claim.metadata.uid
        is_known = record.pending is None and record.has_status
        reclaimable = self.facts.find(record.claim, blocking) if is_known else None
        if reclaimable is None:
            self._suspects.pop(uid, None)
            return None
        now, version = self.cluster.clock.monotonic(), record.claim.metadata.resource_version
        suspect = self._suspects.get(uid)
        if suspect is None or suspect.state != reclaimable.state or suspect.foreign_version not in ("", version):
            suspect = self._suspects[uid] = _Suspect(reclaimable.state, now)
        options = self.options
        grace = options.reclaim_unfit_seconds if reclaimable.releasable.prompt else options.reclaim_grace_seconds
        return reclaimable if not suspect.foreign_version and now >= suspect.since + grace else None

    async def _release(self, record: ClaimRecord, due: ReclaimableClaim, blocking: AbstractSet[str]) -> None:
        """Release the part that is due; retry a few times after a conflict.  No bind decides about the claim meanwhile."""
        uid = record.claim.metadata.uid
        if self.facts.is_being_bound(uid):
            self._suspects.pop(uid, None)
            return
        result = None
        with self._work.piece(), self.busy_claims.lock_claim(uid):
            for _ in range(_TRIES):
                result = await self._release_once(record, due, blocking)
                if result is not None:
                    break
        self.metrics.reclaims.labels(due.releasable.reason, result or ReclaimResult.CHANGED).inc()
        suspect = self._suspects.get(uid)
        if result is ReclaimResult.FOREIGN and suspect is not None:
            suspect.foreign_version = record.claim.metadata.resource_version
        else:
            self._suspects.pop(uid, None)

    async def _release_once(
        self, record: ClaimRecord, expected: ReclaimableClaim, blocking: AbstractSet[str]
    ) -> ReclaimResult | None:
        """Release what was found, if the live claim and its live consumers are in the same state and this service wrote it.

        Return how it ended; None if another writer changed the claim between the read and the write.
        """
        key, us = record.claim.metadata.key, self.options.field_manager
        try:
            raw = await self.cluster.claims.read(*key)
            claim = read_claim(raw)
            first = self.facts.find(claim, blocking)
            if first is None or first.state != expected.state:
                return ReclaimResult.CHANGED
            live = await self._read_consumers(claim, first)
            reclaimable = self.facts.find(claim, blocking, live)
            if reclaimable is None or reclaimable.state != expected.state or reclaimable.releasable != first.releasable:
                return ReclaimResult.CHANGED
            writers = _with_own_writes(writers_of(raw), record, claim, us)
            permitted = permitted_part(reclaimable.releasable, claim, reclaimable.consumer_states, writers, us)
            if permitted is None:
                return ReclaimResult.FOREIGN
            await self._write(claim, raw, permitted, writers)
        except ConflictError:
            return None
        except (NotFoundError, ServerUnavailableError):
            return ReclaimResult.CHANGED
        except (RetryableError, ClusterError, ModelError) as problem:
            if isinstance(problem, RetryableError) and not isinstance(problem.__cause__, RequestRejectedError):
                return None if isinstance(problem.__cause__, ConflictError) else ReclaimResult.CHANGED
            _LOG.warning("a claim could not be reclaimed", claim="/".join(key), problem=str(problem))
            return ReclaimResult.FAILED
        retained = self._pod_uids(claim, reclaimable.releasable.consumers - permitted.consumers)
        self._report(claim, permitted, [pod for uid, pod in live.items() if uid not in retained])
        return ReclaimResult.DONE

    async def _read_consumers(self, claim: ClaimHead, expected: ReclaimableClaim) -> Mapping[str, Pod | None]:
        """Read the pods whose reservation is to be released, by UID; for a PodGroup, read its members."""
        namespace = claim.metadata.namespace
        live: dict[str, Pod | None] = {}
        for consumer in claim.status.reserved_for:
            if consumer.uid in expected.releasable.consumers:
                for uid, name in await self._pods_of(claim, consumer):
                    try:
                        pod = await self.cluster.pods.read(namespace, name)
                    except NotFoundError:
                        live[uid] = None
                    else:
                        live[uid] = pod if pod.uid == uid else None
        return live

    async def _pods_of(self, claim: ClaimHead, consumer: ConsumerReference) -> Sequence[tuple[str, str]]:
        """Return UID and name of each pod of a reservation."""
        namespace = claim.metadata.namespace
        members = self.facts.members(namespace, consumer)
        if members is None and is_group(consumer):
            try:
                group = await self.cluster.pod_groups.read(namespace, consumer.name)
            except NotFoundError:
                group = None
            if group is not None and group.metadata.uid == consumer.uid:
                # The watch is behind.
                raise RetryableError(f"PodGroup {namespace}/{consumer.name} exists")
            members = self.facts.users(claim, consumer)
        return [(consumer.uid, consumer.name)] if members is None else [(pod.uid, pod.name) for pod in members]

    def _pod_uids(self, claim: ClaimHead, consumers: AbstractSet[str]) -> AbstractSet[str]:
        """Return the UIDs of these consumers, and of the members of consumers that are PodGroups."""
        groups = [consumer for consumer in claim.status.reserved_for if consumer.uid in consumers]
        members = (self.facts.members(claim.metadata.namespace, group) or () for group in groups)
        return consumers | {pod.uid for pods in members for pod in pods}

    async def _write(self, claim: ResourceClaim, raw: bytes, releasable: Releasable, writers: Writers) -> None:
        record = ClaimRecord(claim, raw)
        half_written = releasable.reason is ReclaimReason.HALF_WRITTEN
        if claim.extended_for and (half_written or releasable.release):
            # Only one bind of its pod can use the claim; the next bind creates another.
            await self.claim_writer.discard(record)
        elif not half_written:
            await self.claim_writer.release(
                record, releasable.consumers, deallocates=releasable.release, if_unchanged=True
            )
        else:
            metadata = claim.metadata
            change = without(
                claim,
                finalizer=FINALIZER in metadata.finalizers and self.options.field_manager in writers.finalizer,
                snapshot=SNAPSHOT_ANNOTATION in metadata.annotations and self.options.field_manager in writers.snapshot,
            )
            self.ledger.assume_written(await self.cluster.claims.update(*metadata.key, change))

    def _report(self, claim: ClaimHead, released: Releasable, pods: Iterable[Pod | None]) -> None:
        allocation, reason = claim.status.allocation, released.reason
        devices = [] if allocation is None else ["/".join(result.device_id) for result in allocation.devices.results]
        name = claim.metadata.full_name
        _LOG.info(
            "reclaimed a claim" if released.release else "reclaimed a part of a claim",
            reason=reason,
            claim=name,
            devices=devices,
            consumers=[entry.name for entry in claim.status.reserved_for if entry.uid in released.consumers],
        )
        given_back = f"the devices of claim {name} were" if released.release else f"the reservation of claim {name} was"
        unready = self.facts.unready_devices(claim)
        for pod in pods:
            if pod is not None and not (pod.node_name or pod.finished):
                if reason in NOT_READY:
                    self.device_backoff.start(pod.uid, unready)
                message = f"{given_back} given back: {RELEASE_MESSAGES[reason]}"
                self.cluster.events.about_pod(pod, warning=False, reason=RELEASED_REASON, message=message)


def _with_own_writes(writers: Writers, record: ClaimRecord, claim: ResourceClaim, us: str) -> Writers:
    """Return the writers that the claim's managed fields name, and `us` where this process knows that it wrote.

    A user with the right to write the claim may also change its managed fields, and so keep our allocation from being released.
    """
    stored = claim.status.allocation
    if stored is None or record.written is None or not same_allocation(stored, record.written):
        return writers
    ours = {uid: writers.reserved(uid) | {us} for uid in record.written_for}
    return replace(writers, allocation=writers.allocation | {us}, reservations={**writers.reservations, **ours})
