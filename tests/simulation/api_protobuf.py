"""ResourceClaims in the protobuf form, as far as their writers edit it; the rest of a claim is JSON in a field of its own.

Who keeps the fields that it does not know, as protobuf wants it, brings that one back.
Field numbers: generated.proto of k8s.io/api/resource/v1 and k8s.io/apimachinery/pkg/apis/meta/v1.
"""

from typing import Final

import msgspec
from dra_extender.kube.client.protobuf import (
    MAGIC,
    Envelope,
    ProtobufError,
    ProtobufField,
    field,
    fields,
    message_of,
    only_field,
    text,
)
from dra_extender.simulator.apiserver.objects import Json, StoredKind, part

from tests.simulation.api_requests import bad_request

_METADATA, _STATUS, _JSON = 1, 3, 1000
_UID, _RESOURCE_VERSION, _ANNOTATIONS, _FINALIZERS = 5, 6, 12, 14
_ALLOCATION, _RESERVED_FOR = 1, 2
_RESULT: Final = {"request": 1, "driver": 2, "pool": 3, "device": 4}
_CONSUMER: Final = {"apiGroup": 1, "resource": 3, "name": 4, "uid": 5}


def encode_claim(data: bytes) -> bytes:
    """The protobuf form of a claim (API JSON)."""
    claim: Json = msgspec.json.decode(data)
    metadata, status = claim["metadata"], part(claim, "status")
    written = [field(_UID, metadata["uid"].encode()), field(_RESOURCE_VERSION, metadata["resourceVersion"].encode())]
    for name, value in part(metadata, "annotations").items():
        written.append(field(_ANNOTATIONS, message_of((field(1, name.encode()), field(2, value.encode())))))
    written += [field(_FINALIZERS, finalizer.encode()) for finalizer in metadata.get("finalizers") or ()]
    state = [field(_RESERVED_FOR, _texts(consumer, _CONSUMER)) for consumer in status.get("reservedFor") or ()]
    if status.get("allocation") is not None:
        results = message_of(
            field(1, _texts(result, _RESULT)) for result in part(status, "allocation", "devices").get("results") or ()
        )
        state.append(field(_ALLOCATION, message_of((field(1, results),))))
    content = (field(_METADATA, message_of(written)), field(_STATUS, message_of(state)), field(_JSON, data))
    kind = StoredKind.CLAIM
    named = message_of((field(1, kind.api_version.encode()), field(2, kind.singular.encode())))
    return MAGIC + message_of((field(1, named), field(2, message_of(content))))


def decode_claim(body: bytes) -> bytes:
    """The claim (API JSON) of a protobuf form that was made by `encode_claim` and edited since.

    Raises:
        StatusError: 400.
    """
    try:
        kind = StoredKind.CLAIM
        content = fields(Envelope.opened(body, kind.api_version, kind.singular).content)
        metadata, status = (fields(only_field(content, number).content) for number in (_METADATA, _STATUS))
        claim: Json = msgspec.json.decode(only_field(content, _JSON).content)
    except (ProtobufError, msgspec.DecodeError) as problem:
        raise bad_request(f"the claim cannot be read: {problem}") from problem
    entries = [fields(each.content) for each in metadata if each.number == _ANNOTATIONS]
    claim["metadata"] |= {
        "uid": text(metadata, _UID),
        "resourceVersion": text(metadata, _RESOURCE_VERSION),
        "annotations": {text(entry, 1): text(entry, 2) for entry in entries},
        "finalizers": [each.content.decode() for each in metadata if each.number == _FINALIZERS],
    }
    stored = claim.setdefault("status", {})
    stored["reservedFor"] = [_consumer(fields(each.content)) for each in status if each.number == _RESERVED_FOR]
    if not any(each.number == _ALLOCATION for each in status):
        stored.pop("allocation", None)
    return msgspec.json.encode(claim)


def _texts(thing: Json, numbers: dict[str, int]) -> bytes:
    return message_of(field(number, (thing.get(name) or "").encode()) for name, number in numbers.items())


def _consumer(parts: list[ProtobufField]) -> Json:
    found = {name: text(parts, number) for name, number in _CONSUMER.items()}
    return {name: value for name, value in found.items() if value}
