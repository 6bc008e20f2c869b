"""Reads and writes Secrets; those that it creates have the type kubernetes.io/tls."""

import base64
import binascii
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import msgspec

from dra_extender.kube.client.objects import ApiObjects, ResourceKind
from dra_extender.kube.client.settings import KubeSettings
from dra_extender.kube.client.transport import ApiTransport
from dra_extender.model.api_json import Value, reader
from dra_extender.scheduling.ports.cluster import NotFoundError

SECRETS: Final = ResourceKind("secrets", "v1")
TYPE: Final = "kubernetes.io/tls"


class _Secret(Value, frozen=True):
    metadata: dict[str, Any] = msgspec.field(default_factory=dict)
    type: str = TYPE
    data: dict[str, str] | None = None


_read_secret: Final = reader("Secret", _Secret)


class StoredSecret(NamedTuple):
    """A Secret as it is stored: its metadata and type, and the data decoded."""

    metadata: Mapping[str, Any]
    type: str
    data: Mapping[str, bytes]


class SecretStore:
    """The Secrets of one namespace.  Every method raises ClusterError."""

    def __init__(self, settings: KubeSettings, namespace: str) -> None:
        self._namespace = namespace
        self._transport = ApiTransport(settings)
        self._api = ApiObjects(self._transport, settings)

    async def connect(self) -> None:
        """Find the API server.  Raises ConfigurationError."""
        await self._transport.open()

    async def close(self) -> None:
        await self._transport.close()

    async def read(self, name: str) -> StoredSecret | None:
        """Return the Secret; None if there is none.  Values that are not base64 count as absent."""
        try:
            secret = await self._api.perform_and_read(
                self._api.call("get", SECRETS, self._namespace, name), _read_secret
            )
        except NotFoundError:
            return None
        decoded = {}
        for key, value in (secret.data or {}).items():
            try:
                decoded[key] = base64.b64decode(value, validate=True)
            except (binascii.Error, ValueError):
                continue
        return StoredSecret(secret.metadata, secret.type, decoded)

    async def write(self, name: str, data: Mapping[str, bytes], before: StoredSecret | None) -> None:
        """Create the Secret, or replace its data if nobody has changed it since it was read.  All else of it stays."""
        secret = {
            "apiVersion": "v1",
            "kind": "Secret",
            "type": before.type if before else TYPE,
            "metadata": {**(before.metadata if before else {}), "namespace": self._namespace, "name": name},
            "data": {key: base64.b64encode(value).decode() for key, value in data.items()},
        }
        verb, body = "create" if before is None else "update", msgspec.json.encode(secret)
        await self._api.perform(self._api.call(verb, SECRETS, self._namespace, name, body))
