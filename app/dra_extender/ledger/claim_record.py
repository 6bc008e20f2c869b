"""One claim as the ledger keeps it.

What decisions read often is kept decoded, everything else as the bytes that the API server sent: the author of a claim may fill it
with labels, annotations, owners and requests, which take many times their bytes when they are decoded.  If the claims of a
namespace take too much, not even their bytes are kept: a decision that needs one reads it again from the API server.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import msgspec

from dra_extender.cel.fair_cache import FairCache
from dra_extender.model.allocation import AllocationResult, ClaimPlacement, DeviceHolding
from dra_extender.model.allocation_snapshot import SNAPSHOT_ANNOTATION, holdings_of
from dra_extender.model.api_json import ModelError
from dra_extender.model.digest import digest_of
from dra_extender.model.resource_claim import (
    EXTENDED_ANNOTATION,
    FINALIZER,
    AllocatedDeviceStatus,
    ClaimHead,
    ClaimSpec,
    ClaimStatus,
    ResourceClaim,
    read_head,
    read_spec,
)
from dra_extender.model.templated_claim import DRAFTED_ENTRY_ANNOTATION, ENTRY_ANNOTATION
from dra_extender.model.unreadable_claim import read_broken

WHOLE_BYTES: Final = 4096
"""A claim that is no longer than this (bytes of JSON) is kept with its decoded spec."""
NAMESPACE_BYTES: Final = 64 * 2**20
"""What is kept of the claims of one namespace, unless a setting says otherwise."""
_SPECS_BYTES: Final = 16 * 2**20
_LARGEST_SPEC: Final = 2
# By measurement on CPython 3.11 to 3.14: what a record and its places in indexes take, and a decoded value for each quotation mark
# of its JSON beside the bytes of that.
_RECORD_BYTES: Final = 900
_QUOTE_BYTES: Final = 30
# The longest name that the API knows, that of a DNS subdomain.
_LONGEST_NAME: Final = 253
_LONGEST_MESSAGE: Final = 256
_ANY_LENGTH: Final = 2**31
_ENTRIES: Final = (ENTRY_ANNOTATION, DRAFTED_ENTRY_ANNOTATION)


class Specs:
    """The decoded specs of claims that were read last, bounded in bytes, and shared fairly between namespaces."""

    def __init__(self, limit: int = _SPECS_BYTES) -> None:
        self._specs: FairCache[str, tuple[bytes, ClaimSpec]] = FairCache(limit, parts=_LARGEST_SPEC)

    @property
    def size(self) -> int:
        """An estimate of the bytes of all specs."""
        return self._specs.bytes_kept

    def get(self, uid: str, version: bytes) -> ClaimSpec | None:
        """Return the spec that was put for this claim and this version of it; None if it is not kept any more."""
        entry = self._specs.get(uid)
        return entry[1] if entry is not None and entry[0] == version else None

    def put(self, uid: str, version: bytes, spec: ClaimSpec, namespace: str) -> bool:
        """Keep a spec that keeps nothing else alive; `version` stands for the claim's API JSON.  Returns whether it is kept."""
        return self._specs.put(uid, (version, spec), _decoded_bytes(spec), namespace)

    def drop(self, uid: str) -> None:
        self._specs.drop(uid)


class KeptBytes:
    """The bytes that all claims take by estimate, and the bound for those of one namespace.

    `without_spec`: how many claims are kept without their spec, because their namespace exceeds the bound.
    """

    def __init__(self, limit: int = 0, full: Callable[[str], None] = lambda _: None) -> None:
        """`limit`: bytes for each namespace, 0 for no limit; `full` is called with a namespace that begins to exceed it."""
        self._limit = limit
        self._report_full = full
        self._namespaces: dict[str, _Share] = {}
        self.total = 0
        self.without_spec = 0

    def size(self, namespace: str) -> int:
        share = self._namespaces.get(namespace)
        return 0 if share is None else share.size

    def has_room(self, namespace: str, size: int) -> bool:
        """Return whether a claim of this size may be kept beside what there is."""
        return not self._limit or self.size(namespace) + size <= self._limit

    def note(self) -> str | None:
        """Return a sentence about claims that are kept in part; None if there are none."""
        if not self.without_spec:
            return None
        worst = max(self._namespaces, key=lambda namespace: self._namespaces[namespace].without_spec)
        return (
            f"the specs of {self.without_spec} claims are not kept but read again when they are needed, because the claims of "
            f"their namespace take more than {self._limit} bytes; {self._namespaces[worst].without_spec} of them are in {worst}"
        )

    def count(self, namespace: str, size: int, *, without_spec: int = 0) -> None:
        """Count further bytes of the claims of a namespace, and further claims without spec; less of either if negative."""
        share = self._namespaces.get(namespace, _NO_SHARE)
        share = _Share(share.size + size, share.without_spec + without_spec)
        if share == _NO_SHARE:
            self._namespaces.pop(namespace, None)
        else:
            self._namespaces[namespace] = share
        self.total += size
        self.without_spec += without_spec
        if without_spec > 0 and share.without_spec == without_spec:
            self._report_full(namespace)


