from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from dra_extender.kube.client.errors import RequestIntent
from dra_extender.kube.client.resources import PODS
from dra_extender.kube.client.retry import perform
from dra_extender.kube.client.settings import KubeSettings
from dra_extender.kube.client.transport import MERGE_PATCH, ApiCall, ApiTransport
from dra_extender.kube.objects.claim_status import StatusPrecondition, record_claims
from dra_extender.model.api_json import ModelError
from dra_extender.model.pod import Pod, read_pod
from dra_extender.scheduling.ports.cluster import ServerUnavailableError


class KubePods:
    """Pods of an API server (`dra_extender.scheduling.ports.cluster.Pods`)."""

    def __init__(self, transport: ApiTransport, settings: KubeSettings) -> None:
        self._transport = transport
        self._settings = settings
        self._timeouts = settings.timeouts
        self._query = {"fieldManager": settings.identity}

    async def read(self, namespace: str, name: str) -> Pod:
        """The live pod.  Raises NotFoundError, RequestRejectedError, ServerUnavailableError."""
        intent = RequestIntent("get", PODS.plural, f"{namespace}/{name}")
        body = await perform(self._transport, ApiCall(intent, "GET", PODS.path(namespace, name), self._timeouts.read))
        try:
            return read_pod(body)
        except ModelError as problem:
            raise ServerUnavailableError(f"{intent}: the answer cannot be read: {problem}") from problem

    async def bind(self, namespace: str, name: str, uid: str, node: str) -> None:
        """Post the Binding, guarded by the UID.

        Raises:
            ConflictError: the pod is bound already (also to this node), is being deleted, has scheduling gates, or has another UID.
            ClusterError: any other kind.
        """
        intent = RequestIntent("create", f"{PODS.plural}/binding", f"{namespace}/{name}")
        path = PODS.path(namespace, name, "binding")
        body = _binding(namespace, name, uid, node)
        await perform(
            self._transport, ApiCall(intent, "POST", path, self._timeouts.write, query=self._query, body=body)
        )

    async def nominate(self, namespace: str, name: str, uid: str, node: str) -> None:
        """Set `status.nominatedNodeName`, or remove it for an empty node.

        Raises:
            RequestRejectedError: the pod has another UID, or we lack the right.
            ClusterError: any other kind.
        """
        await self._patch_status(namespace, name, uid, {"nominatedNodeName": node or None})

    async def record_extended_claim(
        self, namespace: str, name: str, uid: str, claim: str, mappings: Sequence[tuple[str, str, str]]
    ) -> bool:
        """Set `status.extendedResourceClaimStatus`; returns whether the server kept it.

        Raises:
            RequestRejectedError: the pod has another UID, or we lack the right.
            ClusterError: any other kind.
        """
        listed = [dict(zip(("containerName", "resourceName", "requestName"), each, strict=True)) for each in mappings]
        status = {"resourceClaimName": claim, "requestMappings": listed}
        stored = await self._patch_status(namespace, name, uid, {"extendedResourceClaimStatus": status})
        try:
            return read_pod(stored).extended_claim == claim
        except ModelError as problem:
            raise ServerUnavailableError(
                f"patch pods/status {namespace}/{name}: the answer cannot be read: {problem}"
            ) from problem

    async def record_claims(self, namespace: str, name: str, uid: str, version: str, claims: Mapping[str, str]) -> None:
        """Add entries to `status.resourceClaimStatuses`.

        Raises:
            ConflictError: the pod is not in this version any more.
            ClusterError: any other kind.
        """
        await record_claims(
            self._transport, self._settings, StatusPrecondition(PODS, namespace, name, uid, version), claims
        )

    async def _patch_status(self, namespace: str, name: str, uid: str, status: Mapping[str, Any]) -> bytes:
        intent = RequestIntent("patch", f"{PODS.plural}/status", f"{namespace}/{name}")
        path = PODS.path(namespace, name, "status")
        # The UID of a pod cannot be changed, so that a patch for another one is refused.
        body = msgspec.json.encode({"metadata": {"uid": uid}, "status": status})
        call = ApiCall(
            intent,
            "PATCH",
            path,
            self._timeouts.write,
            query=self._query,
            body=body,
            content_type=MERGE_PATCH,
        )
        return await perform(self._transport, call)


def _binding(namespace: str, name: str, uid: str, node: str) -> bytes:
    return msgspec.json.encode(
        {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"namespace": namespace, "name": name, "uid": uid},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        }
    )
