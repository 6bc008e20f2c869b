from collections.abc import Mapping

import msgspec

from dra_extender.kube.client.errors import CallFailed, RequestIntent
from dra_extender.kube.client.transport import ApiCall, ApiTransport
from dra_extender.kube.leader.candidate import LeaseRecord
from dra_extender.kube.leader.lease_object import LEASES, read_lease

NOT_FOUND = 404
CONFLICT = 409


class KubeLease:
    """One Lease on an API server.  `seconds` is how long an answer may take.  Every method raises CallFailed."""

    def __init__(
        self, transport: ApiTransport, namespace: str, name: str, *, query: Mapping[str, str], seconds: float
    ) -> None:
        self.namespace = namespace
        self.name = name
        self._transport = transport
        self._query = query
        self._seconds = seconds

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"

    async def read(self) -> LeaseRecord | None:
        """The Lease as it is stored; None when there is none."""
        try:
            return await self._send("get", "GET", LEASES.path(self.namespace, self.name))
        except CallFailed as failed:
            if answered(failed, NOT_FOUND):
                return None
            raise

    async def create(self, body: bytes) -> LeaseRecord:
        """Store the first Lease of this name; 409 when there is one."""
        return await self._send("create", "POST", LEASES.path(self.namespace), body)

    async def replace(self, body: bytes) -> LeaseRecord:
        """Store it over the version that `body` names; 409 when it has changed since, 404 when it is gone."""
        return await self._send("update", "PUT", LEASES.path(self.namespace, self.name), body)

    async def _send(self, verb: str, method: str, path: str, body: bytes | None = None) -> LeaseRecord:
        intent = RequestIntent(verb, LEASES.plural, str(self))
        query = {} if body is None else self._query
        data = await self._transport.send(ApiCall(intent, method, path, self._seconds, query=query, body=body))
        try:
            return read_lease(data)
        except (msgspec.DecodeError, UnicodeDecodeError) as problem:
            raise CallFailed(intent, None, f"the answer is not a Lease: {problem}") from problem


def answered(failed: CallFailed, *codes: int) -> bool:
    """Whether the server refused with one of these codes."""
    return failed.status is not None and failed.status.code in codes
