"""Reads and writes Secrets; those that it creates have the type kubernetes.io/tls."""

import base64
import binascii
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import msgspec

from dra_extender.kube.client.credentials import find_credentials
from dra_extender.kube.client.errors import ApiCallError, RequestIntent
from dra_extender.kube.client.observer import NullObserver
from dra_extender.kube.client.resources import ResourceKind
from dra_extender.kube.client.settings import KubeSettings
from dra_extender.kube.client.transport import ApiCall, ApiTransport
from dra_extender.model.api_json import Value
from dra_extender.runtime.clock import SystemClock
from dra_extender.scheduling.ports.cluster import NotFoundError, ServerUnavailableError

SECRETS: Final = ResourceKind("secrets", "v1")
TYPE: Final = "kubernetes.io/tls"


class _Secret(Value, frozen=True):
    metadata: dict[str, Any] = msgspec.field(default_factory=dict)
    type: str = TYPE
    data: dict[str, str] | None = None


class StoredSecret(NamedTuple):
    """A Secret as it is stored: its metadata and type, and the data decoded."""

    metadata: Mapping[str, Any]
    type: str
    data: Mapping[str, bytes]


class SecretStore:
    """The Secrets of one namespace.  Every method raises ClusterError."""

    def __init__(self, settings: KubeSettings, namespace: str) -> None:
        self._settings = settings
        self._namespace = namespace
        self._clock = SystemClock()
        self._transport = ApiTransport(settings, self._clock, NullObserver())

    async def connect(self) -> None:
        """Find the API server.  Raises ConfigurationError."""
        self._transport.connect(await find_credentials(self._settings, self._clock))

    async def close(self) -> None:
        """Close the connections."""
        await self._transport.close()

    async def read(self, name: str) -> StoredSecret | None:
        """The Secret; None if there is none.  Values that are not base64 count as absent."""
        try:
            answer = await self._send("get", "GET", name, SECRETS.path(self._namespace, name))
        except ApiCallError as failed:
            problem = failed.as_cluster_error()
            if isinstance(problem, NotFoundError):
                return None
            raise problem from failed
        try:
            found = msgspec.json.decode(answer, type=_Secret)
        except (msgspec.MsgspecError, UnicodeDecodeError) as unreadable:
            raise ServerUnavailableError(f"Secret {name} cannot be read: {unreadable}") from unreadable
        return StoredSecret(found.metadata, found.type, _decoded(found.data or {}))

    async def write(self, name: str, data: Mapping[str, bytes], before: StoredSecret | None) -> None:
        """Create the Secret, or replace its data if nobody has changed it since it was read.  All else of it stays."""
        metadata = {**(before.metadata if before else {}), "namespace": self._namespace, "name": name}
        encoded = {key: base64.b64encode(value).decode() for key, value in data.items()}
        kept = before.type if before else TYPE
        body = msgspec.json.encode(
            {"apiVersion": "v1", "kind": "Secret", "type": kept, "metadata": metadata, "data": encoded}
        )
        try:
            if before is None:
                await self._send("create", "POST", name, SECRETS.path(self._namespace), body)
            else:
                await self._send("update", "PUT", name, SECRETS.path(self._namespace, name), body)
        except ApiCallError as failed:
            raise failed.as_cluster_error() from failed

    async def _send(self, verb: str, method: str, name: str, path: str, body: bytes | None = None) -> bytes:
        intent = RequestIntent(verb, SECRETS.plural, f"{self._namespace}/{name}")
        query = {} if body is None else {"fieldManager": self._settings.identity}
        return await self._transport.send(
            ApiCall(intent, method, path, self._settings.timeouts.write, query=query, body=body)
        )


def _decoded(data: Mapping[str, str]) -> Mapping[str, bytes]:
    found = {}
    for key, value in data.items():
        try:
            found[key] = base64.b64decode(value, validate=True)
        except (binascii.Error, ValueError):
            continue
    return found
