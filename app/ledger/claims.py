import asyncio
import hashlib
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

import msgspec

from app.ledger.claim_owners import ClaimsByOwner
from app.ledger.kept_claims import Specs, kept
from app.ledger.orphans import Orphan, Orphans
from app.ledger.signal import Signal
from app.ledger.usage import UsageTable
from app.model.allocation import AllocationResult, ClaimPlacement, DeviceHolding
from app.model.base import ModelError
from app.model.generated_claim import generated_for
from app.model.metadata import version_number
from app.model.resource_claim import (
    MAX_RESERVATIONS,
    ClaimHead,
    ClaimSpec,
    ResourceClaim,
    read_claim,
    read_head,
    read_spec,
)
from app.model.snapshot import holdings_of

_REMEMBERED_DELETIONS: Final = 20_000


@dataclass(slots=True)
class ClaimRecord:
    """One claim: as stored (`raw`, and of it decoded what is read often), what it holds, and what we are just writing for it.

    `unreadable` says why the spec cannot be read; empty if it can.
    `claim` is a ResourceClaim if it is short; the spec of a longer one is decoded where it is asked for, with the help of `specs`.
    `delivered` is the highest resourceVersion that the watch has brought; our own writes are stored before it does.
    `allocated_version` is the resourceVersion with which the watch first brought the present allocation, 0 before it has.  Claims
    that ask for the same have the same `spec_digest`.  `orphaned`: the claim is deleted, and pods still use its devices.
    `written` is the allocation that this process stored last, `written_for` the UIDs of the consumers for which it reserved it.
    """

    claim: ClaimHead
    raw: bytes
    spec_digest: bytes = b""
    holdings: tuple[DeviceHolding, ...] = ()
    taken: ClaimPlacement | None = None
    taken_node: str = ""
    delivered: int = 0
    allocated_version: int = 0
    orphaned: bool = False
    written: AllocationResult | None = None
    written_for: frozenset[str] = frozenset()
    unreadable: str = ""
    specs: Specs | None = None

    @property
    def spec(self) -> ClaimSpec:
        """What the claim asks for.  It may have to be decoded: nothing that is done for many claims at a time reads it.

        Raises:
            ModelError: it is `unreadable`.
        """
        claim = self.claim
        if isinstance(claim, ResourceClaim):
            return claim.spec
        return read_spec(self.raw) if self.specs is None else self.specs.of(claim.metadata.uid, self.raw)

    @property
    def whole(self) -> ResourceClaim:
        """The claim with its spec, as `spec`; the metadata is what `kept` leaves of it."""
        claim = self.claim
        if isinstance(claim, ResourceClaim):
            return claim
        return ResourceClaim(metadata=claim.metadata, status=claim.status, spec=self.spec)

    @property
    def counted(self) -> tuple[DeviceHolding, ...]:
        """What this claim takes out of pools now: its stored allocation, else the one being written.

        While a foreign allocation is stored and ours has not been given up yet, both count.
        """
        if self.taken is None:
            return self.holdings
        if not self.holdings or _same_devices(self.holdings, self.taken.holdings):
            return self.taken.holdings
        return (*self.holdings, *self.taken.holdings)


