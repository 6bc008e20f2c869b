"""Pods and PodGroups: reads, bindings, and writes of their status."""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec

from dra_extender.kube.client.objects import PODS, ApiObjects, ResourceKind
from dra_extender.kube.client.settings import KubeSettings
from dra_extender.kube.client.transport import MERGE_PATCH, STRATEGIC_MERGE_PATCH, ApiCall, ApiTransport
from dra_extender.model.api_json import Value, reader
from dra_extender.model.pod import Pod, PodClaimStatus, read_pod
from dra_extender.model.pod_group import PodGroup, read_pod_group
from dra_extender.scheduling.ports.cluster import NotFoundError, RequestRejectedError


class KubePods:
    """Pods of an API server; `scheduling.ports.cluster.Pods` documents the methods."""

    def __init__(self, transport: ApiTransport, settings: KubeSettings) -> None:
        self._api = ApiObjects(transport, settings)

    async def read(self, namespace: str, name: str) -> Pod:
        return await self._api.perform_and_read(self._api.call("get", PODS, namespace, name), read_pod)

    async def bind(self, namespace: str, name: str, uid: str, node: str) -> None:
        binding = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"namespace": namespace, "name": name, "uid": uid},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        }
        body = msgspec.json.encode(binding)
        await self._api.perform(self._api.call("create", PODS, namespace, name, body, subresource="binding"))

    async def nominate(self, namespace: str, name: str, uid: str, node: str) -> None:
        await self._api.perform(self._status_patch(namespace, name, uid, {"nominatedNodeName": node or None}))

    async def record_extended_claim(
        self, namespace: str, name: str, uid: str, claim: str, mappings: Sequence[tuple[str, str, str]]
    ) -> bool:
        listed = [
            dict(zip(("containerName", "resourceName", "requestName"), mapping, strict=True)) for mapping in mappings
        ]
        status = {"resourceClaimName": claim, "requestMappings": listed}
        call = self._status_patch(namespace, name, uid, {"extendedResourceClaimStatus": status})
        return (await self._api.perform_and_read(call, read_pod)).extended_claim == claim

    async def record_claims(self, namespace: str, name: str, uid: str, version: str, claims: Mapping[str, str]) -> None:
        await _record_claims(self._api, PODS, namespace, name, {"uid": uid, "resourceVersion": version}, claims)

    def _status_patch(self, namespace: str, name: str, uid: str, status: Mapping[str, object]) -> ApiCall:
        # The UID of a pod cannot be changed, so that a patch for another one is refused.
        body = msgspec.json.encode({"metadata": {"uid": uid}, "status": status})
        return self._api.call("patch", PODS, namespace, name, body, subresource="status", content_type=MERGE_PATCH)


class KubePodGroups:
    """PodGroups of an API server in the version that it serves; `scheduling.ports.cluster.PodGroups` documents the methods."""

    def __init__(
        self, transport: ApiTransport, settings: KubeSettings, served: Callable[[], ResourceKind | None]
    ) -> None:
        """`served`: the kind as discovery has found it, None where there is none."""
        self._api = ApiObjects(transport, settings)
        self._served = served

    @property
    def api_version(self) -> str:
        kind = self._served()
        return "" if kind is None else kind.group_version

    async def read(self, namespace: str, name: str) -> PodGroup:
        return await self._api.perform_and_read(self._api.call("get", self._kind(), namespace, name), read_pod_group)

    async def record_claims(self, group: PodGroup, claims: Mapping[str, str]) -> None:
        meta = group.metadata
        precondition = {"uid": meta.uid, "resourceVersion": meta.resource_version}
        await _record_claims(self._api, self._kind(), meta.namespace, meta.name, precondition, claims)

    async def unprotect(self, group: PodGroup, finalizer: str) -> None:
        meta = group.metadata
        remaining = [name for name in meta.finalizers if name != finalizer]
        change = {
            "metadata": {"uid": meta.uid, "resourceVersion": meta.resource_version, "finalizers": remaining or None}
        }
        body = msgspec.json.encode(change)
        call = self._api.call("patch", self._kind(), meta.namespace, meta.name, body, content_type=MERGE_PATCH)
        await self._api.perform(call)

    def _kind(self) -> ResourceKind:
        kind = self._served()
        if kind is None:
            raise NotFoundError("podgroups are not served by this API server")
        return kind


class _Status(Value, frozen=True):
    resource_claim_statuses: tuple[PodClaimStatus, ...] = ()


class _WithStatus(Value, frozen=True):
    status: _Status = _Status()


_read_status: Final = reader("status", _WithStatus)


async def _record_claims(
    api: ApiObjects,
    kind: ResourceKind,
    namespace: str,
    name: str,
    precondition: Mapping[str, str],
    claims: Mapping[str, str],
) -> None:
    """Add {entry: claim} to `status.resourceClaimStatuses` of an object with this UID and version; other entries stay.

    A strategic merge uses the list's key, and the resourceVersion prevents replacing entries of other writers.

    Raises:
        ConflictError: the object is not in this version any more.
        RequestRejectedError: also if the server did not keep the entries.
        ClusterError: any other kind.
    """
    entries = [{"name": entry, "resourceClaimName": claim} for entry, claim in sorted(claims.items())]
    body = msgspec.json.encode({"metadata": precondition, "status": {"resourceClaimStatuses": entries}})
    call = api.call("patch", kind, namespace, name, body, subresource="status", content_type=STRATEGIC_MERGE_PATCH)
    stored = (await api.perform_and_read(call, _read_status)).status.resource_claim_statuses
    stored_claims = {entry.name: entry.resource_claim_name for entry in stored}
    lost = [entry for entry, claim in sorted(claims.items()) if stored_claims.get(entry) != claim]
    if lost:
        raise RequestRejectedError(
            f"{call.intent}: the API server does not keep status.resourceClaimStatuses of {', '.join(lost)} "
            "(DRAWorkloadResourceClaims is off there?)"
        )
