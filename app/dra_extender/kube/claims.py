"""ResourceClaims: reads, and writes that respell nothing of other writers."""

from collections.abc import Callable
from dataclasses import replace
from typing import Final

import msgspec

from dra_extender.kube.client.errors import ApiCallError
from dra_extender.kube.client.objects import CLAIM_TEMPLATES, RESOURCE_CLAIMS, ApiObjects
from dra_extender.kube.client.protobuf import (
    MEDIA_TYPE,
    Envelope,
    ProtobufError,
    ProtobufField,
    field,
    fields,
    message_of,
    only_field,
    replaced,
    text,
)
from dra_extender.kube.client.settings import KubeSettings
from dra_extender.kube.client.transport import MERGE_PATCH, ApiCall, ApiTransport
from dra_extender.model.api_json import Value, decode
from dra_extender.model.claim_edits import MetadataChange
from dra_extender.model.resource_claim import ClaimHead, ConsumerReference, read_head
from dra_extender.scheduling.ports.cluster import ConflictError, RequestRejectedError

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


def with_reservations(body: bytes, claim_head: ClaimHead) -> bytes:
    """Return the claim (protobuf) with these reservations, and without an allocation if none is wanted.

    Raises:
        ConflictError: the claim is not in the version from which `wanted` was made.
        ProtobufError: it is no claim, or has another allocation than the one that is wanted: none can be written here.
    """
    envelope, claim = _claim(body)
    _checked(claim, claim_head.metadata.uid, claim_head.metadata.resource_version)
    status = fields(only_field(claim, _STATUS).content)
    if claim_head.status.allocation is None:
        status = [part for part in status if part.number != _ALLOCATION]
    elif _results(status) != [
        (result.request, *result.device_id) for result in claim_head.status.allocation.devices.results
    ]:
        raise ProtobufError("the claim has another allocation than the one to be written")
    stored_consumers = {
        text(fields(part.content), _CONSUMER_UID): part for part in status if part.number == _RESERVED_FOR
    }
    status = [part for part in status if part.number != _RESERVED_FOR]
    status += [stored_consumers.get(consumer.uid) or _consumer(consumer) for consumer in claim_head.status.reserved_for]
    return envelope.holding(message_of(replaced(claim, field(_STATUS, message_of(status)))))


def _claim(body: bytes) -> tuple[Envelope, list[ProtobufField]]:
    envelope = Envelope.opened(body, "resource.k8s.io/v1", "ResourceClaim")
    return envelope, fields(envelope.content)


def _checked(claim: list[ProtobufField], uid: str, version: str) -> list[ProtobufField]:
    """Return the metadata, if they are those of this object in this version."""
    metadata = fields(only_field(claim, _METADATA).content)
    stored = (text(metadata, _UID), text(metadata, _RESOURCE_VERSION))
    if stored != (uid, version):
        raise ConflictError(
            f"the claim has UID {stored[0]} and version {stored[1]} now, the change is for UID {uid}, version {version}"
        )
    return metadata


def _results(status: list[ProtobufField]) -> list[tuple[str, ...]]:
    """Return request, driver, pool and device of what is allocated: `allocation.devices.results`, all with field number 1."""
    devices = fields(only_field(fields(only_field(status, _ALLOCATION).content), 1).content)
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


_NOT_OURS: Final = frozenset({"spec", "status.allocation", "status.devices"})
"""Fields that our writes do not change.  A refusal for a change of one means that the API server has respelled it."""


class KubeClaims:
    """ResourceClaims of an API server; `scheduling.ports.cluster.Claims` documents the methods.  Bodies go both ways unchanged.

    Writes are sent as JSON; where the API server would respell fields that are not ours, they are sent as protobuf, which costs one
    more read.
    """

    def __init__(
        self, transport: ApiTransport, settings: KubeSettings, keeps_groups: Callable[[], bool] = lambda: False
    ) -> None:
        """`keeps_groups`: whether the API's schema has the field; False until that is known."""
        self._keeps_groups = keeps_groups
        self._api = ApiObjects(transport, settings)

    @property
    def keeps_groups(self) -> bool:
        return self._keeps_groups()

    async def read(self, namespace: str, name: str) -> bytes:
        return await self._api.perform(self._api.call("get", RESOURCE_CLAIMS, namespace, name))

    async def create(self, namespace: str, body: bytes) -> bytes:
        return await self._api.perform(self._api.call("create", RESOURCE_CLAIMS, namespace, "", body))

    async def delete(self, namespace: str, name: str, uid: str, version: str | None = None) -> None:
        preconditions = {"uid": uid} if version is None else {"uid": uid, "resourceVersion": version}
        body = msgspec.json.encode({"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": preconditions})
        await self._api.perform(self._api.call("delete", RESOURCE_CLAIMS, namespace, name, body))

    async def update(self, namespace: str, name: str, change: MetadataChange) -> bytes:
        patch = change.merge_patch()
        call = self._api.call("patch", RESOURCE_CLAIMS, namespace, name, patch, content_type=MERGE_PATCH)
        try:
            return await self._api.perform(call)
        except RequestRejectedError as problem:
            refused = problem
        return await self._update_as_protobuf(
            call, (namespace, name), lambda stored: with_metadata(stored, change), refused
        )

    async def update_status(self, namespace: str, name: str, body: bytes) -> bytes:
        """Replace the status; `body` carries the resourceVersion it was made from.

        Only what `body` says of reservations is certain to be taken over where the claim is allocated already.

        Raises:
            ModelError: `body` is no claim.
            ClusterError: of every kind.
        """
        call = self._api.call("update", RESOURCE_CLAIMS, namespace, name, body, subresource="status")
        refused = None
        # The API server guards what drivers say by a right of its own, but only from Kubernetes 1.36 on.
        if not has_driver_data(body):
            try:
                return await self._api.perform(call)
            except RequestRejectedError as problem:
                refused = problem
        claim_head = read_head(body)
        return await self._update_as_protobuf(
            call, (namespace, name), lambda stored: with_reservations(stored, claim_head), refused
        )

    async def _update_as_protobuf(
        self,
        call: ApiCall,
        claim: tuple[str, str],
        edit: Callable[[bytes], bytes],
        refused: RequestRejectedError | None,
    ) -> bytes:
        """Make the change in the object's protobuf form, where every byte that is not edited stays; the answer is JSON.

        Raises:
            RequestRejectedError: as `refused`, if spelling is not the reason why the call was.
            ClusterError: any other kind.
        """
        if refused is not None:
            failed = refused.__cause__
            status = failed.status if isinstance(failed, ApiCallError) else None
            if status is None or _NOT_OURS.isdisjoint(status.invalid_fields):
                raise refused
        stored = await self._api.perform(self._api.call("get", RESOURCE_CLAIMS, *claim, accept=MEDIA_TYPE))
        try:
            body = edit(stored)
        except ProtobufError as problem:
            raise refused or RequestRejectedError(f"{call.intent}: the claim cannot be edited: {problem}") from problem
        intent = replace(call.intent, verb="update")
        return await self._api.perform(replace(call, intent=intent, method="PUT", body=body, content_type=MEDIA_TYPE))


class KubeClaimTemplates:
    """ResourceClaimTemplates of an API server; `scheduling.ports.cluster.ClaimTemplates` documents the method."""

    def __init__(self, transport: ApiTransport, settings: KubeSettings) -> None:
        self._api = ApiObjects(transport, settings)

    async def read(self, namespace: str, name: str) -> bytes:
        return await self._api.perform(self._api.call("get", CLAIM_TEMPLATES, namespace, name))
