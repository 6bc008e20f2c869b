from collections.abc import Callable
from dataclasses import replace
from typing import Final

import msgspec

from dra_extender.kube.client.errors import ApiCallError
from dra_extender.kube.client.objects import CLAIM_TEMPLATES, RESOURCE_CLAIMS, ApiObjects
from dra_extender.kube.client.protobuf import MEDIA_TYPE, ProtobufError
from dra_extender.kube.client.settings import KubeSettings
from dra_extender.kube.client.transport import MERGE_PATCH, ApiCall, ApiTransport
from dra_extender.kube.objects.claim_messages import has_driver_data, with_metadata, with_reservations
from dra_extender.model.claim_edits import MetadataChange
from dra_extender.model.resource_claim import read_head
from dra_extender.scheduling.ports.cluster import RequestRejectedError

_NOT_OURS: Final = frozenset({"spec", "status.allocation", "status.devices"})
"""Fields that our writes do not change.  A refusal for a change of one means that the API server has respelled it."""


class KubeClaims:
    """ResourceClaims of an API server (`dra_extender.scheduling.ports.cluster.Claims`); bodies go both ways unchanged.

    Writes are sent as JSON; where the API server would respell fields that are not ours, they are sent as protobuf, which costs one
    more read.
    """

    def __init__(
        self, transport: ApiTransport, settings: KubeSettings, keeps_groups: Callable[[], bool] = lambda: False
    ) -> None:
        """`keeps_groups`: what the API's schema says (see `keeps_groups`)."""
        self._keeps_groups = keeps_groups
        self._api = ApiObjects(transport, settings)

    @property
    def keeps_groups(self) -> bool:
        """Whether the API's schema has `results[].compatibilityGroups` in the KEP's form; False until that is known."""
        return self._keeps_groups()

    async def read(self, namespace: str, name: str) -> bytes:
        """Return the live object.  Raises NotFoundError, RequestRejectedError, ServerUnavailableError."""
        return await self._api.perform(self._api.call("get", RESOURCE_CLAIMS, namespace, name))

    async def create(self, namespace: str, body: bytes) -> bytes:
        """Store a new claim.  Raises ConflictError if there is one of that name, and every other ClusterError."""
        return await self._api.perform(self._api.call("create", RESOURCE_CLAIMS, namespace, "", body))

    async def delete(self, namespace: str, name: str, uid: str, version: str | None = None) -> None:
        """Delete the claim with this UID, in this version if one is given.

        Raises:
            ConflictError: the claim of that name has another UID or version.
            ClusterError: any other kind.
        """
        preconditions = {"uid": uid} if version is None else {"uid": uid, "resourceVersion": version}
        body = msgspec.json.encode({"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": preconditions})
        await self._api.perform(self._api.call("delete", RESOURCE_CLAIMS, namespace, name, body))

    async def update(self, namespace: str, name: str, change: MetadataChange) -> bytes:
        """Change finalizers and annotations and nothing else.

        Raises:
            ConflictError: the claim is not the object or not the version for which the change is.
            ClusterError: any other kind.
        """
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
        wanted = read_head(body)
        return await self._update_as_protobuf(
            call, (namespace, name), lambda stored: with_reservations(stored, wanted), refused
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
    """ResourceClaimTemplates of an API server (`dra_extender.scheduling.ports.cluster.ClaimTemplates`)."""

    def __init__(self, transport: ApiTransport, settings: KubeSettings) -> None:
        self._api = ApiObjects(transport, settings)

    async def read(self, namespace: str, name: str) -> bytes:
        """Return the live object.  Raises NotFoundError, RequestRejectedError, ServerUnavailableError."""
        return await self._api.perform(self._api.call("get", CLAIM_TEMPLATES, namespace, name))
