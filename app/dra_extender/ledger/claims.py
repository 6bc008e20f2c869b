import asyncio
from collections.abc import Callable, Hashable, Iterable
from typing import Final, Generic, TypeVar

from dra_extender.ledger.claim_record import (
    ClaimRecord,
    KeptBytes,
    PartlyReadClaim,
    Specs,
    digest_of_spec,
    kept_bytes,
    kept_form,
    read_partly,
    without_spec,
)
from dra_extender.ledger.notifier import Notifier
from dra_extender.ledger.orphans import Orphans
from dra_extender.ledger.set_index import discard_member
from dra_extender.ledger.usage import UsageChange, UsageTable
from dra_extender.model.allocation import AllocationResult, ClaimPlacement, DeviceHolding
from dra_extender.model.allocation_snapshot import contradiction, holdings_of
from dra_extender.model.api_json import ModelError
from dra_extender.model.device import DeviceId
from dra_extender.model.metadata import ObjectIdentity, version_number
from dra_extender.model.resource_claim import OWN_ENTRIES, ClaimHead, detached, read_claim, read_identity
from dra_extender.model.templated_claim import generated_for
from dra_extender.runtime.caches import LruCache

K = TypeVar("K", bound=Hashable)

_MOST_DELETED_UIDS: Final = 20_000


class ClaimsByOwner(Generic[K]):
    """UIDs of claims by the owner that each claim names in its present form.

    A user with the right to change a claim may change the owner that it names.  So the index keeps the key of each claim.
    """

    def __init__(self, owner_of: Callable[[ClaimHead], K | None]) -> None:
        """`owner_of` returns the key of a claim, None if the claim names no owner."""
        self._owner_of = owner_of
        self._claims: dict[K, tuple[str, ...]] = {}
        self._keys: dict[str, K] = {}

    def claims_of(self, owner: K) -> tuple[str, ...]:
        """Return the UIDs of the claims of this owner, in the order in which they were added."""
        return self._claims.get(owner, ())

    def put(self, claim: ClaimHead) -> None:
        """Add a claim, or take over its present owner."""
        uid, key = claim.metadata.uid, self._owner_of(claim)
        if self._keys.get(uid) == key:
            return
        self.drop(uid)
        if key is not None:
            self._claims[key] = (*self._claims.get(key, ()), uid)
            self._keys[uid] = key

    def drop(self, uid: str) -> None:
        key = self._keys.pop(uid, None)
        if key is None:
            return
        remaining = tuple(claim for claim in self._claims.pop(key) if claim != uid)
        if remaining:
            self._claims[key] = remaining


