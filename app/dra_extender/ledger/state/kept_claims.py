"""How a claim is kept: what decisions read often is kept decoded, everything else as the bytes that the API server sent.

The author of a claim may fill it with labels, annotations, owners and requests, which take many times their bytes when they are
decoded.  Only what is named here is kept decoded.  If the claims of a namespace take too much, not even their bytes are kept:
a decision that needs one reads it again from the API server.
"""

from collections.abc import Callable
from typing import Final, NamedTuple

import msgspec

from dra_extender.cel.fair_cache import FairCache
from dra_extender.model.metadata import OwnerReference
from dra_extender.model.resource_claim import (
    EXTENDED_ANNOTATION,
    FINALIZER,
    AllocatedDeviceStatus,
    ClaimHead,
    ClaimSpec,
    ClaimStatus,
    ResourceClaim,
)
from dra_extender.model.snapshot import SNAPSHOT_ANNOTATION
from dra_extender.model.templated_claim import DRAFTED_ENTRY_ANNOTATION, ENTRY_ANNOTATION

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
_LONGEST_SAID: Final = 256
_ANY_LENGTH: Final = 2**31
_ENTRIES: Final = (ENTRY_ANNOTATION, DRAFTED_ENTRY_ANNOTATION)


class Specs:
    """The decoded specs of claims that were read last, bounded in bytes, and shared fairly between namespaces."""

    def __init__(self, limit: int = _SPECS_BYTES) -> None:
        self._specs: FairCache[str, tuple[bytes, ClaimSpec]] = FairCache(limit, largest=_LARGEST_SPEC)

    @property
    def size(self) -> int:
        """Bytes that the specs take, by estimate."""
        return self._specs.held

    def known(self, uid: str, version: bytes) -> ClaimSpec | None:
        """Return the spec that was put for this claim and this version of it."""
        found = self._specs.get(uid)
        return found[1] if found is not None and found[0] == version else None

    def put(self, uid: str, version: bytes, spec: ClaimSpec, namespace: str) -> bool:
        """Keep a spec; `version` is the claim's API JSON or what stands for it.  Returns whether it is kept."""
        return self._specs.put(uid, (version, spec), _decoded_bytes(spec), namespace)

    def drop(self, uid: str) -> None:
        """Drop the spec of a claim that is gone."""
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
        """Return the bytes that the claims of a namespace take."""
        share = self._namespaces.get(namespace)
        return 0 if share is None else share.size

    def has_room(self, namespace: str, size: int) -> bool:
        """Return whether a claim of this size may be kept beside what there is."""
        return not self._limit or self.size(namespace) + size <= self._limit

    def note(self) -> str | None:
        """Return a sentence about claims that are kept in part; None if there are none."""
        if not self.without_spec:
            return None
        worst = max(self._namespaces, key=lambda each: self._namespaces[each].without_spec)
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
    controller = claim.metadata.controller
    metadata = claim.metadata.bare(
        FINALIZER,
        annotations=_annotations(claim),
        owner=controller if controller is not None and _is_possible(controller) else None,
    )
    status = _status(claim.status, _ANY_LENGTH if size <= WHOLE_BYTES else _LONGEST_SAID)
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
    """Without the configuration of the allocation: no decision reads it, and it would keep all bytes of the claim.

    Reasons and messages of drivers, which only people read, are cut to `longest` characters.
    """
    if any(
        len(said.message) > longest or len(said.reason) > longest
        for each in status.devices
        for said in each.conditions or ()
    ):
        status = msgspec.structs.replace(status, devices=tuple(_cut(each, longest) for each in status.devices))
    allocation = status.allocation
    if allocation is None or not allocation.devices.config:
        return status
    devices = msgspec.structs.replace(allocation.devices, config=())
    return msgspec.structs.replace(status, allocation=msgspec.structs.replace(allocation, devices=devices))


def _cut(device: AllocatedDeviceStatus, longest: int) -> AllocatedDeviceStatus:
    said = tuple(
        msgspec.structs.replace(each, reason=each.reason[:longest], message=each.message[:longest])
        for each in device.conditions or ()
    )
    return msgspec.structs.replace(device, conditions=said)


def _annotations(claim: ClaimHead) -> dict[str, str]:
    given = claim.metadata.annotations
    if not given:
        return {}
    found: dict[str, str] = {
        name: given[name] for name in _ENTRIES if name in given and len(given[name]) <= _LONGEST_NAME
    }
    if given.get(EXTENDED_ANNOTATION) == "true":
        found[EXTENDED_ANNOTATION] = "true"
    if SNAPSHOT_ANNOTATION in given:
        # Without an allocation it only matters that it is there.
        found[SNAPSHOT_ANNOTATION] = "" if claim.status.allocation is None else given[SNAPSHOT_ANNOTATION]
    return found


def _is_possible(owner: OwnerReference) -> bool:
    """Return whether an object of this name can exist: the API server does not look at how long the parts of a reference are."""
    return max(map(len, (owner.api_version, owner.kind, owner.name, owner.uid))) <= _LONGEST_NAME
