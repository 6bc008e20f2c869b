import msgspec

from app.kube.errors import Intent
from app.kube.kinds import RESOURCE_CLAIMS
from app.kube.requests import perform
from app.kube.settings import KubeSettings
from app.kube.transport import Call, Transport


class KubeClaims:
    """ResourceClaims of an API server (`app.scheduling.ports.Claims`); bodies go both ways unchanged.

    Writes name our field manager, which is how our allocations are told from those of other schedulers.
    """

    def __init__(self, transport: Transport, settings: KubeSettings) -> None:
        self._transport = transport
        self._timeouts = settings.timeouts
        self._query = {"fieldManager": settings.identity}

    async def read(self, namespace: str, name: str) -> bytes:
        """The live object.  Raises NotFound, Refused, Unavailable."""
        intent = Intent("get", RESOURCE_CLAIMS.plural, f"{namespace}/{name}")
        path = RESOURCE_CLAIMS.path(namespace, name)
        return await perform(self._transport, Call(intent, "GET", path, self._timeouts.read))

    async def create(self, namespace: str, body: bytes) -> bytes:
        """Store a new claim.  Raises Conflict if there is one of that name, and every other ClusterError."""
        intent = Intent("create", RESOURCE_CLAIMS.plural, namespace)
        path = RESOURCE_CLAIMS.path(namespace)
        return await perform(
            self._transport, Call(intent, "POST", path, self._timeouts.write, query=self._query, body=body)
        )

    async def delete(self, namespace: str, name: str, uid: str, version: str | None = None) -> None:
        """Delete the claim with this UID, in this version if one is given.

        Raises:
            Conflict: the claim of that name has another UID or version.
            ClusterError: any other kind.
        """
        intent = Intent("delete", RESOURCE_CLAIMS.plural, f"{namespace}/{name}")
        path = RESOURCE_CLAIMS.path(namespace, name)
        wanted = {"uid": uid} if version is None else {"uid": uid, "resourceVersion": version}
        body = msgspec.json.encode({"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": wanted})
        await perform(self._transport, Call(intent, "DELETE", path, self._timeouts.write, body=body))

    async def update(self, namespace: str, name: str, body: bytes) -> bytes:
        """Replace metadata and spec; `body` carries the resourceVersion it was made from.  Raises every ClusterError."""
        return await self._replace(namespace, name, "", body)

    async def update_status(self, namespace: str, name: str, body: bytes) -> bytes:
        """Replace the status; `body` carries the resourceVersion it was made from.  Raises every ClusterError."""
        return await self._replace(namespace, name, "status", body)

    async def _replace(self, namespace: str, name: str, part: str, body: bytes) -> bytes:
        resource = "/".join(filter(None, (RESOURCE_CLAIMS.plural, part)))
        intent = Intent("update", resource, f"{namespace}/{name}")
        path = RESOURCE_CLAIMS.path(namespace, name, part)
        call = Call(intent, "PUT", path, self._timeouts.write, query=self._query, body=body)
        return await perform(self._transport, call)
