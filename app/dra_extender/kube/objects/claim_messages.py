"""Changes of a ResourceClaim in its protobuf form, in which every byte that is not edited stays the same.

JSON does not always keep them: where opaque parameters or a driver's data have white space or a literal `<`, `>` or `&`, an API
server respells them in every JSON response and in every patch.  It then refuses the write, because immutable fields, or fields that
we may not change, seem to have changed.

Field numbers: generated.proto of k8s.io/api/resource/v1 and k8s.io/apimachinery/pkg/apis/meta/v1.
"""

from typing import Final

import msgspec

from dra_extender.kube.client.protobuf import (
    Envelope,
    ProtobufError,
    ProtobufField,
    field,
    fields,
    message_of,
    one,
    replaced,
    text,
)
from dra_extender.model.api_json import Value, decode
from dra_extender.model.claim_edits import MetadataChange
from dra_extender.model.resource_claim import ClaimHead, ConsumerReference
from dra_extender.scheduling.ports.cluster import ConflictError

_METADATA, _STATUS = 1, 3
_UID, _RESOURCE_VERSION, _ANNOTATIONS, _FINALIZERS = 5, 6, 12, 14
_KEY, _VALUE = 1, 2
_ALLOCATION, _RESERVED_FOR = 1, 2
_CONSUMER: Final = (("api_group", 1), ("resource", 3), ("name", 4), ("uid", 5))
_CONSUMER_UID: Final = 5


class _Device(Value, frozen=True):
    data: msgspec.Raw = msgspec.Raw(b"null")


class _Status(Value, frozen=True):
    allocation: msgspec.Raw = msgspec.Raw(b"null")
    devices: tuple[_Device, ...] = ()


class _Claim(Value, frozen=True):
    status: _Status = _Status()


_DECODER: Final = msgspec.json.Decoder(_Claim)


def has_driver_data(body: bytes) -> bool:
    """Return whether the claim (API JSON) is allocated and a driver has put data of its own form into its status."""
    if b'"data"' not in body:
        return False
    status = decode("ResourceClaim", _DECODER, body).status
    return bytes(status.allocation) != b"null" and any(bytes(device.data) != b"null" for device in status.devices)


def with_metadata(body: bytes, change: MetadataChange) -> bytes:
    """Return the claim (protobuf, as the API server sent it) with this change; everything else is the same bytes.

    Raises:
        ConflictError: the claim is not the object or not the version for which the change is.
        ProtobufError: it is no claim.
    """
    envelope, claim = _claim(body)
    metadata = _checked(claim, change.uid, change.resource_version)
    if change.finalizers is not None:
        metadata = [part for part in metadata if part.number != _FINALIZERS]
        metadata += [field(_FINALIZERS, finalizer.encode()) for finalizer in change.finalizers]
    if change.annotations:
        metadata = [part for part in metadata if _annotation(part) not in change.annotations]
        metadata += [_entry(key, value) for key, value in change.annotations.items() if value is not None]
    return envelope.holding(message_of(replaced(claim, field(_METADATA, message_of(metadata)))))


def with_reservations(body: bytes, wanted: ClaimHead) -> bytes:
    """Return the claim (protobuf) with these reservations, and without an allocation if none is wanted.

    Raises:
        ConflictError: the claim is not in the version from which `wanted` was made.
        ProtobufError: it is no claim, or has another allocation than the one that is wanted: none can be written here.
    """
    envelope, claim = _claim(body)
    _checked(claim, wanted.metadata.uid, wanted.metadata.resource_version)
    status = fields(one(claim, _STATUS).content)
    if wanted.status.allocation is None:
        status = [part for part in status if part.number != _ALLOCATION]
    elif _results(status) != [
        (result.request, *result.device_id) for result in wanted.status.allocation.devices.results
    ]:
        raise ProtobufError("the claim has another allocation than the one to be written")
    known = {text(fields(part.content), _CONSUMER_UID): part for part in status if part.number == _RESERVED_FOR}
    status = [part for part in status if part.number != _RESERVED_FOR]
    status += [known.get(consumer.uid) or _consumer(consumer) for consumer in wanted.status.reserved_for]
    return envelope.holding(message_of(replaced(claim, field(_STATUS, message_of(status)))))


def _claim(body: bytes) -> tuple[Envelope, list[ProtobufField]]:
    envelope = Envelope.opened(body, "resource.k8s.io/v1", "ResourceClaim")
    return envelope, fields(envelope.content)


def _checked(claim: list[ProtobufField], uid: str, version: str) -> list[ProtobufField]:
    """Return the metadata, if they are those of this object in this version."""
    metadata = fields(one(claim, _METADATA).content)
    stored = (text(metadata, _UID), text(metadata, _RESOURCE_VERSION))
    if stored != (uid, version):
        raise ConflictError(
            f"the claim has UID {stored[0]} and version {stored[1]} now, the change is for UID {uid}, version {version}"
        )
    return metadata


def _results(status: list[ProtobufField]) -> list[tuple[str, ...]]:
    """Return request, driver, pool and device of what is allocated: `allocation.devices.results`, all with field number 1."""
    devices = fields(one(fields(one(status, _ALLOCATION).content), 1).content)
    results = [fields(result.content) for result in devices if result.number == 1]
    return [tuple(text(result, number) for number in (1, 2, 3, 4)) for result in results]


def _annotation(part: ProtobufField) -> str | None:
    """Return the name of an annotation; None for any other field."""
    return text(fields(part.content), _KEY) if part.number == _ANNOTATIONS else None


def _entry(key: str, value: str) -> ProtobufField:
    return field(_ANNOTATIONS, message_of((field(_KEY, key.encode()), field(_VALUE, value.encode()))))


def _consumer(consumer: ConsumerReference) -> ProtobufField:
    return field(
        _RESERVED_FOR, message_of(field(number, getattr(consumer, name).encode()) for name, number in _CONSUMER)
    )
