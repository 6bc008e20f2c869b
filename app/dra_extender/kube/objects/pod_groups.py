from collections.abc import Callable, Mapping

import msgspec

from dra_extender.kube.client.errors import RequestIntent
from dra_extender.kube.client.resources import ResourceKind
from dra_extender.kube.client.retry import perform
from dra_extender.kube.client.settings import KubeSettings
from dra_extender.kube.client.transport import MERGE_PATCH, ApiCall, ApiTransport
from dra_extender.kube.objects.claim_status import StatusPrecondition, record_claims
from dra_extender.model.api_json import ModelError
from dra_extender.model.pod_group import PodGroup, read_pod_group
from dra_extender.scheduling.ports.cluster import NotFoundError, ServerUnavailableError


class KubePodGroups:
    """PodGroups of an API server in the version that it serves (`dra_extender.scheduling.ports.cluster.PodGroups`)."""

    def __init__(
        self, transport: ApiTransport, settings: KubeSettings, served: Callable[[], ResourceKind | None]
    ) -> None:
        """`served`: the kind as discovery has found it, None where there is none."""
        self._transport = transport
        self._settings = settings
        self._served = served

    @property
    def api_version(self) -> str:
        """`apiVersion` of the PodGroups that are served, empty where none are."""
        kind = self._served()
        return "" if kind is None else kind.group_version

    async def read(self, namespace: str, name: str) -> PodGroup:
        """The live object.  Raises NotFoundError (also where none are served), RequestRejectedError, ServerUnavailableError."""
        kind = self._kind()
        intent = RequestIntent("get", kind.plural, f"{namespace}/{name}")
        call = ApiCall(intent, "GET", kind.path(namespace, name), self._settings.timeouts.read)
        body = await perform(self._transport, call)
        try:
            return read_pod_group(body)
        except ModelError as problem:
            raise ServerUnavailableError(f"{intent}: the answer cannot be read: {problem}") from problem

    async def record_claims(self, group: PodGroup, claims: Mapping[str, str]) -> None:
        """Add entries to `status.resourceClaimStatuses`.

        Raises:
            ConflictError: the group is not in this version any more.
            ClusterError: any other kind.
        """
        meta = group.metadata
        thing = StatusPrecondition(self._kind(), meta.namespace, meta.name, meta.uid, meta.resource_version)
        await record_claims(self._transport, self._settings, thing, claims)

    async def unprotect(self, group: PodGroup, finalizer: str) -> None:
        """Remove the finalizer.  Raises as `record_claims`."""
        meta, kind = group.metadata, self._kind()
        left = [each for each in meta.finalizers if each != finalizer]
        change = {"metadata": {"uid": meta.uid, "resourceVersion": meta.resource_version, "finalizers": left or None}}
        call = ApiCall(
            RequestIntent("patch", kind.plural, f"{meta.namespace}/{meta.name}"),
            "PATCH",
            kind.path(meta.namespace, meta.name),
            self._settings.timeouts.write,
            query={"fieldManager": self._settings.identity},
            body=msgspec.json.encode(change),
            content_type=MERGE_PATCH,
        )
        await perform(self._transport, call)

    def _kind(self) -> ResourceKind:
        kind = self._served()
        if kind is None:
            raise NotFoundError("podgroups are not served by this API server")
        return kind
