from collections.abc import Mapping

import msgspec

from dra_extender.kube.client.errors import ApiCallError, RequestIntent
from dra_extender.kube.client.resources import ResourceKind, micro_time
from dra_extender.kube.client.transport import ApiCall, ApiTransport
from dra_extender.kube.leader.candidate import LeaseRecord

LEASES = ResourceKind("leases", "coordination.k8s.io/v1")


class _Metadata(msgspec.Struct, frozen=True):
    resource_version: str = msgspec.field(default="", name="resourceVersion")


class _Spec(msgspec.Struct, frozen=True, rename="camel"):
    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    lease_transitions: int | None = None
    acquire_time: str | None = None
    renew_time: str | None = None


class _Lease(msgspec.Struct, frozen=True):
    metadata: _Metadata = _Metadata()
    spec: _Spec | None = None


_LEASE = msgspec.json.Decoder(_Lease)


def read_lease(data: bytes) -> LeaseRecord:
    """What a stored Lease says.  Raises msgspec.DecodeError: it is no Lease."""
    found = _LEASE.decode(data)
    spec = found.spec or _Spec()
    return LeaseRecord(
        version=found.metadata.resource_version,
        holder=spec.holder_identity or "",
        duration=float(spec.lease_duration_seconds or 0),
        transitions=spec.lease_transitions or 0,
        acquired=spec.acquire_time or "",
        renewed=spec.renew_time or "",
    )


def held_lease(
    namespace: str, name: str, identity: str, before: LeaseRecord | None, *, duration: int, now: float
) -> bytes:
    """The Lease taken or renewed by `identity`; `now` is wall clock, for people alone.  Transitions count changes of the holder."""
    stamp = micro_time(now)
    renewal = before is not None and before.holder == identity
    transitions = 0 if before is None else before.transitions + (not renewal)
    acquired = before.acquired if before is not None and renewal and before.acquired else stamp
    spec = {
        "holderIdentity": identity,
        "leaseDurationSeconds": duration,
        "leaseTransitions": transitions,
        "acquireTime": acquired,
        "renewTime": stamp,
    }
    return _encode(namespace, name, before, spec)


def released_lease(namespace: str, name: str, before: LeaseRecord, *, now: float) -> bytes:
    """The released Lease, as upstream's leader election writes it: no holder, and the shortest duration."""
    stamp = micro_time(now)
    spec = {
        "holderIdentity": "",
        "leaseDurationSeconds": 1,
        "leaseTransitions": before.transitions,
        "acquireTime": stamp,
        "renewTime": stamp,
    }
    return _encode(namespace, name, before, spec)


def _encode(namespace: str, name: str, before: LeaseRecord | None, spec: dict[str, object]) -> bytes:
    metadata = {"namespace": namespace, "name": name}
    if before is not None and before.version:
        metadata["resourceVersion"] = before.version
    return msgspec.json.encode(
        {"apiVersion": LEASES.group_version, "kind": "Lease", "metadata": metadata, "spec": spec}
    )


NOT_FOUND = 404
CONFLICT = 409


class KubeLease:
    """One Lease on an API server.  `seconds` is how long an answer may take.  Every method raises ApiCallError."""

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
        except ApiCallError as failed:
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
            raise ApiCallError(intent, None, f"the answer is not a Lease: {problem}") from problem


def answered(failed: ApiCallError, *codes: int) -> bool:
    """Whether the server refused with one of these codes."""
    return failed.status is not None and failed.status.code in codes