class ClaimIndex:
    """Claims by UID, by name and by consumer, and what all of them hold (`usage`), `orphans` included."""

    def __init__(self, users: Callable[[ClaimHead], Iterable[str]] = lambda _: ()) -> None:
        """`users` returns the UIDs of the pods that run on the devices of a claim."""
        self._users = users
        self._by_uid: dict[str, ClaimRecord] = {}
        self._by_key: dict[tuple[str, str], str] = {}
        self._by_consumer: dict[str, set[str]] = {}
        self._deleted: OrderedDict[str, None] = OrderedDict()
        self._waiting: dict[str, list[tuple[int, asyncio.Future[bool]]]] = {}
        self._changes: dict[str, Signal] = {}
        self._extended: ClaimsByOwner[tuple[str, str]] = ClaimsByOwner(_extended_for)
        self._generated: ClaimsByOwner[tuple[str, str, str]] = ClaimsByOwner(_generated_for)
        self._specs = Specs()
        self.orphans = Orphans()
        self.usage = UsageTable()

    def __len__(self) -> int:
        return len(self._by_uid)

    def records(self) -> Iterable[ClaimRecord]:
        """All claims."""
        return self._by_uid.values()

    def counted(self) -> Iterable[ClaimRecord]:
        """All claims, and those deleted ones whose devices pods still use."""
        yield from self._by_uid.values()
        for orphan in self.orphans.all():
            yield orphan.record

    def by_uid(self, uid: str) -> ClaimRecord | None:
        """The claim with this UID."""
        return self._by_uid.get(uid)

    def by_key(self, namespace: str, name: str) -> ClaimRecord | None:
        """The claim with this name."""
        uid = self._by_key.get((namespace, name))
        return None if uid is None else self._by_uid.get(uid)

    def for_extended_resources(self, namespace: str, pod_uid: str) -> tuple[ClaimRecord, ...]:
        """The claims that exist for the extended resources of this pod; more than one only after trouble.

        A claim names its owner by UID alone, and whoever may write claims may name any.  An owner is one of its own namespace.
        """
        return tuple(self._by_uid[claim] for claim in self._extended.of((namespace, pod_uid)))

    def made_for(self, namespace: str, owner_uid: str, entry: str) -> tuple[ClaimRecord, ...]:
        """The claims in the owner's namespace that were made from a template for this entry of a pod or PodGroup.

        They are more than one only after trouble.
        """
        return tuple(self._by_uid[claim] for claim in self._generated.of((namespace, owner_uid, entry)))

    def of_consumer(self, uid: str) -> tuple[ClaimRecord, ...]:
        """Claims reserved for this pod or PodGroup."""
        return tuple(self._by_uid[claim] for claim in sorted(self._by_consumer.get(uid, ())))

    def store(self, data: bytes, *, from_watch: bool) -> tuple[ClaimRecord, "UsageChange"]:
        """Take over an object as the server has it; older versions than the known one change nothing.

        Raises:
            ModelError: the object, or an amount that it takes, cannot be read; nothing has changed then.  A spec that cannot be
                read is no such reason if the watch brings it with an allocation: its devices count.
        """
        whole, unreadable = self._read(data, from_watch=from_watch)
        holdings = holdings_of(whole)
        claim = kept(whole, len(data))
        uid, version = claim.metadata.uid, version_number(claim.metadata.resource_version)
        record = self._by_uid.get(uid)
        back = self._come_back(uid) if from_watch else UsageChange()
        if uid in self._deleted:
            return record or ClaimRecord(claim, data, specs=self._specs), UsageChange()
        before = None if record is None else record.claim.status.allocation
        if record is None:
            replaced = self._replace_name(claim)
            record = self._by_uid[uid] = ClaimRecord(claim, data, _digest(whole, data), specs=self._specs)
            change = self._update(record, claim, data, holdings).after(replaced).after(back)
            change.created = True
            record.unreadable = unreadable
        elif version > version_number(record.claim.metadata.resource_version):
            change = self._update(record, claim, data, holdings)
            if record.unreadable and not unreadable:
                record.spec_digest = _digest(whole, data)
            record.unreadable = unreadable
        else:
            change = UsageChange()
        _date(record, claim, before, version if from_watch else 0)
        if from_watch:
            self._deliver(uid, record, version)
        return record, change

    def delete(self, namespace: str, name: str, uid: str) -> "UsageChange":
        """The claim is gone; a late answer to one of our own writes does not bring it back.

        What pods still use of its stored allocation stays counted.
        """
        uid = uid or self._by_key.get((namespace, name), "")
        if not uid:
            return UsageChange()
        self._deleted[uid] = None
        if len(self._deleted) > _REMEMBERED_DELETIONS:
            self._deleted.popitem(last=False)
        record = self._by_uid.pop(uid, None)
        self._specs.drop(uid)
        self._tell_changed(uid)
        for _, waiter in self._waiting.pop(uid, ()):
            _answer(waiter, delivered=False)
        if record is None:
            return UsageChange()
        if self._by_key.get(record.claim.metadata.key) == uid:
            del self._by_key[record.claim.metadata.key]
        self._index_consumers(record.claim, None)
        self._extended.drop(uid)
        self._generated.drop(uid)
        before = record.counted
        record.taken = None
        orphan = self.orphans.adopt(record, self._users(record.claim))
        kept = () if orphan is None else record.holdings
        self.usage.remove(before)
        self.usage.add(kept)
        return UsageChange(removed=before, added=kept, orphan=orphan)

    def pod_over(self, pod_uid: str) -> "UsageChange":
        """The pod has ended, or is gone: it uses nothing of deleted claims any more."""
        ended = self.orphans.leave(pod_uid)
        freed = tuple(holding for each in ended for holding in each.record.holdings)
        self.usage.remove(freed)
        return UsageChange(removed=freed)

    def take(self, uid: str, placement: ClaimPlacement, node: str) -> "UsageChange":
        """From now on this allocation counts, before it is written.  The claim must be known and unallocated."""
        return self._count(self._by_uid[uid], taken=placement, node=node)

    def settle(self, uid: str) -> "UsageChange":
        """Our write is over, stored or given up: from now on only what the server has counts."""
        record = self._by_uid.get(uid)
        if record is None or record.taken is None:
            return UsageChange()
        return self._count(record, taken=None, node="")

    async def delivered(self, uid: str, resource_version: str, seconds: float) -> bool:
        """Wait until the watch has brought this version or a later one; False if the claim is deleted.

        Raises:
            TimeoutError: the watch is behind by more than `seconds`.
        """
        record, wanted = self._by_uid.get(uid), version_number(resource_version)
        if record is None:
            return False
        if record.delivered >= wanted:
            return True
        waiter: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        entry = (wanted, waiter)
        self._waiting.setdefault(uid, []).append(entry)
        try:
            # Not `wait_for`, which loses a cancellation that comes together with the delivery.
            async with asyncio.timeout(seconds):
                return await waiter
        finally:
            self._wait_is_over(uid, entry)

    def change_of(self, uid: str) -> Signal:
        """Fires, once, when this claim changes or goes away; ask again for the time after."""
        return self._changes.setdefault(uid, Signal())

    def _read(self, data: bytes, *, from_watch: bool) -> tuple[ClaimHead, str]:
        """The claim, and why its spec cannot be read."""
        try:
            return read_claim(data), ""
        except ModelError as problem:
            head = read_head(data)
            known = self._by_uid.get(head.metadata.uid)
            if from_watch and (head.status.allocation is not None or (known is not None and known.unreadable)):
                return head, str(problem)
            raise

    def _replace_name(self, claim: ClaimHead) -> "UsageChange":
        previous = self._by_key.get(claim.metadata.key)
        change = UsageChange() if previous is None else self.delete(*claim.metadata.key, previous)
        self._by_key[claim.metadata.key] = claim.metadata.uid
        return change

    def _come_back(self, uid: str) -> "UsageChange":
        """The watch brings a claim that was deleted: the server's store was set back.  It stands for what pods use of it, too."""
        if uid not in self._deleted:
            return UsageChange()
        del self._deleted[uid]
        orphan = self.orphans.disown(uid)
        freed = () if orphan is None else orphan.record.holdings
        self.usage.remove(freed)
        return UsageChange(removed=freed)

    def _index_name(self, old: ClaimHead, new: ClaimHead) -> None:
        """No server renames an object; one that is renamed all the same is known by its new name alone."""
        uid = new.metadata.uid
        if old.metadata.key != new.metadata.key and self._by_key.get(old.metadata.key) == uid:
            del self._by_key[old.metadata.key]
            self._by_key[new.metadata.key] = uid

    def _update(
        self, record: ClaimRecord, claim: ClaimHead, data: bytes, holdings: tuple[DeviceHolding, ...]
    ) -> "UsageChange":
        before = record.counted
        has_room = len(record.claim.status.reserved_for) >= MAX_RESERVATIONS > len(claim.status.reserved_for)
        self._index_consumers(record.claim, claim)
        self._extended.put(claim)
        self._generated.put(claim)
        self._index_name(record.claim, claim)
        record.claim, record.raw, record.holdings = claim, data, holdings
        if claim.status.allocation is None:
            record.written, record.written_for = None, frozenset()
        self._tell_changed(claim.metadata.uid)
        change = self._recount(record, before)
        change.has_room = has_room
        return change

    def _count(self, record: ClaimRecord, *, taken: ClaimPlacement | None, node: str) -> "UsageChange":
        before = record.counted
        record.taken, record.taken_node = taken, node
        return self._recount(record, before)

    def _recount(self, record: ClaimRecord, before: tuple[DeviceHolding, ...]) -> "UsageChange":
        after = record.counted
        if before == after:
            return UsageChange()
        self.usage.remove(before)
        self.usage.add(after)
        return UsageChange(removed=before, added=after)

    def _index_consumers(self, old: ClaimHead, new: ClaimHead | None) -> None:
        uid = old.metadata.uid
        for consumer in old.status.reserved_for:
            claims = self._by_consumer.get(consumer.uid)
            if claims is not None:
                claims.discard(uid)
                if not claims:
                    del self._by_consumer[consumer.uid]
        for consumer in new.status.reserved_for if new is not None else ():
            self._by_consumer.setdefault(consumer.uid, set()).add(uid)

    def _tell_changed(self, uid: str) -> None:
        signal = self._changes.pop(uid, None)
        if signal is not None:
            signal.fire()

    def _wait_is_over(self, uid: str, entry: tuple[int, asyncio.Future[bool]]) -> None:
        waiting = self._waiting.get(uid)
        if waiting is not None and entry in waiting:
            waiting.remove(entry)
            if not waiting:
                del self._waiting[uid]

    def _deliver(self, uid: str, record: ClaimRecord, version: int) -> None:
        record.delivered = max(record.delivered, version)
        waiting = self._waiting.get(uid)
        if not waiting:
            return
        left = [(wanted, waiter) for wanted, waiter in waiting if wanted > record.delivered]
        for wanted, waiter in waiting:
            if wanted <= record.delivered:
                _answer(waiter, delivered=True)
        if left:
            self._waiting[uid] = left
        else:
            del self._waiting[uid]