class ClaimIndex:
    """Claims by UID, by name and by consumer, and what all of them hold (`usage`), orphaned allocations included.

    `contradicted`: UID of a claim whose allocation and annotation differ in groups -> the first such device; the allocation counts.
    """

    def __init__(
        self,
        users: Callable[[ClaimHead], Iterable[str]] = lambda _: (),
        namespace_bytes: int = 0,
        specs_dropped: Callable[[str], None] = lambda _: None,
    ) -> None:
        """Begin with nothing.

        `users`: returns the UIDs of the pods that run on the devices of a claim.  `namespace_bytes`: what is kept of the claims of
        one namespace (0: all); `specs_dropped`: called with a namespace when its claims begin to exceed that, without their specs.
        """
        self._users = users
        self._by_uid: dict[str, ClaimRecord] = {}
        self._by_key: dict[tuple[str, str], str] = {}
        self._by_consumer: dict[str, set[str]] = {}
        self._deleted: LruCache[str, None] = LruCache(_MOST_DELETED_UIDS)
        # Who waits for the next change or delivery of a claim, by its UID.
        self._waiting: dict[str, Notifier] = {}
        # From the beginning of a list until one is complete.
        self._listing = False
        self._extended: ClaimsByOwner[tuple[str, str]] = ClaimsByOwner(
            lambda claim: (claim.metadata.namespace, claim.extended_for) if claim.extended_for else None
        )
        self._generated: ClaimsByOwner[tuple[str, str, str]] = ClaimsByOwner(
            lambda claim: None if (owner := generated_for(claim)) is None else (claim.metadata.namespace, *owner)
        )
        self._specs = Specs()
        self.kept = KeptBytes(namespace_bytes, specs_dropped)
        self.orphans = Orphans()
        self.usage = UsageTable()
        self.contradicted: dict[str, DeviceId] = {}

    def __len__(self) -> int:
        return len(self._by_uid)

    def records(self) -> Iterable[ClaimRecord]:
        return self._by_uid.values()

    def counted(self) -> Iterable[ClaimRecord]:
        """Yield all claims, and those deleted ones whose devices pods still use."""
        yield from self._by_uid.values()
        for orphan in self.orphans.all():
            yield orphan.record

    def by_uid(self, uid: str) -> ClaimRecord | None:
        return self._by_uid.get(uid)

    def by_key(self, namespace: str, name: str) -> ClaimRecord | None:
        uid = self._by_key.get((namespace, name))
        return None if uid is None else self._by_uid.get(uid)

    def for_extended_resources(self, namespace: str, pod_uid: str) -> tuple[ClaimRecord, ...]:
        """Return the claims for the extended resources of this pod; more than one only after a failure.

        A claim names its owner only by UID, and its author may name any.  Only an owner in the same namespace counts.
        """
        return tuple(self._by_uid[claim] for claim in self._extended.claims_of((namespace, pod_uid)))

    def made_for(self, namespace: str, owner_uid: str, entry: str) -> tuple[ClaimRecord, ...]:
        """Return the claims in the owner's namespace that were made from a template for this entry of a pod or PodGroup.

        They are more than one only after a failure.
        """
        return tuple(self._by_uid[claim] for claim in self._generated.claims_of((namespace, owner_uid, entry)))

    def of_consumer(self, uid: str) -> tuple[ClaimRecord, ...]:
        return tuple(self._by_uid[claim] for claim in sorted(self._by_consumer.get(uid, ())))

    def used_only_by(self, consumers: Iterable[str]) -> list[ClaimRecord]:
        """Return the claims that these consumers (UIDs) use and no other does."""
        uids = dict.fromkeys(consumers)
        records = {record.claim.metadata.uid: record for uid in uids for record in self.of_consumer(uid)}
        return [
            record
            for record in records.values()
            if all(consumer.uid in uids for consumer in record.claim.status.reserved_for)
        ]

    def store(self, data: bytes, *, from_watch: bool) -> tuple[ClaimRecord, UsageChange]:
        """Take over an object as the server has it; a version older than the known one changes nothing.

        Raises:
            ModelError: the object cannot be read; nothing has changed then.  Not raised for a spec or a status that cannot be
                read if the watch brings it with an allocation: its devices count.
        """
        try:
            identity = read_identity(data)
        except ModelError:
            identity = ObjectIdentity()
        stored = self._by_uid.get(identity.uid)
        if (
            stored is not None
            and not stored.unreadable
            and stored.claim.metadata.resource_version == identity.resource_version
            and version_number(identity.resource_version)
        ):
            # The watch brings a write of ours.
            self._note_delivery(stored, stored.claim, stored.claim.status.allocation, from_watch=from_watch)
            return stored, UsageChange()
        read = self._read(data, from_watch=from_watch)
        claim = kept_form(read.claim, len(data))
        uid, version = claim.metadata.uid, version_number(claim.metadata.resource_version)
        record = self._by_uid.get(uid)
        freed: tuple[DeviceHolding, ...] = ()
        if from_watch and uid in self._deleted:
            # The watch brings a claim that was deleted: the server's store was set back.  It replaces its orphaned allocation.
            del self._deleted[uid]
            orphan = self.orphans.disown(uid)
            freed = () if orphan is None else orphan.record.holdings
            self.usage.remove(freed)
        if uid in self._deleted:
            return record or ClaimRecord(claim, data, specs=self._specs), UsageChange()
        before = None if record is None else record.claim.status.allocation
        change = UsageChange()
        if record is None:
            previous = self._by_key.get(claim.metadata.key)
            replaced = UsageChange() if previous is None else self.delete(*claim.metadata.key, previous)
            self._by_key[claim.metadata.key] = uid
            record = self._by_uid[uid] = ClaimRecord(claim, b"", specs=self._specs)
            record.set_spec(read.claim, data)
            change = self._update(record, claim, data, read.holdings).after(replaced).after(UsageChange(removed=freed))
            change.created = True
            record.unreadable, record.has_status = read.unreadable, read.has_status
        elif version > version_number(record.claim.metadata.resource_version):
            change = self._update(record, claim, data, read.holdings)
            if record.unreadable and not read.unreadable:
                record.set_spec(read.claim, data)
            record.unreadable, record.has_status = read.unreadable, read.has_status
        self._note_delivery(record, claim, before, from_watch=from_watch)
        return record, change

    def complete(self, record: ClaimRecord, data: bytes) -> str:
        """Take over the spec of a claim from the live object; returns why that is impossible, or an empty text.

        The bytes are kept if they are of the known version and there is room for them by now.
        """
        live = read_claim(data)
        uid = live.metadata.uid
        if uid != record.claim.metadata.uid or self._by_uid.get(uid) is not record:
            return "was deleted, or replaced by another of the same name"
        if digest_of_spec(live, data) != record.spec_digest:
            return "asks for something else than the watch has brought"
        if live.metadata.resource_version == record.claim.metadata.resource_version and not record.unreadable:
            self._keep(record, kept_form(live, len(data)), data)
        if record.has_spec or self._specs.put(uid, record.spec_digest, detached(live.spec), live.metadata.namespace):
            return ""
        return "is too large to be read again when it is needed"

    def delete(self, namespace: str, name: str, uid: str) -> UsageChange:
        """Remove a claim that is gone; a late answer to one of our own writes does not bring it back.

        What pods still use of its stored allocation stays counted.
        """
        uid = uid or self._by_key.get((namespace, name), "")
        if not uid:
            return UsageChange()
        self._deleted[uid] = None
        record = self._by_uid.pop(uid, None)
        self._specs.drop(uid)
        self._fire(uid)
        self.contradicted.pop(uid, None)
        if record is None:
            return UsageChange()
        self.kept.count(record.claim.metadata.namespace, -record.size, without_spec=-(not record.raw))
        if self._by_key.get(record.claim.metadata.key) == uid:
            del self._by_key[record.claim.metadata.key]
        self._index_consumers(record.claim, None)
        self._extended.drop(uid)
        self._generated.drop(uid)
        before = record.counted
        record.pending = None
        orphan = self.orphans.adopt(record, self._users(record.claim))
        kept_holdings = () if orphan is None else record.holdings
        self.usage.remove(before)
        self.usage.add(kept_holdings)
        return UsageChange(removed=before, added=kept_holdings, orphan=orphan)

    def pod_ended(self, pod_uid: str) -> UsageChange:
        """Release what only this pod, which has ended or is gone, used of deleted claims."""
        ended = self.orphans.leave(pod_uid)
        if not ended:
            return UsageChange()
        freed = tuple(holding for orphan in ended for holding in orphan.record.holdings)
        self.usage.remove(freed)
        return UsageChange(removed=freed)

    def begin_pending(self, uid: str, placement: ClaimPlacement) -> UsageChange:
        """Count this allocation before it is written.  The claim must be known and unallocated."""
        record = self._by_uid[uid]
        before, record.pending = record.counted, placement
        return self._recount(record, before)

    def end_pending(self, uid: str) -> UsageChange:
        """Count only what the API server has: our write was stored or given up."""
        record = self._by_uid.get(uid)
        if record is None or record.pending is None:
            return UsageChange()
        before, record.pending = record.counted, None
        return self._recount(record, before)

    def begin_list(self) -> None:
        """Take note that claims are delivered by name from now on: claims that were written before may come later."""
        self._listing = True

    def end_list(self) -> None:
        """Take note that every claim has been delivered, and that the watch goes on in the order of writes."""
        self._listing = False
        for uid in tuple(self._waiting):
            self._fire(uid)

    async def delivered(self, uid: str, resource_version: str, seconds: float) -> bool:
        """Wait until the watch has brought this version or a later one, and every write of a claim before it.

        Returns:
            False if the claim is deleted.

        Raises:
            TimeoutError: the watch is behind by more than `seconds`.
        """
        version = version_number(resource_version)
        # Not `wait_for`, which loses a cancellation that comes together with the delivery.
        async with asyncio.timeout(seconds):
            while (record := self._by_uid.get(uid)) is not None and (self._listing or record.delivered < version):
                await self.change_of(uid).wait()
        return record is not None

    def change_of(self, uid: str) -> Notifier:
        """Return what fires, once, when this claim changes, is delivered or goes away; ask again for the time after."""
        return self._waiting.setdefault(uid, Notifier())

    def _fire(self, uid: str) -> None:
        waiting = self._waiting.pop(uid, None)
        if waiting is not None:
            waiting.fire()

    def _note_delivery(
        self, record: ClaimRecord, claim: ClaimHead, before: AllocationResult | None, *, from_watch: bool
    ) -> None:
        """Note which version the watch has delivered, and which one has brought the allocation; `before`: the one until now."""
        version = version_number(claim.metadata.resource_version) if from_watch else 0
        allocation = claim.status.allocation
        if allocation is None:
            record.allocated_version = 0
        elif allocation != before or not record.allocated_version:
            record.allocated_version = version
        if from_watch:
            record.delivered = max(record.delivered, version)
            self._fire(claim.metadata.uid)

    def _read(self, data: bytes, *, from_watch: bool) -> PartlyReadClaim:
        try:
            claim = read_claim(data)
            return PartlyReadClaim(claim, holdings_of(claim))
        except ModelError as problem:
            if not from_watch:
                raise
            partly = read_partly(data, str(problem))
            record = self._by_uid.get(partly.claim.metadata.uid)
            if (
                partly.has_status
                and partly.claim.status.allocation is None
                and (record is None or not record.unreadable)
            ):
                raise
            return partly

    def _keep(self, record: ClaimRecord, claim: ClaimHead, data: bytes) -> None:
        """Keep this version of the claim, without its spec if the claims of its namespace take too much."""
        was_without_spec = bool(record.size and not record.raw)
        self.kept.count(record.claim.metadata.namespace, -record.size, without_spec=-was_without_spec)
        namespace, size = claim.metadata.namespace, kept_bytes(claim, data)
        if not self.kept.has_room(namespace, size):
            claim, data = without_spec(claim), b""
            size = kept_bytes(claim, data)
        record.claim, record.raw, record.size = claim, data, size
        self.kept.count(namespace, size, without_spec=int(not data))

    def _update(
        self, record: ClaimRecord, claim: ClaimHead, data: bytes, holdings: tuple[DeviceHolding, ...]
    ) -> UsageChange:
        uid, old, before = claim.metadata.uid, record.claim, record.counted
        self._index_consumers(old, claim)
        self._extended.put(claim)
        self._generated.put(claim)
        if old.metadata.key != claim.metadata.key and self._by_key.get(old.metadata.key) == uid:
            # No server renames an object; one that is renamed all the same is known only by its new name.
            del self._by_key[old.metadata.key]
            self._by_key[claim.metadata.key] = uid
        self._keep(record, claim, data)
        record.holdings = holdings
        device = contradiction(claim)
        if device is None:
            self.contradicted.pop(uid, None)
        else:
            self.contradicted[uid] = device
        if claim.status.allocation is None:
            record.written, record.written_for = None, frozenset()
        self._fire(uid)
        change = self._recount(record, before)
        change.has_room = OWN_ENTRIES <= len(old.status.reserved_for) > len(claim.status.reserved_for)
        return change

    def _recount(self, record: ClaimRecord, before: tuple[DeviceHolding, ...]) -> UsageChange:
        after = record.counted
        if before == after:
            return UsageChange()
        self.usage.remove(before)
        self.usage.add(after)
        return UsageChange(removed=before, added=after)

    def _index_consumers(self, old: ClaimHead, new: ClaimHead | None) -> None:
        uid = old.metadata.uid
        for consumer in old.status.reserved_for:
            discard_member(self._by_consumer, consumer.uid, uid)
        for consumer in new.status.reserved_for if new is not None else ():
            self._by_consumer.setdefault(consumer.uid, set()).add(uid)
