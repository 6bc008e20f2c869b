from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from enum import StrEnum
from typing import Final

import structlog
from msgspec.structs import replace

from dra_extender.ledger.ledger import Ledger
from dra_extender.ledger.state.claim_record import ClaimRecord
from dra_extender.model.api_json import ModelError
from dra_extender.model.claim_edits import without
from dra_extender.model.managed_fields import Writers, writers_of
from dra_extender.model.pod import Pod
from dra_extender.model.pod_group import is_group
from dra_extender.model.resource_claim import FINALIZER, ClaimHead, ConsumerReference, ResourceClaim, read_claim
from dra_extender.model.snapshot import SNAPSHOT_ANNOTATION
from dra_extender.scheduling.claims.writer import ClaimWriter, same_allocation
from dra_extender.scheduling.evaluation.backoff import DeviceBackoff
from dra_extender.scheduling.ports.cluster import (
    Cluster,
    ClusterError,
    ConflictError,
    NotFoundError,
    RequestRejectedError,
    ServerUnavailableError,
)
from dra_extender.scheduling.ports.errors import RetryableError
from dra_extender.scheduling.reclaim.observe import ReclaimableClaim, ReclaimFacts
from dra_extender.scheduling.reclaim.rules import NOT_READY, RELEASE_MESSAGES, ReclaimReason, may_release

RELEASED_REASON = "DevicesReleased"
_TRIES: Final = 5

_LOG = structlog.get_logger(__name__)


class ReclaimResult(StrEnum):
    """How a release ended; also a label of the metric."""

    DONE = "done"
    CHANGED = "changed"
    FOREIGN = "foreign"
    FAILED = "failed"


