"""The kinds of objects, their paths, and requests about single objects."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Final, TypeVar
from urllib.parse import quote

from dra_extender.kube.client.errors import ApiCallError, RequestIntent
from dra_extender.kube.client.settings import KubeSettings
from dra_extender.kube.client.transport import JSON, ApiCall, ApiTransport
from dra_extender.model.api_json import ModelError
from dra_extender.scheduling.ports.cluster import RequestRejectedError, ServerUnavailableError

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ResourceKind:
    """A collection of the API: plural name, `apiVersion`, and whether its objects live in namespaces.

    `selector` is a field selector: lists have no other objects.
    """

    plural: str
    group_version: str
    namespaced: bool = True
    selector: str = ""

    def path(self, namespace: str | None = None, name: str | None = None, subresource: str = "") -> str:
        """Return the URL path of a collection (of all namespaces, or of one), of an object, or of a part of an object.

        Raises:
            RequestRejectedError: namespace or name cannot be part of a path.
        """
        root = "/apis" if "/" in self.group_version else "/api"
        scope = ("namespaces", _segment(namespace)) if self.namespaced and namespace is not None else ()
        tail = (_segment(name), *((subresource,) if subresource else ())) if name is not None else ()
        return "/".join((root, self.group_version, *scope, self.plural, *tail))


def _segment(text: str) -> str:
    # Names arrive from outside; the API server refuses these for objects, and in a URL they would mean another object.
    if text in ("", ".", "..") or "/" in text or "%" in text:
        raise RequestRejectedError(f"{text!r} cannot be the name of an object or namespace")
    return quote(text, safe="")


RESOURCE_SLICES = ResourceKind("resourceslices", "resource.k8s.io/v1", namespaced=False)
RESOURCE_CLAIMS = ResourceKind("resourceclaims", "resource.k8s.io/v1")
CLAIM_TEMPLATES = ResourceKind("resourceclaimtemplates", "resource.k8s.io/v1")
DEVICE_CLASSES = ResourceKind("deviceclasses", "resource.k8s.io/v1", namespaced=False)
PODS = ResourceKind("pods", "v1")
NODES = ResourceKind("nodes", "v1", namespaced=False)
EVENTS = ResourceKind("events", "events.k8s.io/v1")
WARNINGS = ResourceKind("events", "v1", selector="type=Warning,source!=kubelet")
"""What controllers and schedulers complain of; what kubelets say of containers may hold secrets."""
DISRUPTION_BUDGETS = ResourceKind("poddisruptionbudgets", "policy/v1")

WATCHED = {kind.plural: kind for kind in (RESOURCE_SLICES, RESOURCE_CLAIMS, DEVICE_CLASSES, PODS, NODES)}
"""The kinds that every server we work with serves; those whose version varies come from discovery."""


def micro_time(seconds: float) -> str:
    """Return a time (seconds since the epoch) as the API writes one with microseconds (MicroTime)."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


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
        """Send a request on behalf of a use case in a span, and return the body of the answer.

        A server that is too busy does nothing and says when to come again (429 with `Retry-After`).  The request is then repeated,
        as other clients of Kubernetes do, as long as all tries together take no longer than one may.

        Raises:
            ClusterError: of the kind that says what the caller can do.
        """
        loop = asyncio.get_running_loop()
        end = loop.time() + call.seconds
        attempt = call
        with self._transport.spans.step(f"{call.intent.verb} {call.intent.resource}"):
            while True:
                try:
                    return await self._transport.send(attempt)
                except ApiCallError as failed:
                    pause = failed.retry_after
                    if not (failed.code == HTTPStatus.TOO_MANY_REQUESTS and pause) or loop.time() + pause >= end:
                        raise failed.as_cluster_error() from failed
                await asyncio.sleep(pause)
                attempt = replace(call, seconds=end - loop.time())

    async def perform_and_read(self, call: ApiCall, read: Callable[[bytes], T]) -> T:
        """Perform a request, and return what `read` makes of the answer.

        Raises:
            ServerUnavailableError: the answer cannot be read.
            ClusterError: as `perform`.
        """
        answer = await self.perform(call)
        try:
            return read(answer)
        except ModelError as problem:
            raise ServerUnavailableError(f"{call.intent}: the answer cannot be read: {problem}") from problem