class _Share(NamedTuple):
    size: int
    without_spec: int


_NO_SHARE: Final = _Share(0, 0)


def kept_form(claim: ClaimHead, size: int) -> ClaimHead:
    """Return what is kept decoded of a claim of `size` bytes: with the spec only if the claim is small and could be read."""
    owner = claim.metadata.controller
    # The API server does not look at how long the parts of a reference are.
    if owner is not None and max(map(len, (owner.api_version, owner.kind, owner.name, owner.uid))) > _LONGEST_NAME:
        owner = None
    metadata = claim.metadata.bare(FINALIZER, annotations=_annotations(claim), owner=owner)
    status = _status(claim.status, _ANY_LENGTH if size <= WHOLE_BYTES else _LONGEST_MESSAGE)
    if size > WHOLE_BYTES or not isinstance(claim, ResourceClaim):
        return ClaimHead(metadata=metadata, status=status)
    return ResourceClaim(metadata=metadata, status=status, spec=claim.spec)


def without_spec(claim: ClaimHead) -> ClaimHead:
    """Return what remains of a claim without its spec; decisions about other claims need no more."""
    return ClaimHead(metadata=claim.metadata, status=claim.status)


def kept_bytes(claim: ClaimHead, raw: bytes) -> int:
    """Return the bytes that a claim in this form takes, by estimate."""
    return _RECORD_BYTES + len(raw) + _decoded_bytes(claim)


def _decoded_bytes(value: ClaimHead | ClaimSpec) -> int:
    encoded = msgspec.json.encode(value)
    return len(encoded) + _QUOTE_BYTES * encoded.count(b'"')


def _status(status: ClaimStatus, longest: int) -> ClaimStatus:
    """Return the status without the configuration of the allocation, which no decision reads.

    The configuration would keep all bytes of the claim.  Reasons and messages of drivers, which only people read, are cut to
    `longest` characters.
    """
    if any(
        len(condition.message) > longest or len(condition.reason) > longest
        for device in status.devices
        for condition in device.conditions or ()
    ):
        status = msgspec.structs.replace(status, devices=tuple(_cut(device, longest) for device in status.devices))
    allocation = status.allocation
    if allocation is None or not allocation.devices.config:
        return status
    devices = msgspec.structs.replace(allocation.devices, config=())
    return msgspec.structs.replace(status, allocation=msgspec.structs.replace(allocation, devices=devices))


def _cut(device: AllocatedDeviceStatus, longest: int) -> AllocatedDeviceStatus:
    conditions = tuple(
        msgspec.structs.replace(condition, reason=condition.reason[:longest], message=condition.message[:longest])
        for condition in device.conditions or ()
    )
    return msgspec.structs.replace(device, conditions=conditions)


def _annotations(claim: ClaimHead) -> dict[str, str]:
    annotations = claim.metadata.annotations
    if not annotations:
        return {}
    kept_annotations: dict[str, str] = {
        name: annotations[name] for name in _ENTRIES if name in annotations and len(annotations[name]) <= _LONGEST_NAME
    }
    if annotations.get(EXTENDED_ANNOTATION) == "true":
        kept_annotations[EXTENDED_ANNOTATION] = "true"
    if SNAPSHOT_ANNOTATION in annotations:
        # Without an allocation it only matters that it is there.
        kept_annotations[SNAPSHOT_ANNOTATION] = (
            "" if claim.status.allocation is None else annotations[SNAPSHOT_ANNOTATION]
        )
    return kept_annotations