class ReclaimWriter:
    """Releases what one claim can do without, after reading the live objects: the watch may be behind."""

    def __init__(
        self,
        ledger: Ledger,
        cluster: Cluster,
        claim_writer: ClaimWriter,
        facts: ReclaimFacts,
        device_backoff: DeviceBackoff,
        field_manager: str,
    ) -> None:
        """`field_manager`: the name under which this service writes; what other field managers wrote stays."""
        self._ledger = ledger
        self._cluster = cluster
        self._claim_writer = claim_writer
        self._facts = facts
        self._device_backoff = device_backoff
        self._us = field_manager

    async def release(
        self, record: ClaimRecord, expected: ReclaimableClaim, blocking: AbstractSet[str]
    ) -> ReclaimResult:
        """Release what was found, if the live claim and its live consumers are in the same state and this service wrote it.

        Conflicts with other writers are retried a few times, then the result is CHANGED.
        """
        for _ in range(_TRIES):
            result = await self._attempt(record, expected, blocking)
            if result is not None:
                return result
        return ReclaimResult.CHANGED

    async def _attempt(
        self, record: ClaimRecord, expected: ReclaimableClaim, blocking: AbstractSet[str]
    ) -> ReclaimResult | None:
        """None: another writer changed the claim between the read and the write."""
        key = record.claim.metadata.key
        try:
            raw = await self._cluster.claims.read(*key)
            claim = read_claim(raw)
            first = self._facts.find(claim, blocking)
            if first is None or first.state != expected.state:
                return ReclaimResult.CHANGED
            live = await self._consumers(claim, first)
            found = self._facts.find(claim, blocking, live)
            if found is None or found.state != expected.state or found.releasable != first.releasable:
                return ReclaimResult.CHANGED
            writers = _with_own_writes(writers_of(raw), record, claim, self._us)
            if not may_release(found.releasable, claim, found.consumer_states, writers, self._us):
                return ReclaimResult.FOREIGN
            await self._write(claim, raw, found, writers)
        except ConflictError:
            return None
        except (NotFoundError, ServerUnavailableError):
            return ReclaimResult.CHANGED
        except RetryableError as problem:
            return self._not_written(key, problem)
        except (ClusterError, ModelError) as problem:
            return self._failed(key, problem)
        self._report(claim, found, live)
        return ReclaimResult.DONE

    def _not_written(self, key: tuple[str, str], problem: RetryableError) -> ReclaimResult | None:
        if isinstance(problem.__cause__, ConflictError):
            return None
        return (
            self._failed(key, problem) if isinstance(problem.__cause__, RequestRejectedError) else ReclaimResult.CHANGED
        )

    async def _consumers(self, claim: ClaimHead, expected: ReclaimableClaim) -> Mapping[str, Pod | None]:
        """The live pods whose reservation is to be released, by UID; those of a PodGroup are its members."""
        released = [each for each in claim.status.reserved_for if each.uid in expected.releasable.consumers]
        return {
            uid: await self._pod(claim.metadata.namespace, name, uid)
            for consumer in released
            for uid, name in await self._pods_of(claim, consumer)
        }

    async def _pods_of(self, claim: ClaimHead, consumer: ConsumerReference) -> Sequence[tuple[str, str]]:
        """UID and name of each pod behind a reservation."""
        namespace = claim.metadata.namespace
        members = self._facts.members(namespace, consumer)
        if members is None and is_group(consumer):
            await self._check_gone(namespace, consumer)
            members = self._facts.users(claim, consumer)
        return [(consumer.uid, consumer.name)] if members is None else [(each.uid, each.name) for each in members]

    async def _check_gone(self, namespace: str, consumer: ConsumerReference) -> None:
        """Raise RetryableError if the PodGroup exists after all: the watch may be behind."""
        try:
            group = await self._cluster.pod_groups.read(namespace, consumer.name)
        except NotFoundError:
            return
        if group.metadata.uid == consumer.uid:
            raise RetryableError(f"PodGroup {namespace}/{consumer.name} exists")

    async def _pod(self, namespace: str, name: str, uid: str) -> Pod | None:
        try:
            pod = await self._cluster.pods.read(namespace, name)
        except NotFoundError:
            return None
        return pod if pod.uid == uid else None

    async def _write(self, claim: ResourceClaim, raw: bytes, found: ReclaimableClaim, writers: Writers) -> None:
        record = ClaimRecord(claim, raw)
        half_written = found.releasable.reason is ReclaimReason.HALF_WRITTEN
        if claim.extended_for and (half_written or found.releasable.release):
            # Only one bind of its pod can use the claim; the next bind creates another.
            await self._claim_writer.discard(record)
            return
        if not half_written:
            await self._claim_writer.release(record, found.releasable.consumers, tries=1)
            return
        metadata = claim.metadata
        change = without(
            claim,
            finalizer=FINALIZER in metadata.finalizers and self._us in writers.finalizer,
            snapshot=SNAPSHOT_ANNOTATION in metadata.annotations and self._us in writers.snapshot,
        )
        self._ledger.assume_written(await self._cluster.claims.update(*metadata.key, change))

    def _failed(self, key: tuple[str, str], problem: Exception) -> ReclaimResult:
        _LOG.warning("a claim could not be reclaimed", claim="/".join(key), problem=str(problem))
        return ReclaimResult.FAILED

    def _report(self, claim: ClaimHead, found: ReclaimableClaim, live: Mapping[str, Pod | None]) -> None:
        allocation = claim.status.allocation
        devices = [] if allocation is None else ["/".join(each.device_id) for each in allocation.devices.results]
        name = "/".join(claim.metadata.key)
        _LOG.info(
            "reclaimed a claim" if found.releasable.release else "reclaimed a part of a claim",
            reason=found.releasable.reason,
            claim=name,
            devices=devices,
            consumers=[each.name for each in claim.status.reserved_for if each.uid in found.releasable.consumers],
        )
        unready = self._facts.unready_devices(claim)
        for pod in live.values():
            if pod is not None and not (pod.node_name or pod.finished):
                if found.releasable.reason in NOT_READY:
                    self._device_backoff.start(pod.uid, unready)
                message = f"the devices of claim {name} were given back: {RELEASE_MESSAGES[found.releasable.reason]}"
                self._cluster.events.about_pod(pod, warning=False, reason=RELEASED_REASON, message=message)


def _with_own_writes(writers: Writers, record: ClaimRecord, claim: ResourceClaim, us: str) -> Writers:
    """The writers that the claim's managed fields name, and `us` where this process knows that it wrote.

    A user who may write the claim may also change its managed fields, and so keep our allocation from being released.
    """
    stored = claim.status.allocation
    if stored is None or record.written is None or not same_allocation(stored, record.written):
        return writers
    ours = {uid: writers.reserved(uid) | {us} for uid in record.written_for}
    return replace(writers, allocation=writers.allocation | {us}, reservations={**writers.reservations, **ours})
