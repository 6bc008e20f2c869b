"""The writes to a claim.

A write never respells what another component wrote: drivers and users write numbers, white space and repeated keys that a decoder
does not preserve.  A change of metadata names the parts that change and nothing else; a change of the status keeps every other
member of the object as the bytes that the server sent.
"""

from collections.abc import Collection, Iterable, Sequence
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from dra_extender.model.allocation import AllocationResult
from dra_extender.model.allocation_snapshot import SNAPSHOT_ANNOTATION
from dra_extender.model.api_json import Value, as_stored, decode
from dra_extender.model.device import DeviceId
from dra_extender.model.resource_claim import FINALIZER, ConsumerReference, ResourceClaim

Members = dict[str, msgspec.Raw]
_MEMBERS: Final = msgspec.json.Decoder(Members)
_ENTRIES: Final = msgspec.json.Decoder(list[msgspec.Raw] | None)


class MetadataChange(Value, frozen=True):
    """A change of a claim's metadata, good for one version of one object.

    `finalizers` is the complete new list, None to leave it alone.  `annotations` holds those that change; None takes one away.
    """

    uid: str
    resource_version: str
    finalizers: tuple[str, ...] | None = None
    annotations: dict[str, str | None] = {}

    def merge_patch(self) -> bytes:
        """Return the change as a JSON merge patch (RFC 7386) of the claim."""
        return msgspec.json.encode({"metadata": self})


class _Reference(Value, frozen=True):
    uid: str = ""


_REFERENCE: Final = msgspec.json.Decoder(_Reference)


def with_finalizer_and_snapshot(claim: ResourceClaim, snapshot: str) -> MetadataChange:
    """Give the claim the delete-protection finalizer and this snapshot annotation; must be stored before the status."""
    meta = claim.metadata
    return MetadataChange(
        uid=meta.uid,
        resource_version=meta.resource_version,
        finalizers=None if FINALIZER in meta.finalizers else (*meta.finalizers, FINALIZER),
        annotations={SNAPSHOT_ANNOTATION: snapshot},
    )


def without(claim: ResourceClaim, *, finalizer: bool = False, snapshot: bool = False) -> MetadataChange:
    """Take the delete-protection finalizer, the snapshot annotation, or both off the claim."""
    meta = claim.metadata
    return MetadataChange(
        uid=meta.uid,
        resource_version=meta.resource_version,
        finalizers=tuple(name for name in meta.finalizers if name != FINALIZER) if finalizer else None,
        annotations={SNAPSHOT_ANNOTATION: None} if snapshot else {},
    )


def with_allocation(raw: bytes, allocation: AllocationResult, consumer: ConsumerReference) -> bytes:
    """Return the claim (API JSON) with this allocation, reserved for this consumer: one status write."""
    claim, status = _parts(raw)
    status["allocation"] = _json(_storable(allocation))
    return _with_status(claim, {**status, "reservedFor": _reserved(status, (consumer,))})


def with_only_device(raw: bytes, request: str, device: DeviceId) -> bytes:
    """Return the claim (API JSON), allocated with this one device (driver, pool, name) for this request, without reservations."""
    claim, status = _parts(raw)
    result = dict(zip(("driver", "pool", "device"), device, strict=True))
    allocation = {"devices": {"results": [{"request": request, **result}]}}
    return _with_status(claim, {**status, "allocation": _json(allocation)})


def with_reservations(raw: bytes, consumers: Iterable[ConsumerReference]) -> bytes:
    """Return the allocated claim, additionally reserved for these consumers."""
    claim, status = _parts(raw)
    return _with_status(claim, {**status, "reservedFor": _reserved(status, consumers)})


def without_reservations(raw: bytes, uids: Collection[str]) -> bytes:
    claim, status = _parts(raw)
    remaining = [reservation for uid, reservation in _entries(status) if uid not in uids]
    return _with_status(claim, {**status, "reservedFor": _json(remaining)})


def without_allocation(raw: bytes) -> bytes:
    """Return the claim with neither allocation nor reservations."""
    claim, status = _parts(raw)
    return _with_status(claim, {name: status[name] for name in status if name not in ("allocation", "reservedFor")})


def _storable(allocation: AllocationResult) -> AllocationResult:
    """Return the allocation with its configuration as an API server stores it."""
    config = allocation.devices.config
    spelled = tuple(
        configuration
        if configuration.opaque is None
        else replace(
            configuration, opaque=replace(configuration.opaque, parameters=as_stored(configuration.opaque.parameters))
        )
        for configuration in config
    )
    return replace(allocation, devices=replace(allocation.devices, config=spelled)) if config else allocation


def _parts(raw: bytes) -> tuple[Members, Members]:
    """Return the members of the claim, and those of its status, as they are spelled."""
    claim = decode("ResourceClaim", _MEMBERS, raw)
    return claim, decode("ResourceClaim", _MEMBERS, bytes(claim.get("status", b"{}")))


def _with_status(claim: Members, status: Members) -> bytes:
    return msgspec.json.encode({**claim, "status": status})


def _reserved(status: Members, consumers: Iterable[ConsumerReference]) -> msgspec.Raw:
    entries = dict(_entries(status))
    for consumer in consumers:
        if consumer.uid not in entries:
            entries[consumer.uid] = _json(consumer)
    return _json(list(entries.values()))


def _entries(status: Members) -> Sequence[tuple[str, msgspec.Raw]]:
    """Return UID and spelling of each reservation."""
    listed = decode("ResourceClaim", _ENTRIES, bytes(status.get("reservedFor", b"null"))) or ()
    return [(decode("ResourceClaim", _REFERENCE, bytes(reference)).uid, reference) for reference in listed]


def _json(value: Any) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode(value))
