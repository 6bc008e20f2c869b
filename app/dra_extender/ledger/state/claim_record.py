import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import msgspec

from dra_extender.ledger.state.kept_claims import Specs
from dra_extender.model.allocation import AllocationResult, ClaimPlacement, DeviceHolding
from dra_extender.model.api_json import ModelError
from dra_extender.model.resource_claim import ClaimHead, ClaimSpec, ResourceClaim, read_head, read_spec
from dra_extender.model.snapshot import holdings_of
from dra_extender.model.unreadable_claim import read_broken


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
        """Whether `spec` can be had without asking the API server."""
        if self.unreadable or self.raw or isinstance(self.claim, ResourceClaim):
            return True
        return self.specs is not None and self.specs.known(self.claim.metadata.uid, self.spec_digest) is not None

    @property
    def spec(self) -> ClaimSpec:
        """What the claim asks for.  It may have to be decoded: nothing that is done for many claims at a time reads it.

        Raises:
            ModelError: the claim is `unreadable`.
            SpecNotKeptError: the claim has to be read from the API server.
        """
        claim = self.claim
        if isinstance(claim, ResourceClaim):
            return claim.spec
        if self.unreadable:
            raise ModelError(self.unreadable)
        uid, version = claim.metadata.uid, self.raw or self.spec_digest
        found = None if self.specs is None else self.specs.known(uid, version)
        if found is None:
            if not self.raw:
                raise SpecNotKeptError((self,))
            found = read_spec(self.raw)
            if self.specs is not None:
                self.specs.put(uid, version, found, claim.metadata.namespace)
        return found

    @property
    def whole(self) -> ResourceClaim:
        """The claim with its spec, as `spec`; the metadata is what `kept_form` leaves of it."""
        claim = self.claim
        if isinstance(claim, ResourceClaim):
            return claim
        return ResourceClaim(metadata=claim.metadata, status=claim.status, spec=self.spec)

    @property
    def counted(self) -> tuple[DeviceHolding, ...]:
        """What this claim takes out of pools now: its stored allocation, else the one being written.

        While a foreign allocation is stored and ours has not been given up yet, both count.
        """
        if self.pending is None:
            return self.holdings
        if not self.holdings or _same_devices(self.holdings, self.pending.holdings):
            return self.pending.holdings
        return (*self.holdings, *self.pending.holdings)


@dataclass(slots=True)
class Orphan:
    """A deleted claim as it was known last, and the UIDs of the pods that still use its devices."""

    record: ClaimRecord
    pods: set[str]


class SpecNotKeptError(Exception):
    """A decision needs the specs of claims that are not kept; it can be made again when they were read (`ClaimIndex.complete`)."""

    def __init__(self, records: Sequence[ClaimRecord]) -> None:
        super().__init__(", ".join("/".join(each.claim.metadata.key) for each in records))
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
    return hashlib.blake2b(content, digest_size=16).digest()


def _same_devices(left: tuple[DeviceHolding, ...], right: tuple[DeviceHolding, ...]) -> bool:
    return [(each.driver, each.pool, each.device, each.share_id) for each in left] == [
        (each.driver, each.pool, each.device, each.share_id) for each in right
    ]
