"""The EndpointSlice that names the leader."""

import ipaddress
from collections.abc import Mapping
from dataclasses import replace
from typing import Final, NamedTuple

import msgspec
import structlog

from dra_extender.kube.client.backoff import Backoff, SleepAndJitter
from dra_extender.kube.client.errors import ApiCallError
from dra_extender.kube.client.objects import ApiObjects, ResourceKind
from dra_extender.kube.client.settings import KubeSettings
from dra_extender.kube.client.transport import APPLY, ApiTransport

ENDPOINT_SLICES: Final = ResourceKind("endpointslices", "discovery.k8s.io/v1")
_AGAIN_SECONDS: Final = 30.0

_LOG = structlog.get_logger(__name__)


class ServiceEndpoint(NamedTuple):
    """A Service without selector, and where this replica listens for it: ports by the names that the Service gives them."""

    namespace: str
    service: str
    address: str
    ports: Mapping[str, int]


class EndpointPublisher:
    """Points a Service without selector at this replica, by an EndpointSlice of the Service's name.

    kube-scheduler then calls only the leader, from the moment in which it is ready, while standbys stay healthy pods of their
    Deployment.  A new leader takes the calls of one that froze or lost its node at once, before that one's probes fail.
    """

    def __init__(
        self,
        transport: ApiTransport,
        settings: KubeSettings,
        endpoint: ServiceEndpoint,
        chance: SleepAndJitter | None = None,
    ) -> None:
        self.last_error: str | None = None
        self._chance = chance or SleepAndJitter()
        self._api = ApiObjects(transport, settings)
        body = _endpoint_slice(endpoint)
        call = self._api.call("apply", ENDPOINT_SLICES, endpoint.namespace, endpoint.service, body, content_type=APPLY)
        self._call = replace(call, query={**call.query, "force": "true"})

    async def keep_publishing(self) -> None:
        """Publish now and every 30 s, because others may change the EndpointSlice, until cancelled."""
        backoff = Backoff(self._chance.number)
        while True:
            try:
                await self._api.send(self._call)
            except ApiCallError as failed:
                if str(failed) != self.last_error:
                    _LOG.warning("EndpointSlice was not written", problem=str(failed))
                self.last_error = str(failed)
                await self._chance.sleep(backoff.next(failed.retry_after))
            else:
                self.last_error = None
                backoff.reset()
                await self._chance.sleep(_AGAIN_SECONDS)


def _endpoint_slice(endpoint: ServiceEndpoint) -> bytes:
    """Return the one endpoint of the Service.  JSON is YAML, which is what server-side apply takes."""
    return msgspec.json.encode(
        {
            "apiVersion": ENDPOINT_SLICES.group_version,
            "kind": "EndpointSlice",
            "metadata": {
                "namespace": endpoint.namespace,
                "name": endpoint.service,
                "labels": {
                    "kubernetes.io/service-name": endpoint.service,
                    "endpointslice.kubernetes.io/managed-by": "dra-extender",
                },
            },
            "addressType": f"IPv{ipaddress.ip_address(endpoint.address).version}",
            "endpoints": [{"addresses": [endpoint.address], "conditions": {"ready": True}}],
            "ports": [{"name": name, "port": port, "protocol": "TCP"} for name, port in endpoint.ports.items()],
        }
    )
