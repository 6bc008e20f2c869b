"""The Lease object (coordination.k8s.io/v1) between JSON and `LeaseRecord`."""

import msgspec

from dra_extender.kube.client.resources import ResourceKind
from dra_extender.kube.client.timestamps import micro_time
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
    mine = before is not None and before.holder == identity
    transitions = 0 if before is None else before.transitions + (not mine)
    acquired = before.acquired if before is not None and mine and before.acquired else stamp
    spec = {
        "holderIdentity": identity,
        "leaseDurationSeconds": duration,
        "leaseTransitions": transitions,
        "acquireTime": acquired,
        "renewTime": stamp,
    }
    return _encode(namespace, name, before, spec)


def released_lease(namespace: str, name: str, before: LeaseRecord, *, now: float) -> bytes:
    """The Lease given up, as upstream's leader election writes it: no holder, and a duration that is over at once."""
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
