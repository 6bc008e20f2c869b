from collections.abc import Mapping
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
from dra_extender.scheduling.claims.kept_fields import same_allocation
from dra_extender.scheduling.claims.writer import ClaimWriting
from dra_extender.scheduling.evaluation.device_backoff import DeviceBackoff
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
from dra_extender.scheduling.reclaim.rules import NOT_READY, WORDS, ReclaimReason, permitted

RELEASED_REASON = "DevicesReleased"
_TRIES: Final = 5

_LOG = structlog.get_logger(__name__)


class ReclaimResult(StrEnum):
    """What became of taking something back; also a label of the metric."""

    DONE = "done"
    CHANGED = "changed"
    FOREIGN = "foreign"
    FAILED = "failed"


class ReclaimWriting:
    """Takes back what one claim has too much, after a look at the live objects: the caches may be behind."""

    def __init__(
        self,
        ledger: Ledger,
        cluster: Cluster,
        writing: ClaimWriting,
        facts: ReclaimFacts,
        cool_downs: DeviceBackoff,
        field_manager: str,
    ) -> None:
        """`field_manager`: the name under which this service writes; what others wrote stays."""
        self._ledger = ledger
        self._cluster = cluster
        self._writing = writing
        self._facts = facts
        self._cool_downs = cool_downs
        self._us = field_manager

    async def __call__(self, record: ClaimRecord, expected: ReclaimableClaim, tied: AbstractSet[str]) -> ReclaimResult:
        """Take back what was found, if the live claim and its live consumers still say the same and it is ours to take.

        Few attempts, if others write to the claim at the same time: whatever has changed meanwhile is looked at again later.
        """
        outcome = None
        for _ in range(_TRIES):
            outcome = await self._attempt(record, expected, tied)
            if outcome is not None:
                return outcome
        return ReclaimResult.CHANGED

    async def _attempt(
        self, record: ClaimRecord, expected: ReclaimableClaim, tied: AbstractSet[str]
    ) -> ReclaimResult | None:
        """None: somebody else wrote between our read and our write."""
        key = record.claim.metadata.key
        try:
            raw = await self._cluster.claims.read(*key)
            claim = read_claim(raw)
            first = self._facts.find(claim, tied)
            if first is None or first.state != expected.state:
                return ReclaimResult.CHANGED
            live = await self._consumers(claim, first)
            found = self._facts.find(claim, tied, live)
            if found is None or found.state != expected.state or found.surplus != first.surplus:
                return ReclaimResult.CHANGED
            who = _with_memory(writers_of(raw), record, claim, self._us)
            if not permitted(found.surplus, claim, found.standings, who, self._us):
                return ReclaimResult.FOREIGN
            await self._write(claim, raw, found, who)
        except ConflictError:
            return None
        except (NotFoundError, ServerUnavailableError):
            return ReclaimResult.CHANGED
        except RetryableError as problem:
            return self._not_written(key, problem)
        except (ClusterError, ModelError) as problem:
            return self._failed(key, problem)
        self._tell(claim, found, live)
        return ReclaimResult.DONE

    def _not_written(self, key: tuple[str, str], problem: RetryableError) -> ReclaimResult | None:
        if isinstance(problem.__cause__, ConflictError):
            return None
        return (
            self._failed(key, problem) if isinstance(problem.__cause__, RequestRejectedError) else ReclaimResult.CHANGED
        )

    async def _consumers(self, claim: ClaimHead, expected: ReclaimableClaim) -> Mapping[str, Pod | None]:
        """The pods whose reservation is to go, as they are now; those of a PodGroup are its members."""
        live: dict[str, Pod | None] = {}
        namespace = claim.metadata.namespace
        for consumer in claim.status.reserved_for:
            if consumer.uid in expected.surplus.consumers:
                members = self._facts.members(namespace, consumer)
                if members is None and is_group(consumer):
                    await self._check_gone(namespace, consumer)
                    members = self._facts.users(claim, consumer)
                named = (
                    [(consumer.uid, consumer.name)] if members is None else [(each.uid, each.name) for each in members]
                )
                for uid, name in named:
                    live[uid] = await self._pod(namespace, name, uid)
        return live

    async def _check_gone(self, namespace: str, consumer: ConsumerReference) -> None:
        """Raise RetryableError if the PodGroup exists after all: our watch may be behind."""
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

    async def _write(self, claim: ResourceClaim, raw: bytes, found: ReclaimableClaim, who: Writers) -> None:
        record = ClaimRecord(claim, raw)
        half_written = found.surplus.reason is ReclaimReason.HALF_WRITTEN
        if claim.extended_for and (half_written or found.surplus.release):
            # It is good for this one attempt of its pod; the next makes another.
            await self._writing.discard(record)
            return
        if not half_written:
            await self._writing.release(record, found.surplus.consumers, tries=1)
            return
        metadata = claim.metadata
        change = without(
            claim,
            finalizer=FINALIZER in metadata.finalizers and self._us in who.finalizer,
            snapshot=SNAPSHOT_ANNOTATION in metadata.annotations and self._us in who.snapshot,
        )
        self._ledger.assume_written(await self._cluster.claims.update(*metadata.key, change))

    def _failed(self, key: tuple[str, str], problem: Exception) -> ReclaimResult:
        _LOG.warning("a claim could not be taken back", claim="/".join(key), problem=str(problem))
        return ReclaimResult.FAILED

    def _tell(self, claim: ClaimHead, found: ReclaimableClaim, live: Mapping[str, Pod | None]) -> None:
        allocation = claim.status.allocation
        devices = [] if allocation is None else ["/".join(each.device_id) for each in allocation.devices.results]
        name = "/".join(claim.metadata.key)
        _LOG.info(
            "took back a claim" if found.surplus.release else "took back a part of a claim",
            reason=found.surplus.reason,
            claim=name,
            devices=devices,
            consumers=[each.name for each in claim.status.reserved_for if each.uid in found.surplus.consumers],
        )
        troubled = self._facts.troubled(claim)
        for pod in live.values():
            if pod is not None and not (pod.node_name or pod.finished):
                if found.surplus.reason in NOT_READY:
                    self._cool_downs.start(pod.uid, troubled)
                message = f"the devices of claim {name} were given back: {WORDS[found.surplus.reason]}"
                self._cluster.events.about_pod(pod, warning=False, reason=RELEASED_REASON, message=message)


def _with_memory(who: Writers, record: ClaimRecord, claim: ResourceClaim, us: str) -> Writers:
    """The writers that the claim names, and us where this process remembers its write.

    Whoever may write the claim may write its managed fields, and so keep our allocation from being taken back.
    """
    stored = claim.status.allocation
    if stored is None or record.written is None or not same_allocation(stored, record.written):
        return who
    ours = {uid: who.reserved(uid) | {us} for uid in record.written_for}
    return replace(who, allocation=who.allocation | {us}, reservations={**who.reservations, **ours})
