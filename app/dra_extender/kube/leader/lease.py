"""Who leads: the rules, and the Lease on the API server.

As in upstream's leader election, clocks of two machines are never compared: a candidate waits until it has itself seen a lease
unchanged for the lease's duration, and a leader stops before that time has passed since it *sent* its last successful renewal.
All times here are seconds of a monotonic clock of this machine that also runs while the process or machine sleeps.
"""

from dataclasses import dataclass, replace
from http import HTTPStatus
from typing import Final

import msgspec

from dra_extender.kube.client.errors import ApiCallError
from dra_extender.kube.client.objects import ApiObjects, ResourceKind, micro_time

LEASES: Final = ResourceKind("leases", "coordination.k8s.io/v1")
_NEVER: Final = float("-inf")


@dataclass(frozen=True, slots=True)
class LeaseTimes:
    """How long things last, in seconds.

    `duration`: a lease that was not renewed for so long may be taken by another replica.  `renew`: a leader whose last successful
    renewal was sent so long ago stops; less than `duration`, which leaves room for clocks of different speed and for writes on
    their way.  `retry`: between two tries to get or renew the lease.
    """

    duration: int = 15
    renew: float = 10.0
    retry: float = 2.0


@dataclass(frozen=True, slots=True)
class LeaseRecord:
    """A Lease as it is stored.  `holder` is empty when it was released; `version` is its resourceVersion."""

    version: str
    holder: str = ""
    duration: float = 0.0
    transitions: int = 0
    acquired: str = ""
    renewed: str = ""

    def same_term(self, record: "LeaseRecord") -> bool:
        """Return whether the lease was neither acquired, renewed nor released between the two; other edits do not count."""
        return replace(self, version=record.version) == record

    def released(self, now: float) -> "LeaseRecord":
        """Return the released Lease, as upstream's leader election writes it: no holder, and the shortest duration."""
        stamp = micro_time(now)
        return LeaseRecord(self.version, "", 1.0, self.transitions, stamp, stamp)


def held_lease(before: LeaseRecord | None, identity: str, *, duration: int, now: float) -> LeaseRecord:
    """Return the Lease taken or renewed by `identity`; `now` is wall clock, only for people.

    Transitions count changes of the holder.
    """
    stamp = micro_time(now)
    if before is None:
        return LeaseRecord("", identity, duration, 0, stamp, stamp)
    renewal = before.holder == identity
    acquired = before.acquired if renewal and before.acquired else stamp
    return LeaseRecord(before.version, identity, duration, before.transitions + (not renewal), acquired, stamp)


class LeaseView:
    """The lease as one replica has seen it: whether this replica may take it, and until when it leads."""

    def __init__(self, identity: str, times: LeaseTimes) -> None:
        self.identity = identity
        self.record: LeaseRecord | None = None
        self._times = times
        self._seen = _NEVER
        self._deadline = _NEVER

    def saw(self, record: LeaseRecord | None, now: float) -> None:
        """Take in the lease as it is stored, None when there is none.

        A lease that vanished counts as unchanged until its time is over.
        """
        if record is None:
            if self.record is not None:
                self.record = LeaseRecord("", self.record.holder, self.record.duration, self.record.transitions)
            return
        if self.record is None or not record.same_term(self.record):
            self._seen = now
        self.record = record

    def may_take(self, now: float) -> bool:
        """Return whether no other replica can be leading."""
        record = self.record
        if record is None or record.holder in ("", self.identity):
            return True
        return now >= self._seen + (record.duration or self._times.duration)

    def renewed(self, record: LeaseRecord, sent: float, now: float) -> None:
        """Take in that our write of the lease, sent at that moment, was stored."""
        self.saw(record, now)
        self._deadline = max(self._deadline, sent + self._times.renew)

    def resign(self) -> None:
        self._deadline = _NEVER

    def leads(self, now: float) -> bool:
        return now < self._deadline

    def remaining(self, now: float) -> float:
        """Return the seconds until the deadline; 0 when it has passed."""
        return max(0.0, self._deadline - now)

    @property
    def holder(self) -> str:
        """The holder of the lease as last seen; empty when it is released."""
        return self.record.holder if self.record is not None else ""


def held_on(holder: str, host: str) -> bool:
    """Return whether this is the identity of a process on that host, as Kubernetes' components make theirs: HOST_UUID."""
    return holder.rpartition("_")[0] == host


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


class StoredLease:
    """One Lease on an API server.  Every method raises ApiCallError."""

    def __init__(self, api: ApiObjects, namespace: str, name: str) -> None:
        self._namespace = namespace
        self._name = name
        self._api = api

    def __str__(self) -> str:
        return f"{self._namespace}/{self._name}"

    async def read(self) -> LeaseRecord | None:
        """Return the Lease as it is stored; None when there is none."""
        try:
            return await self._send("get")
        except ApiCallError as failed:
            if failed.code == HTTPStatus.NOT_FOUND:
                return None
            raise

    async def write(self, record: LeaseRecord) -> LeaseRecord:
        """Store the Lease over the version of `record`, or create it where that is empty; return it as it is stored.

        The API server answers 409 when the Lease has changed since that version, or exists already, and 404 when it is gone.
        """
        metadata = {"namespace": self._namespace, "name": self._name}
        if record.version:
            metadata["resourceVersion"] = record.version
        spec = _Spec(record.holder, int(record.duration), record.transitions, record.acquired, record.renewed)
        body = {"apiVersion": LEASES.group_version, "kind": "Lease", "metadata": metadata, "spec": spec}
        return await self._send("update" if record.version else "create", msgspec.json.encode(body))

    async def _send(self, verb: str, body: bytes | None = None) -> LeaseRecord:
        call = self._api.call(verb, LEASES, self._namespace, self._name, body)
        data = await self._api.send(call)
        try:
            lease = msgspec.json.decode(data, type=_Lease)
        except (msgspec.DecodeError, UnicodeDecodeError) as problem:
            raise ApiCallError(call.intent, None, f"the answer is not a Lease: {problem}") from problem
        spec = lease.spec or _Spec()
        return LeaseRecord(
            version=lease.metadata.resource_version,
            holder=spec.holder_identity or "",
            duration=float(spec.lease_duration_seconds or 0),
            transitions=spec.lease_transitions or 0,
            acquired=spec.acquire_time or "",
            renewed=spec.renew_time or "",
        )