@dataclass(slots=True)
class ClaimRecord:
    """One claim: as stored (`raw`, and `claim` with the decoded parts that are read often), what it holds, and what a bind writes.

    Attributes:
        claim: A ResourceClaim if the claim is small; the spec of another is decoded when it is read, by means of `specs`.
        raw: The API JSON; empty, and the spec not kept, if the claims of its namespace take too much.
        spec_digest: Equal for claims that ask for the same.
        devices: About how many devices the claim asks for.
        holdings: What the stored allocation takes out of pools.
        pending: The allocation that a bind decided and that is not known to be stored yet.
        delivered: The highest resourceVersion that the watch has brought; our own writes are stored before it does.
        allocated_version: The resourceVersion with which the watch first brought the present allocation, 0 before it has.
        orphaned: The claim is deleted, and pods still use its devices.
        written: The allocation that this process stored last.
        written_for: UIDs of the consumers for which this process reserved that allocation.
        unreadable: Why the spec or the status cannot be read; empty if both can.
        has_status: Whether the status can be read; otherwise `claim` has as much of it as identifies the devices.
        size: The bytes that are kept, by estimate.
        specs: The decoded specs that are kept.
    """

    claim: ClaimHead
    raw: bytes
    spec_digest: bytes = b""
    devices: int = 0
    holdings: tuple[DeviceHolding, ...] = ()
    pending: ClaimPlacement | None = None
    delivered: int = 0
    allocated_version: int = 0
    orphaned: bool = False
    written: AllocationResult | None = None
    written_for: frozenset[str] = frozenset()
    unreadable: str = ""
    has_status: bool = True
    size: int = 0
    specs: Specs | None = None

    def set_spec(self, claim: ClaimHead, data: bytes) -> None:
        """Keep of what the claim in `data` asks for as much as decisions about other claims read."""
        self.spec_digest = digest_of_spec(claim, data)
        self.devices = claim.spec.devices_asked if isinstance(claim, ResourceClaim) else 0

    @property
    def has_spec(self) -> bool:
        """Return whether `spec` can be had without asking the API server."""
        if self.unreadable or self.raw or isinstance(self.claim, ResourceClaim):
            return True
        return self.specs is not None and self.specs.get(self.claim.metadata.uid, self.spec_digest) is not None

    @property
    def spec(self) -> ClaimSpec:
        """Return what the claim asks for.  It may have to be decoded: nothing that is done for many claims at a time reads it.

        Raises:
            ModelError: the claim is `unreadable`.
            SpecNotKeptError: the claim has to be read from the API server.
        """
        claim = self.claim
        if isinstance(claim, ResourceClaim):
            return claim.spec
        if self.unreadable:
            raise ModelError(self.unreadable)
        uid, version = claim.metadata.uid, self.spec_digest
        if self.raw:
            # Not the bytes themselves, which the next version of the claim replaces.
            version = claim.metadata.resource_version.encode()
        spec = None if self.specs is None else self.specs.get(uid, version)
        if spec is None:
            if not self.raw:
                raise SpecNotKeptError((self,))
            spec = read_spec(self.raw)
            if self.specs is not None:
                self.specs.put(uid, version, spec, claim.metadata.namespace)
        return spec

    @property
    def claim_with_spec(self) -> ResourceClaim:
        """The claim with its spec, as `spec`; the metadata is what `kept_form` leaves of it."""
        claim = self.claim
        if isinstance(claim, ResourceClaim):
            return claim
        return ResourceClaim(metadata=claim.metadata, status=claim.status, spec=self.spec)

    @property
    def counted(self) -> tuple[DeviceHolding, ...]:
        """Return what this claim takes out of pools now: its stored allocation, else the one being written.

        While a foreign allocation is stored and ours has not been given up yet, both count.
        """
        if self.pending is None:
            return self.holdings
        stored, pending = (
            [(*holding.pool_id, holding.device, holding.share_id) for holding in holdings]
            for holdings in (self.holdings, self.pending.holdings)
        )
        return self.pending.holdings if stored in ([], pending) else (*self.holdings, *self.pending.holdings)


@dataclass(slots=True)
class Orphan:
    """A deleted claim as it was known last, and the UIDs of the pods that still use its devices."""

    record: ClaimRecord
    pods: set[str]


class SpecNotKeptError(Exception):
    """A decision needs the specs of claims that are not kept; it can be made again when they were read (`ClaimIndex.complete`)."""

    def __init__(self, records: Sequence[ClaimRecord]) -> None:
        super().__init__(", ".join(record.claim.metadata.full_name for record in records))
        self.records = records


class PartlyReadClaim(NamedTuple):
    """What could be read of a claim, what it takes, and why the rest cannot be read (empty: all could)."""

    claim: ClaimHead
    holdings: tuple[DeviceHolding, ...]
    unreadable: str = ""
    has_status: bool = True


def read_partly(data: bytes, problem: str) -> PartlyReadClaim:
    """Return the claim in `data`, which cannot be read as a whole because of `problem`.

    Raises:
        ModelError: neither the metadata nor the names of the allocated devices can be read.
    """
    try:
        head = read_head(data)
        return PartlyReadClaim(head, holdings_of(head), problem)
    except ModelError:
        broken = read_broken(data)
        return PartlyReadClaim(broken, holdings_of(broken), problem, has_status=False)


def digest_of_spec(claim: ClaimHead, data: bytes = b"") -> bytes:
    """Return a value that is equal for claims that ask for the same; a claim whose spec cannot be read equals no other.

    The spec is immutable, so the digest is computed once.
    """
    content = msgspec.json.encode(claim.spec) if isinstance(claim, ResourceClaim) else data
    return digest_of(content)
