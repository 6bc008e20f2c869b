import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from dra_extender.kube.client.errors import ApiCallError, RequestIntent
from dra_extender.kube.client.resources import ResourceKind
from dra_extender.kube.client.settings import KubeSettings
from dra_extender.kube.client.transport import JSON, ApiCall, ApiTransport

_METHODS: Final[Mapping[str, str]] = {
    "get": "GET",
    "create": "POST",
    "update": "PUT",
    "patch": "PATCH",
    "apply": "PATCH",
    "delete": "DELETE",
}
_WITHOUT_MANAGER: Final = frozenset({"get", "delete"})


class ApiObjects:
    """Requests about single objects.  Writes name our field manager, which distinguishes them from those of others."""

    def __init__(self, transport: ApiTransport, settings: KubeSettings) -> None:
        self._transport = transport
        self._timeouts = settings.timeouts
        self._query = {"fieldManager": settings.identity}

    def call(
        self,
        verb: str,
        kind: ResourceKind,
        namespace: str | None,
        name: str,
        body: bytes | None = None,
        *,
        subresource: str = "",
        content_type: str = JSON,
        accept: str = JSON,
    ) -> ApiCall:
        """Return a request by its API verb.

        Raises:
            RequestRejectedError: namespace or name cannot be part of a path.
        """
        # An object is created in its collection, a subresource at its object.
        at = None if verb == "create" and not subresource else name
        resource = f"{kind.plural}/{subresource}" if subresource else kind.plural
        return ApiCall(
            RequestIntent(verb, resource, "/".join(filter(None, (namespace, name)))),
            _METHODS[verb],
            kind.path(namespace, at, subresource),
            self._timeouts.read if verb == "get" else self._timeouts.write,
            query={} if verb in _WITHOUT_MANAGER else self._query,
            body=body,
            content_type=content_type,
            accept=accept,
        )

    async def send(self, call: ApiCall) -> bytes:
        """Send the request once, and return the body of the answer.  Raises ApiCallError."""
        return await self._transport.send(call)

    async def perform(self, call: ApiCall) -> bytes:
        """Send a request on behalf of a use case, and return the body of the answer.

        A server that is too busy does nothing and says when to come again (429 with `Retry-After`).  The request is then repeated,
        as other clients of Kubernetes do, as long as all tries together take no longer than one may.

        Raises:
            ClusterError: of the kind that says what the caller can do.
        """
        loop = asyncio.get_running_loop()
        end = loop.time() + call.seconds
        attempt = call
        while True:
            try:
                return await self._transport.send(attempt)
            except ApiCallError as failed:
                pause = failed.retry_after
                if not (failed.busy and pause) or loop.time() + pause >= end:
                    raise failed.as_cluster_error() from failed
            await asyncio.sleep(pause)
            attempt = replace(call, seconds=end - loop.time())
