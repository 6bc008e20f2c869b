"""The writes that make an allocation real, each idempotent and resumable from the stored object alone.

Finalizer and snapshot annotation go first, in one update: a status write cannot change metadata, and an allocation without the
finalizer would never be cleaned up.  Allocation, timestamp and reservation follow in one status update.
"""

from collections.abc import Awaitable, Callable
from typing import Final

from app.ledger.claims import ClaimRecord
from app.ledger.ledger import Ledger
from app.model.allocation import AllocationResult, ClaimPlacement, DeviceResult
from app.model.base import ModelError
from app.model.pod import Pod
from app.model.quantity import parse_quantity
from app.model.resource_claim import FINALIZER, ConsumerReference, ResourceClaim, read_claim
from app.model.snapshot import SNAPSHOT_ANNOTATION, encode_snapshot
from app.model.writeback import (
    with_allocation,
    with_finalizer_and_snapshot,
    with_reservation,
    without_allocation,
    without_snapshot,
)
from app.scheduling.answers import TryAgain
from app.scheduling.ports import Claims, ClusterError, Conflict, NotFound, Unavailable
from app.telemetry.metrics import Metrics

_TRIES: Final = 5


class ClaimWriting:
    """Writes allocations, reservations and their undoing, and keeps the ledger abreast of the answers."""

    def __init__(self, ledger: Ledger, claims: Claims, metrics: Metrics) -> None:
        self._ledger = ledger
        self._claims = claims
        self._metrics = metrics

    async def allocate(
        self, record: ClaimRecord, placement: ClaimPlacement, consumer: ConsumerReference
    ) -> ClaimRecord:
        """Store this allocation, reserved for the consumer; returns what the server has then.

        Raises:
            TryAgain: the claim is gone, going, or was allocated by somebody else; or the server could not be written to, or does
                not keep shares (the allocation is taken back then).
        """
        snapshot = encode_snapshot(placement.allocation, placement.holdings)

        async def write(raw: bytes) -> bytes:
            claim = read_claim(raw)
            if claim.status.allocation is not None:
                if _is_ours(claim, placement.allocation, consumer):
                    return await self._reserve_once(raw, claim, consumer)
                raise TryAgain(f"claim {_name(claim)} was allocated by another scheduler")
            if (
                FINALIZER not in claim.metadata.finalizers
                or claim.metadata.annotations.get(SNAPSHOT_ANNOTATION) != snapshot
            ):
                raw = await self._update(claim, with_finalizer_and_snapshot(raw, snapshot))
            return await self._update_status("allocate", claim, with_allocation(raw, placement.allocation, consumer))

        stored = await self._persist(record, write)
        lost = _lost_share(stored.claim, placement.allocation)
        if lost is not None:
            self._metrics.stripped(lost[0])
            await self._take_back(stored, consumer.uid)
            raise TryAgain(
                f"claim {_name(stored.claim)}: the API server does not keep {lost[0]} of a share (DRAConsumableCapacity is off "
                f"there?), so device {'/'.join(lost[1])} would not be shared as decided"
            )
        self._check_kept(stored.claim, placement.allocation)
        return stored

    async def reserve(self, record: ClaimRecord, consumer: ConsumerReference) -> ClaimRecord:
        """Add the consumer to an allocated claim; returns what the server has then.

        Raises:
            TryAgain: the claim is gone, going, or not allocated any more; or the server could not be written to.
        """

        async def write(raw: bytes) -> bytes:
            claim = read_claim(raw)
            if claim.status.allocation is None:
                raise TryAgain(f"claim {_name(claim)} was deallocated meanwhile")
            return await self._reserve_once(raw, claim, consumer)

        return await self._persist(record, write)

    async def undo(self, record: ClaimRecord, pod: Pod) -> None:
        """Take back an allocation that only this pod uses, with its snapshot.

        Raises:
            TryAgain: it could not be taken back; the next bind of the pod finds it.
        """
        await self._take_back(record, pod.uid)

    async def _take_back(self, record: ClaimRecord, consumer_uid: str) -> None:
        async def write(raw: bytes) -> bytes:
            claim = read_claim(raw)
            others = [each for each in claim.status.reserved_for if each.uid != consumer_uid]
            if claim.status.allocation is None or others:
                return raw
            raw = await self._update_status("undo", claim, without_allocation(raw))
            return await self._update(claim, without_snapshot(raw))

        await self._persist(record, write)

    async def _reserve_once(self, raw: bytes, claim: ResourceClaim, consumer: ConsumerReference) -> bytes:
        if claim.reserved_by(consumer.uid):
            return raw
        return await self._update_status("reserve", claim, with_reservation(raw, consumer))

    async def _persist(self, record: ClaimRecord, write: Callable[[bytes], Awaitable[bytes]]) -> ClaimRecord:
        """Run `write` on the known object; after a conflict or an unknown outcome run it again on the live one."""
        namespace, name = record.claim.metadata.key
        uid, raw = record.claim.metadata.uid, record.raw
        problem: ClusterError | None = None
        for _ in range(_TRIES):
            try:
                if problem is not None:
                    raw = await self._claims.read(namespace, name)
                _check_alive(read_claim(raw), uid)
                return self._ledger.own_write(await write(raw))
            except (Conflict, Unavailable) as again:
                problem = again
            except NotFound as gone:
                raise TryAgain(f"claim {namespace}/{name} does not exist any more") from gone
            except ClusterError as refused:
                raise TryAgain(f"claim {namespace}/{name}: {refused}") from refused
            except ModelError as unreadable:
                raise TryAgain(f"claim {namespace}/{name} cannot be read: {unreadable}") from unreadable
        raise TryAgain(f"claim {namespace}/{name}: {problem}") from problem

    async def _update(self, claim: ResourceClaim, body: bytes) -> bytes:
        return await self._counted("prepare", self._claims.update(*claim.metadata.key, body))

    async def _update_status(self, step: str, claim: ResourceClaim, body: bytes) -> bytes:
        return await self._counted(step, self._claims.update_status(*claim.metadata.key, body))

    async def _counted(self, step: str, call: Awaitable[bytes]) -> bytes:
        try:
            answer = await call
        except ClusterError as problem:
            self._metrics.claim_write(step, type(problem).__name__.lower())
            raise
        self._metrics.claim_write(step, "ok")
        return answer

    def _check_kept(self, claim: ResourceClaim, written: AllocationResult) -> None:
        """Compare what the server kept with what was sent: dropped fields are counted, dropped devices are refused."""
        kept = claim.status.allocation
        if kept is None or not _same_results(kept, written):
            raise TryAgain(f"claim {_name(claim)}: the API server did not keep the allocation")
        if kept.allocation_timestamp != written.allocation_timestamp:
            self._metrics.stripped("allocationTimestamp")
        for sent, stored in zip(written.devices.results, kept.devices.results, strict=True):
            if sent.tolerations != stored.tolerations:
                self._metrics.stripped("tolerations")
            if sent.binding_conditions != stored.binding_conditions:
                self._metrics.stripped("bindingConditions")


