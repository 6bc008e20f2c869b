"""How a claim is kept: what decisions read often is kept decoded, everything else as the bytes that the API server sent.

Who may write claims may fill them with labels, annotations, owners and requests, which take many times their bytes when they are
decoded.  None of that is kept decoded but what is named here.
"""

from collections import OrderedDict
from typing import Final

from app.model.generated_claim import DRAFTED_ENTRY_ANNOTATION, ENTRY_ANNOTATION
from app.model.metadata import ObjectMeta, OwnerReference
from app.model.resource_claim import EXTENDED_ANNOTATION, FINALIZER, ClaimHead, ClaimSpec, ResourceClaim, read_spec
from app.model.snapshot import SNAPSHOT_ANNOTATION

WHOLE_BYTES: Final = 4096
"""A claim that is no longer than this (bytes of JSON) is kept with its decoded spec."""
_SPECS_BYTES: Final = 16 * 1024 * 1024
# What a decoded spec takes for each byte of the claim, at most.
_DECODED_FACTOR: Final = 4
# The longest name that the API knows, that of a DNS subdomain.
_LONGEST_NAME: Final = 253
_ENTRIES: Final = (ENTRY_ANNOTATION, DRAFTED_ENTRY_ANNOTATION)


class Specs:
    """The decoded specs of long claims that were read last, bounded in bytes."""

    def __init__(self, limit: int = _SPECS_BYTES) -> None:
        self._limit = limit
        self._specs: OrderedDict[str, tuple[bytes, ClaimSpec]] = OrderedDict()
        self._bytes = 0

    @property
    def size(self) -> int:
        """Bytes that the specs take, by estimate."""
        return self._bytes

    def of(self, uid: str, raw: bytes) -> ClaimSpec:
        """The spec of the claim with this UID, of which `raw` is the API JSON.

        Raises:
            ModelError: `raw` is no claim.
        """
        known = self._specs.get(uid)
        if known is not None and known[0] is raw:
            self._specs.move_to_end(uid)
            return known[1]
        spec = read_spec(raw)
        self.drop(uid)
        if _cost(raw) <= self._limit:
            self._specs[uid] = (raw, spec)
            self._bytes += _cost(raw)
            while self._bytes > self._limit:
                self._bytes -= _cost(self._specs.popitem(last=False)[1][0])
        return spec

    def drop(self, uid: str) -> None:
        """The claim is gone or has changed."""
        known = self._specs.pop(uid, None)
        if known is not None:
            self._bytes -= _cost(known[0])


def kept(claim: ClaimHead, size: int) -> ClaimHead:
    """What is kept decoded of a claim of `size` bytes: the spec only if it is short, and was readable."""
    metadata = _metadata(claim)
    if size > WHOLE_BYTES or not isinstance(claim, ResourceClaim):
        return ClaimHead(metadata=metadata, status=claim.status)
    return ResourceClaim(metadata=metadata, status=claim.status, spec=claim.spec)


def _metadata(claim: ClaimHead) -> ObjectMeta:
    """The metadata that decisions read: our finalizer, the annotations that are read, and the owner that is the controller."""
    meta = claim.metadata
    controller = meta.controller
    return ObjectMeta(
        name=meta.name,
        namespace=meta.namespace,
        uid=meta.uid,
        resource_version=meta.resource_version,
        generation=meta.generation,
        creation_timestamp=meta.creation_timestamp,
        deletion_timestamp=meta.deletion_timestamp,
        annotations=_annotations(claim),
        finalizers=(FINALIZER,) if FINALIZER in meta.finalizers else (),
        owner_references=(controller,) if controller is not None and _is_possible(controller) else (),
    )


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
    """Whether an object of this name can exist: the API server does not look at how long the parts of a reference are."""
    return max(map(len, (owner.api_version, owner.kind, owner.name, owner.uid))) <= _LONGEST_NAME


def _cost(raw: bytes) -> int:
    return _DECODED_FACTOR * len(raw)
