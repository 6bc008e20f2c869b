"""Leader election by a Lease.  Every write asks `LeaderElection.reason` through the `write_fence` of `kube.client.transport`.

As in upstream's leader election, clocks of two machines are never compared: a candidate waits until it has itself seen a lease
unchanged for the lease's duration, and a leader stops before that time has passed since it *sent* its last successful renewal.
All times here are seconds of a monotonic clock of this machine that also runs while the process or machine sleeps.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from typing import Final

import msgspec
import structlog

from dra_extender.kube.client.backoff import SleepAndJitter
from dra_extender.kube.client.credentials import Credentials
from dra_extender.kube.client.errors import ApiCallError
from dra_extender.kube.client.objects import ApiObjects, ResourceKind, micro_time
from dra_extender.kube.client.settings import KubeSettings
from dra_extender.kube.client.transport import ApiTransport
from dra_extender.runtime.clock import SystemClock
from dra_extender.scheduling.ports.cluster import Clock
from dra_extender.telemetry.observer import Observer

LEASES: Final = ResourceKind("leases", "coordination.k8s.io/v1")
_NEVER: Final = float("-inf")
_JITTER: Final = 0.2

_LOG = structlog.get_logger(__name__)


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
class LeaseSettings:
    """Which Lease, who wants it (`host`; `identity` also distinguishes processes there), and the times of the lease.

    `follow`: name of the Lease of kube-schedulers that each call the replica beside them; the replica beside the one that leads
    is to lead then.
    """

    namespace: str
    name: str
    host: str
    identity: str
    times: LeaseTimes = field(default_factory=LeaseTimes)
    follow: str | None = None


class LeaderElection:
    """Lets one replica act at a time, by a Lease.

    `acquire` returns when this replica leads, `renew` when it does not any more, and `reason` says at any moment whether it may
    act, judged only by our own clock.  Requests for the lease have connections of their own, so that renewals never queue behind
    other work.
    """

    def __init__(
        self,
        settings: LeaseSettings,
        kube: KubeSettings,
        *,
        observer: Observer,
        on_term: Callable[[bool], None],
        clock: Clock | None = None,
        chance: SleepAndJitter | None = None,
    ) -> None:
        """`on_term` is called with True when a term of this replica begins, and with False when it ends."""
        self.last_error: str | None = None
        self._settings = settings
        self._clock = clock or SystemClock()
        self._on_term = on_term
        self._chance = chance or SleepAndJitter()
        self._view = LeaseView(settings.identity, settings.times)
        self._scheduler = ""
        self._transport = ApiTransport(kube, self._clock, observer)
        # Two requests fit before the deadline.
        seconds = settings.times.renew / 2
        timeouts = replace(kube.timeouts, read=seconds, write=seconds)
        api = ApiObjects(self._transport, replace(kube, timeouts=timeouts))
        self._lease = StoredLease(api, settings.namespace, settings.name)
        self._followed = StoredLease(api, settings.namespace, settings.follow) if settings.follow else None

    def connect(self, credentials: Credentials) -> None:
        """Set the server.  Raises ConfigurationError as ApiTransport does."""
        self._transport.connect(credentials)

    def reason(self) -> str | None:
        """Return None while this replica leads; otherwise why it may not act."""
        if self._leads():
            return None
        holder = self._view.holder
        if holder == self._settings.identity:
            return "this replica has not renewed its lease in time and leads no more"
        if holder:
            return f"this replica stands by, {holder} leads"
        if self._followed is not None and not held_on(self._scheduler, self._settings.host):
            return f"this replica stands by, the kube-scheduler that leads is {self._scheduler or 'not known'}"
        return "this replica stands by, no leader is known"

    async def acquire(self) -> None:
        """Return when the lease is ours; failures are logged and tried again."""
        while not self._leads():
            await self._attempt(self._take_if_free)
            if not self._leads():
                await self._pause()
        self._on_term(True)
        _LOG.info("became leader", lease=str(self._lease), identity=self._settings.identity)

    async def renew(self) -> None:
        """Renew the lease until it is lost.

        It is lost when another replica takes it, when it is not renewed in time, or when kube-scheduler calls another replica.
        """
        view = self._view
        while self._leads():
            await self._pause(view.remaining(self._clock.monotonic()))
            # A process that was stopped wakes up here: what it knew is worth nothing then, not even a last try.
            if not self._leads():
                break
            await self._attempt(self._renew)
            if view.holder != self._settings.identity:
                view.resign()
        view.resign()
        self._on_term(False)
        _LOG.warning("lost leadership", lease=str(self._lease), holder=view.holder, problem=self.last_error)

    async def release(self) -> None:
        """Stop leading, release the lease if this replica holds it, and close the connections; never raises."""
        if self._leads():
            self._view.resign()
            await self._attempt(self._give_up)
            self._on_term(False)
            _LOG.info("released lease", lease=str(self._lease), problem=self.last_error)
        await self._transport.close()

    def _leads(self) -> bool:
        return self._view.leads(self._clock.monotonic())

    async def _take_if_free(self) -> None:
        called_elsewhere = await self._called_elsewhere(unless_known=True)
        self._saw(await self._lease.read())
        if not called_elsewhere and self._view.may_take(self._clock.monotonic()):
            await self._write()

    async def _renew(self) -> None:
        """Write without reading first; after a conflict, renew only what is still ours."""
        if await self._called_elsewhere(unless_known=False):
            self._view.resign()
            await self._give_up()
            return
        try:
            await self._write()
        except ApiCallError as failed:
            if failed.code not in (HTTPStatus.CONFLICT, HTTPStatus.NOT_FOUND):
                raise
            self._saw(await self._lease.read())
            if self._view.holder == self._settings.identity:
                await self._write()

    async def _called_elsewhere(self, *, unless_known: bool) -> bool:
        """Return whether the kube-scheduler that leads calls another replica; `unless_known` is the answer while none leads."""
        if self._followed is None:
            return False
        try:
            lease = await self._followed.read()
        except ApiCallError:
            if unless_known:
                raise
            return False
        self._scheduler = lease.holder if lease is not None else ""
        return unless_known if not self._scheduler else not held_on(self._scheduler, self._settings.host)

    async def _write(self) -> None:
        """Take or renew the lease as it was last seen; the server refuses if it has changed since."""
        settings = self._settings
        record = held_lease(
            self._view.record, settings.identity, duration=settings.times.duration, now=self._clock.now()
        )
        sent = self._clock.monotonic()
        stored = await self._lease.write(record)
        self._view.renewed(stored, sent, self._clock.monotonic())

    async def _give_up(self) -> None:
        record = self._view.record
        if record is not None and record.version:
            self._saw(await self._lease.write(record.released(self._clock.now())))

    def _saw(self, record: "LeaseRecord | None") -> None:
        self._view.saw(record, self._clock.monotonic())

    async def _attempt(self, work: Callable[[], Awaitable[object]]) -> None:
        try:
            await work()
        except ApiCallError as failed:
            # A conflict is no error: another candidate was faster.
            problem = None if failed.code == HTTPStatus.CONFLICT else str(failed)
            if problem is not None and problem != self.last_error:
                _LOG.warning("lease request failed", problem=problem)
            self.last_error = problem
        except Exception as fault:  # noqa: BLE001 - a fault of ours is one more try that failed, and the lease runs out by itself
            _LOG.exception("lease request failed")
            self.last_error = f"{type(fault).__name__}: {fault}"
        else:
            self.last_error = None

    async def _pause(self, at_most: float | None = None) -> None:
        pause = self._settings.times.retry * (1.0 + _JITTER * self._chance.number())
        await self._chance.sleep(pause if at_most is None else min(pause, at_most))


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