def _check_alive(claim: ResourceClaim, uid: str) -> None:
    if claim.metadata.uid != uid:
        raise TryAgain(f"claim {_name(claim)} was replaced by another of the same name")
    if claim.metadata.deletion_timestamp is not None:
        raise TryAgain(f"claim {_name(claim)} is being deleted")


def _name(claim: ResourceClaim) -> str:
    return "/".join(claim.metadata.key)


def _is_ours(claim: ResourceClaim, written: AllocationResult, consumer: ConsumerReference) -> bool:
    """Whether the claim has what we write: perhaps our own write arrived although its answer was lost, and share ids with it."""
    stored = claim.status.allocation
    if stored is None or _same_results(stored, written):
        return stored is not None
    return claim.reserved_by(consumer.uid) and _lost_share(claim, written) is not None


def _lost_share(claim: ResourceClaim, written: AllocationResult) -> tuple[str, tuple[str, str, str]] | None:
    """(field, device) of the first share that is stored without its id or without its amounts, where all else is as written."""
    stored = claim.status.allocation
    if stored is None:
        return None
    pairs = list(zip(stored.devices.results, written.devices.results, strict=False))
    lengths_differ = len(stored.devices.results) != len(written.devices.results)
    if lengths_differ or any((a.request, a.device_id) != (b.request, b.device_id) for a, b in pairs):
        return None
    for kept, sent in pairs:
        if sent.share_id is not None and kept.share_id is None:
            return "shareID", sent.device_id
        if kept.share_id == sent.share_id and _amounts(kept) != _amounts(sent):
            return "consumedCapacity", sent.device_id
    return None


def _amounts(result: DeviceResult) -> dict[str, int]:
    return {name: parse_quantity(text) for name, text in (result.consumed_capacity or {}).items()}


def _same_results(left: AllocationResult, right: AllocationResult) -> bool:
    return [(each.request, *each.device_id, each.share_id) for each in left.devices.results] == [
        (each.request, *each.device_id, each.share_id) for each in right.devices.results
    ]
