"""The writes of an allocation and of its release, each idempotent and resumable only from the stored object.

Finalizer and snapshot annotation go first, in one update: a status write cannot change metadata, and an allocation without the
finalizer would never be cleaned up.  Allocation, timestamp and reservation follow in one status update.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from itertools import zip_longest
from typing import Final

import structlog

from dra_extender.ledger.claim_record import ClaimRecord
from dra_extender.ledger.ledger import Ledger
from dra_extender.model.allocation import AllocationResult, ClaimPlacement
from dra_extender.model.allocation_snapshot import SNAPSHOT_ANNOTATION, encode_snapshot, lost_share, with_groups
from dra_extender.model.api_json import ModelError
from dra_extender.model.claim_edits import (
    MetadataChange,
    with_allocation,
    with_finalizer_and_snapshot,
    with_reservations,
    without,
    without_allocation,
    without_reservations,
)
from dra_extender.model.resource_claim import (
    FINALIZER,
    ClaimHead,
    ConsumerReference,
    asks_admin_access,
    read_claim,
)
from dra_extender.scheduling.ports.cluster import (
    Claims,
    ClusterError,
    ConflictError,
    NotFoundError,
    ServerUnavailableError,
)
from dra_extender.scheduling.ports.errors import RetryableError
from dra_extender.telemetry.metrics import Metrics

_TRIES: Final = 5
_LOOK_SECONDS: Final = 0.5
MOST_SECONDS: Final = 10.0
"""A tenant can annotate any number of claims, and a webhook can refuse every write; decisions wait no longer than this."""
_MOST_AT_ONCE: Final = 16
_LOG = structlog.get_logger(__name__)


class ClaimWriter:
    """Writes allocations, reservations and their release, and assumes in the ledger what the API server stored."""

    def __init__(self, ledger: Ledger, claims: Claims, metrics: Metrics) -> None:
        self._ledger = ledger
        self._claims = claims
        self._metrics = metrics

    async def allocate(
        self, record: ClaimRecord, placement: ClaimPlacement, consumer: ConsumerReference, live: bytes = b""
    ) -> ClaimRecord:
        """Store this allocation, reserved for the consumer; returns the claim as the API server stores it.

        `live`: the claim as it was read a moment ago, used if the ledger does not keep the whole claim.

        Raises:
            OutcomeUnknownError: the API server does not answer any more, or reports conflicts only.
            RetryableError: the claim does not exist any more, is being deleted, or was allocated by another scheduler; or the API
                server refused a write, or does not keep shares (then the allocation is released).
        """
        key, snapshot = record.claim.metadata.key, encode_snapshot(placement.allocation, placement.holdings)
        allocation = placement.allocation
        if self._claims.keeps_groups:
            allocation = with_groups(allocation, placement.holdings)

        async def write_allocation(raw: bytes) -> bytes:
            claim = read_claim(raw)
            if claim.status.allocation is not None:
                if _is_written(claim, placement.allocation, snapshot):
                    if claim.reserved_by(consumer.uid):
                        return raw
                    with self._counted("reserve"):
                        return await self._claims.update_status(*key, with_reservations(raw, (consumer,)))
                raise RetryableError(f"claim {claim.metadata.full_name} was allocated by another scheduler")
            if not has_finalizer_and_snapshot(claim, snapshot):
                with self._counted("prepare"):
                    raw = await self._claims.update(*key, with_finalizer_and_snapshot(claim, snapshot))
            with self._counted("allocate"):
                return await self._claims.update_status(*key, with_allocation(raw, allocation, consumer))

        stored = await self._write_with_retries(record, write_allocation, live=live)
        await self.release_if_shares_lost(stored, consumer.uid)
        stored_allocation = stored.claim.status.allocation
        if stored_allocation is None or not same_devices(stored_allocation, placement.allocation):
            raise RetryableError(f"claim {stored.claim.metadata.full_name}: the API server did not keep the allocation")
        for field in dropped_fields(allocation, stored_allocation):
            self._metrics.stripped_fields.labels(field).inc()
        stored.written, stored.written_for = stored_allocation, frozenset((consumer.uid,))
        return stored

    async def reserve(
        self, record: ClaimRecord, reservations: Sequence[tuple[ConsumerReference, int]]
    ) -> frozenset[str]:
        """Add consumers to an allocated claim in one update, as far as they are missing and there is room.

        `reservations`: consumers, each with the number of entries that the claim may have at most, including the consumer's own.
        Return the UIDs of the consumers for which there is no room.
        """
        added: set[str] = set()

        async def write_reservations(raw: bytes) -> bytes:
            claim = read_claim(raw)
            if claim.status.allocation is None:
                raise RetryableError(f"claim {claim.metadata.full_name} was deallocated meanwhile")
            missing: list[ConsumerReference] = []
            for consumer, limit in reservations:
                if not claim.reserved_by(consumer.uid) and consumer not in missing:
                    free = self._ledger.group_entry_trials.free_entries(claim, consumer.uid, limit)
                    if free > len(missing):
                        missing.append(consumer)
            added.update(consumer.uid for consumer in missing)
            if not missing:
                return raw
            with self._counted("reserve"):
                return await self._claims.update_status(*claim.metadata.key, with_reservations(raw, missing))

        stored = await self._write_with_retries(record, write_reservations)
        if stored.claim.status.allocation is None:
            # The watch may bring a later state before the answer.
            raise RetryableError(f"claim {stored.claim.metadata.full_name} was deallocated meanwhile")
        stored.written_for |= added
        return frozenset(entry.uid for entry, _ in reservations if not stored.claim.reserved_by(entry.uid))

    async def read_stored(self, record: ClaimRecord) -> None:
        """Read the claim until the API server answers, and assume what it stores; never raises."""
        namespace, name = record.claim.metadata.key
        uid = record.claim.metadata.uid
        while True:
            try:
                raw = await self._claims.read(namespace, name)
                if read_claim(raw).metadata.uid == uid:
                    self._ledger.assume_written(raw)
            except NotFoundError:
                self._ledger.claim_gone(namespace, name, uid)
            except ClusterError:
                await asyncio.sleep(_LOOK_SECONDS)
                continue
            except ModelError:
                pass
            return

    async def restore(self, record: ClaimRecord, snapshot: str) -> None:
        """Put the finalizer and this snapshot back on an allocation of ours, where another client removed them while it is in use.

        Without the finalizer the claim could be deleted under a running pod, and its devices be allocated to another.
        """
        allocation = record.claim.status.allocation

        async def write_back(raw: bytes) -> bytes:
            claim = read_claim(raw)
            stored = claim.status.allocation
            if (
                stored is None
                or allocation is None
                or not same_allocation(stored, allocation)
                or has_finalizer_and_snapshot(claim, snapshot)
            ):
                return raw
            with self._counted("prepare"):
                return await self._claims.update(*claim.metadata.key, with_finalizer_and_snapshot(claim, snapshot))

        await self._write_with_retries(record, write_back)

    async def release_if_shares_lost(self, record: ClaimRecord, consumer_uid: str) -> None:
        """Release an allocation of ours whose shares the API server did not store as shares, and raise.

        An earlier process may have written it and ended before it could look at the answer.
        """
        lost = lost_share(record.claim)
        if lost is None:
            return
        self._metrics.stripped_fields.labels(lost.field).inc()
        await self.release(record, (consumer_uid,))
        raise RetryableError(
            f"claim {record.claim.metadata.full_name}: the API server does not keep {lost.field} of a share "
            f"(DRAConsumableCapacity is off there?), so device {'/'.join(lost.device_id)} would not be shared as decided"
        )

    async def release(
        self, record: ClaimRecord, consumers: Collection[str], *, deallocates: bool = True, if_unchanged: bool = False
    ) -> bool:
        """Remove the reservations of these consumers (UIDs), and the allocation with its snapshot if no reservation is left.

        Without `deallocates` the allocation stays.  With no consumers only an allocation without reservations is removed.  Nothing
        is written if the claim is not allocated as in `record` any more.  Whose allocation it is does not matter here: the caller
        knows.  With `if_unchanged` there is one try, which writes nothing if anything about the claim has changed since `record`.

        Return whether the claim is without an allocation now.
        """
        key, allocation = record.claim.metadata.key, record.claim.status.allocation

        async def write_release(raw: bytes) -> bytes:
            claim = read_claim(raw)
            stored = claim.status.allocation
            if stored is None or allocation is None or not same_allocation(stored, allocation):
                return raw
            remaining = [entry for entry in claim.status.reserved_for if entry.uid not in consumers]
            if remaining and len(remaining) == len(claim.status.reserved_for):
                return raw
            if remaining or not deallocates:
                with self._counted("unreserve"):
                    return await self._claims.update_status(*key, without_reservations(raw, consumers))
            with self._counted("release"):
                raw = await self._claims.update_status(*key, without_allocation(raw))
            # The ledger reports the end of the allocation before the next write.
            self._ledger.assume_written(raw)
            released = read_claim(raw)
            if SNAPSHOT_ANNOTATION not in released.metadata.annotations:
                return raw
            with self._counted("prepare"):
                return await self._claims.update(*key, without(released, snapshot=True))

        try:
            stored = await self._write_with_retries(record, write_release, dying=True, if_unchanged=if_unchanged)
        except ClaimGoneError:
            return True
        return stored.claim.status.allocation is None

    async def create(self, namespace: str, body: bytes, owner: tuple[str, str]) -> ClaimRecord:
        """Store a new claim for an owner (its API group and kind); raises a ClusterError, unlike the other writes."""
        counted = partial(self._metrics.upstream.claim_made, owner, admin_access=asks_admin_access(body))
        try:
            with self._counted("create"):
                stored = await self._claims.create(namespace, body)
        except ClusterError as problem:
            if not isinstance(problem, ConflictError):
                counted(success=False)
            raise
        counted(success=True)
        return self._ledger.assume_written(stored)

    async def discard(self, record: ClaimRecord) -> None:
        """Delete the claim whatever is allocated to it; returns when it does not exist any more."""
        namespace, name = record.claim.metadata.key

        async def write_and_delete(raw: bytes) -> bytes:
            claim = read_claim(raw)
            # In this order a stop between two writes leaves no allocation that nothing protects.
            if claim.status.allocation is not None:
                with self._counted("release"):
                    raw = await self._claims.update_status(namespace, name, without_allocation(raw))
                self._ledger.assume_written(raw)
                claim = read_claim(raw)
            if FINALIZER in claim.metadata.finalizers:
                with self._counted("prepare"):
                    raw = await self._claims.update(namespace, name, without(claim, finalizer=True))
            with self._counted("discard"):
                await self._claims.delete(namespace, name, claim.metadata.uid)
            return raw

        try:
            await self._write_with_retries(record, write_and_delete, dying=True)
            if read_claim(await self._claims.read(namespace, name)).metadata.uid == record.claim.metadata.uid:
                raise RetryableError(f"claim {namespace}/{name} is being deleted")
        except (ClaimGoneError, NotFoundError):
            pass
        except (ClusterError, ModelError) as problem:
            raise RetryableError(f"claim {namespace}/{name}: {problem}") from problem
        self._ledger.claim_gone(namespace, name, record.claim.metadata.uid)

    async def withdraw_snapshots(self) -> None:
        """Take the snapshot off every claim that has one and no allocation, before the first decision of a new leader.

        An allocation that an earlier leader has sent and the API server has not received fails then: it was sent after its snapshot
        was stored (`allocate`), in the version that the claim had then.  Each write is retried until the API server answers, for at
        most `MOST_SECONDS` in total; namespaces take turns.  The ledger must contain every claim that the earlier leader stored.
        """
        by_namespace: dict[str, list[ClaimRecord]] = {}
        for record in self._ledger.claims.records():
            if record.claim.status.allocation is None and SNAPSHOT_ANNOTATION in record.claim.metadata.annotations:
                by_namespace.setdefault(record.claim.metadata.namespace, []).append(record)
        prepared = [record for turn in zip_longest(*by_namespace.values()) for record in turn if record is not None]
        waiting = iter(prepared)

        async def withdraw_waiting() -> None:
            for record in waiting:
                await self._withdraw_snapshot(record)

        writers = [withdraw_waiting() for _ in prepared[:_MOST_AT_ONCE]]
        with suppress(TimeoutError):
            async with asyncio.timeout(MOST_SECONDS):
                await asyncio.gather(*writers)
                return
        _LOG.warning("some claims keep their snapshots", seconds=MOST_SECONDS, claims=len(prepared))

    async def _withdraw_snapshot(self, record: ClaimRecord) -> None:
        meta = record.claim.metadata
        change = MetadataChange(meta.uid, meta.resource_version, annotations={SNAPSHOT_ANNOTATION: None})
        while True:
            try:
                self._ledger.assume_written(await self._claims.update(*meta.key, change))
            except (ConflictError, NotFoundError):
                # The claim is in another version already.
                await self.read_stored(record)
            except ServerUnavailableError:
                await asyncio.sleep(_LOOK_SECONDS)
                continue
            except ClusterError as refused:
                _LOG.warning("a claim keeps its snapshot", claim=meta.full_name, problem=str(refused))
            return

    async def _write_with_retries(
        self,
        record: ClaimRecord,
        write: Callable[[bytes], Awaitable[bytes]],
        *,
        live: bytes = b"",
        dying: bool = False,
        if_unchanged: bool = False,
    ) -> ClaimRecord:
        """Run `write` on the known object, or on the live one if it is not kept; after a conflict or an unknown outcome again.

        `live`: the live one, if it has been read already.  `dying`: also on a claim that is being deleted.  `if_unchanged`: once,
        on no other version than that in `record`.
        """
        namespace, name = record.claim.metadata.key
        uid, raw, version = record.claim.metadata.uid, record.raw or live, record.claim.metadata.resource_version
        unclear: ClusterError | None = None
        failed: type[RetryableError] = RetryableError
        for _ in range(1 if if_unchanged else _TRIES):
            try:
                if unclear is not None or not raw:
                    raw = await self._claims.read(namespace, name)
                claim = read_claim(raw)
                if claim.metadata.uid != uid:
                    raise ClaimGoneError(f"claim {claim.metadata.full_name} was replaced by another of the same name")
                if if_unchanged and claim.metadata.resource_version != version:
                    raise RetryableError(f"claim {claim.metadata.full_name} has changed")
                if claim.metadata.deletion_timestamp is not None and not dying:
                    raise failed(f"claim {claim.metadata.full_name} is being deleted")
                return self._ledger.assume_written(await write(raw))
            except (ConflictError, ServerUnavailableError) as again:
                # A conflict, too: a request that is sent twice, by the client or a proxy, may be in conflict with itself.
                unclear, failed = again, OutcomeUnknownError
            except NotFoundError as gone:
                raise ClaimGoneError(f"claim {namespace}/{name} does not exist any more") from gone
            except ClusterError as refused:
                raise failed(f"claim {namespace}/{name}: {refused}") from refused
            except ModelError as unreadable:
                raise failed(f"claim {namespace}/{name} cannot be read: {unreadable}") from unreadable
        raise failed(f"claim {namespace}/{name}: {unclear}") from unclear

    @contextmanager
    def _counted(self, step: str) -> Iterator[None]:
        """Count the write inside by its step and its outcome."""
        try:
            yield
        except ClusterError as problem:
            self._metrics.claim_writes.labels(step, type(problem).__name__.lower()).inc()
            raise
        self._metrics.claim_writes.labels(step, "ok").inc()


class OutcomeUnknownError(RetryableError):
    """The API server did not answer, or reported a conflict: the write may be stored, or not."""


class ClaimGoneError(RetryableError):
    """The claim was deleted, or replaced by another of the same name."""


def same_devices(left: AllocationResult, right: AllocationResult) -> bool:
    """Return whether both give the same devices, under the same share names, to the same requests."""
    return _identity(left) == _identity(right)


def same_allocation(left: AllocationResult, right: AllocationResult) -> bool:
    """Return whether both give the same devices and were made at the same time."""
    return left.allocation_timestamp == right.allocation_timestamp and same_devices(left, right)


def dropped_fields(written: AllocationResult, stored: AllocationResult) -> Iterable[str]:
    """Return the fields of the written allocation that are not in the stored one; the devices must be the same.

    The time is left out: 1.34 drops it while binding conditions are off, and the snapshot has it anyway.
    """
    for sent, received in zip(written.devices.results, stored.devices.results, strict=True):
        if sent.tolerations != received.tolerations:
            yield "tolerations"
        if sent.binding_conditions != received.binding_conditions:
            yield "bindingConditions"
        if sent.compatibility_groups is not None and received.compatibility_groups is None:
            yield "compatibilityGroups"


def _identity(allocation: AllocationResult) -> list[tuple[str, str, str, str, str | None]]:
    return [(result.request, *result.device_id, result.share_id) for result in allocation.devices.results]


def has_finalizer_and_snapshot(claim: ClaimHead, snapshot: str) -> bool:
    metadata = claim.metadata
    return FINALIZER in metadata.finalizers and metadata.annotations.get(SNAPSHOT_ANNOTATION) == snapshot


def _is_written(claim: ClaimHead, written: AllocationResult, snapshot: str) -> bool:
    """Return whether the claim has what we write: our write may be stored without its share IDs although its answer was lost."""
    stored = claim.status.allocation
    if stored is None or same_devices(stored, written):
        return stored is not None
    return claim.metadata.annotations.get(SNAPSHOT_ANNOTATION) == snapshot and lost_share(claim) is not None