@dataclass(slots=True)
class UsageChange:
    """What an event did to the allocated state."""

    removed: tuple[DeviceHolding, ...] = ()
    added: tuple[DeviceHolding, ...] = ()
    created: bool = False
    has_room: bool = False
    """Whether the claim had as many consumers as it may have, and can take one more now."""
    orphan: Orphan | None = None
    """What stays counted of a claim that was deleted."""

    def after(self, earlier: "UsageChange") -> "UsageChange":
        """This change together with one just before it."""
        self.removed = (*earlier.removed, *self.removed)
        self.added = (*earlier.added, *self.added)
        self.orphan = self.orphan or earlier.orphan
        return self

    @property
    def freed(self) -> bool:
        """Whether something became free that was not before."""
        return any(holding not in self.added for holding in self.removed)


def _date(record: ClaimRecord, claim: ClaimHead, before: AllocationResult | None, version: int) -> None:
    """Keep `allocated_version`; `version` is that of a delivered object, or 0 for the answer to a write of ours."""
    allocation = claim.status.allocation
    if allocation is None:
        record.allocated_version = 0
    elif allocation != before or not record.allocated_version:
        record.allocated_version = version


def _extended_for(claim: ClaimHead) -> tuple[str, str] | None:
    return (claim.metadata.namespace, claim.extended_for) if claim.extended_for else None


def _generated_for(claim: ClaimHead) -> tuple[str, str, str] | None:
    found = generated_for(claim)
    return None if found is None else (claim.metadata.namespace, *found)


def _same_devices(left: tuple[DeviceHolding, ...], right: tuple[DeviceHolding, ...]) -> bool:
    return [(each.driver, each.pool, each.device, each.share_id) for each in left] == [
        (each.driver, each.pool, each.device, each.share_id) for each in right
    ]


def digest_of_spec(claim: ResourceClaim) -> bytes:
    """Equal for claims that ask for the same.  The spec is immutable, so that this is worked out once."""
    return hashlib.blake2b(msgspec.json.encode(claim.spec), digest_size=16).digest()


def _digest(claim: ClaimHead, data: bytes) -> bytes:
    """As `digest_of_spec`; a claim whose spec cannot be read is like no other."""
    if isinstance(claim, ResourceClaim):
        return digest_of_spec(claim)
    return hashlib.blake2b(data, digest_size=16).digest()


def _answer(waiter: asyncio.Future[bool], *, delivered: bool) -> None:
    if not waiter.done():
        waiter.set_result(delivered)
