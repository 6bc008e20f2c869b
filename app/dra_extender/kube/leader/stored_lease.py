from typing import Final

import msgspec

from dra_extender.kube.client.errors import ApiCallError
from dra_extender.kube.client.objects import ApiObjects
from dra_extender.kube.client.resources import ResourceKind, micro_time
from dra_extender.kube.leader.lease import LeaseRecord

LEASES: Final = ResourceKind("leases", "coordination.k8s.io/v1")
NOT_FOUND: Final = 404
CONFLICT: Final = 409


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
    """Decode a stored Lease.  Raises msgspec.DecodeError: it is no Lease."""
    lease = _LEASE.decode(data)
    spec = lease.spec or _Spec()
    return LeaseRecord(
        version=lease.metadata.resource_version,
        holder=spec.holder_identity or "",
        duration=float(spec.lease_duration_seconds or 0),
        transitions=spec.lease_transitions or 0,
        acquired=spec.acquire_time or "",
        renewed=spec.renew_time or "",
    )


def held_lease(
    namespace: str, name: str, identity: str, before: LeaseRecord | None, *, duration: int, now: float
) -> bytes:
    """Return the Lease taken or renewed by `identity`; `now` is wall clock, for people alone.

    Transitions count changes of the holder.
    """
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
    """Return the released Lease, as upstream's leader election writes it: no holder, and the shortest duration."""
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


class StoredLease:
    """One Lease on an API server.  Every method raises ApiCallError."""

    def __init__(self, api: ApiObjects, namespace: str, name: str) -> None:
        self.namespace = namespace
        self.name = name
        self._api = api

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"

    async def read(self) -> LeaseRecord | None:
        """Return the Lease as it is stored; None when there is none."""
        try:
            return await self._send("get")
        except ApiCallError as failed:
            if answered(failed, NOT_FOUND):
                return None
            raise

    async def create(self, body: bytes) -> LeaseRecord:
        """Store the first Lease of this name; 409 when there is one."""
        return await self._send("create", body)

    async def replace(self, body: bytes) -> LeaseRecord:
        """Store it over the version that `body` names; 409 when it has changed since, 404 when it is gone."""
        return await self._send("update", body)

    async def _send(self, verb: str, body: bytes | None = None) -> LeaseRecord:
        call = self._api.call(verb, LEASES, self.namespace, self.name, body)
        data = await self._api.send(call)
        try:
            return read_lease(data)
        except (msgspec.DecodeError, UnicodeDecodeError) as problem:
            raise ApiCallError(call.intent, None, f"the answer is not a Lease: {problem}") from problem


def answered(failed: ApiCallError, *codes: int) -> bool:
    """Return whether the server refused with one of these codes."""
    return failed.status is not None and failed.status.code in codes
