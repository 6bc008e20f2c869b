from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final, Protocol

import msgspec
import structlog

from app.kube.clock import SystemClock
from app.kube.configuration import Credentials
from app.kube.errors import CallFailed, Intent
from app.kube.lease_object import LEASES, held_lease, read_lease, released_lease
from app.kube.lease_state import Candidate, LeaseRecord, LeaseTimes
from app.kube.observer import Observer
from app.kube.reflector import Chance
from app.kube.settings import KubeSettings
from app.kube.transport import Call, Transport
from app.scheduling.ports import Clock

_JITTER: Final = 0.2
_CONFLICT: Final = 409
_NOT_FOUND: Final = 404

_LOG = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class LeaseSettings:
    """Which Lease, who wants it, and how long things last."""

    namespace: str
    name: str
    identity: str
    times: LeaseTimes = field(default_factory=LeaseTimes)


class TermObserver(Protocol):
    """Is told when a term begins and ends."""

    def leads(self, leads: bool) -> None:
        """This replica leads from now on, or does not any more."""
        ...


class LeaderElection:
    """Lets one replica act at a time, by a Lease.

    `win` returns when this replica leads, `keep` when it does not any more, and `reason` says at any moment whether it may act,
    by our own clock alone.  Requests for the lease have connections of their own, so that renewals never queue behind other work.
    """

    def __init__(
        self,
        settings: LeaseSettings,
        kube: KubeSettings,
        *,
        observer: Observer,
        terms: TermObserver,
        clock: Clock | None = None,
        chance: Chance | None = None,
    ) -> None:
        self.trouble: str | None = None
        self._settings = settings
        self._clock = clock or SystemClock()
        self._terms = terms
        self._chance = chance or Chance()
        self._candidate = Candidate(settings.identity, settings.times)
        self._transport = Transport(kube, self._clock, observer)
        self._query = {"fieldManager": kube.identity}

    def connect(self, credentials: Credentials) -> None:
        """Say where the server is.  Raises ConfigurationError as Transport does."""
        self._transport.connect(credentials)

    def reason(self) -> str | None:
        """None while this replica leads; else why it may not act."""
        if self._candidate.leads(self._clock.monotonic()):
            return None
        holder = self._candidate.holder
        if holder == self._settings.identity:
            return "this replica has not renewed its lease in time and leads no more"
        return f"this replica stands by, {holder} leads" if holder else "this replica stands by, no leader is known"

    async def win(self) -> None:
        """Returns when the lease is ours; failures are logged and tried again."""
        candidate = self._candidate
        while not candidate.leads(self._clock.monotonic()):
            await self._attempt(self._take_if_free)
            if not candidate.leads(self._clock.monotonic()):
                await self._pause()
        self._terms.leads(True)
        _LOG.info("leading", lease=self._target, identity=self._settings.identity)

    async def keep(self) -> None:
        """Renews the lease until it is lost: taken by another, or not renewed in time."""
        candidate = self._candidate
        while candidate.leads(self._clock.monotonic()):
            await self._pause(candidate.left(self._clock.monotonic()))
            # A process that was stopped wakes up here: what it knew is worth nothing then, not even a last try.
            if not candidate.leads(self._clock.monotonic()):
                break
            await self._attempt(self._renew)
            if candidate.holder != self._settings.identity:
                candidate.resign()
        candidate.resign()
        self._terms.leads(False)
        _LOG.warning("leading no more", lease=self._target, holder=candidate.holder, problem=self.trouble)

    async def release(self) -> None:
        """Act no more from now on, give the lease up if it is ours, and close the connections; never raises."""
        led = self._candidate.leads(self._clock.monotonic())
        self._candidate.resign()
        record = self._candidate.record
        if led and record is not None:
            body = released_lease(self._settings.namespace, self._settings.name, record, now=self._clock.now())
            await self._attempt(lambda: self._replace("release", body))
            self._terms.leads(False)
            _LOG.info("gave the lease up", lease=self._target, problem=self.trouble)
        await self._transport.close()

    @property
    def _target(self) -> str:
        return f"{self._settings.namespace}/{self._settings.name}"

    async def _take_if_free(self) -> None:
        self._candidate.saw(await self._read(), self._clock.monotonic())
        if self._candidate.may_take(self._clock.monotonic()):
            await self._write()

    async def _renew(self) -> None:
        """Write without reading first; after a conflict, renew only what is still ours."""
        try:
            await self._write()
        except CallFailed as failed:
            if failed.status is None or failed.status.code not in (_CONFLICT, _NOT_FOUND):
                raise
            self._candidate.saw(await self._read(), self._clock.monotonic())
            if self._candidate.holder == self._settings.identity:
                await self._write()

    async def _read(self) -> LeaseRecord | None:
        intent = Intent("get", LEASES.plural, self._target)
        path = LEASES.path(self._settings.namespace, self._settings.name)
        try:
            return _decoded(intent, await self._transport.send(Call(intent, "GET", path, self._seconds)))
        except CallFailed as failed:
            if failed.status is not None and failed.status.code == _NOT_FOUND:
                return None
            raise

    async def _write(self) -> None:
        """Take or renew the lease as it was last seen; the server refuses if it has changed since."""
        settings, before = self._settings, self._candidate.record
        body = held_lease(
            settings.namespace,
            settings.name,
            settings.identity,
            before,
            duration=settings.times.duration,
            now=self._clock.now(),
        )
        sent = self._clock.monotonic()
        stored = await (self._replace("update", body) if before is not None and before.version else self._create(body))
        self._candidate.renewed(stored, sent, self._clock.monotonic())

    async def _create(self, body: bytes) -> LeaseRecord:
        intent = Intent("create", LEASES.plural, self._target)
        path = LEASES.path(self._settings.namespace)
        call = Call(intent, "POST", path, self._seconds, query=self._query, body=body)
        return _decoded(intent, await self._transport.send(call))

    async def _replace(self, verb: str, body: bytes) -> LeaseRecord:
        intent = Intent(verb, LEASES.plural, self._target)
        path = LEASES.path(self._settings.namespace, self._settings.name)
        call = Call(intent, "PUT", path, self._seconds, query=self._query, body=body)
        return _decoded(intent, await self._transport.send(call))

    @property
    def _seconds(self) -> float:
        """How long one request may take: two of them fit before the deadline."""
        return self._settings.times.renew / 2

    async def _attempt(self, work: Callable[[], Awaitable[object]]) -> None:
        try:
            await work()
        except CallFailed as failed:
            conflict = failed.status is not None and failed.status.code == _CONFLICT
            if str(failed) != self.trouble and not conflict:
                _LOG.warning("the lease cannot be had", problem=str(failed))
            self.trouble = None if conflict else str(failed)
        else:
            self.trouble = None

    async def _pause(self, at_most: float | None = None) -> None:
        pause = self._settings.times.retry * (1.0 + _JITTER * self._chance.number())
        await self._chance.sleep(pause if at_most is None else min(pause, at_most))


def _decoded(intent: Intent, body: bytes) -> LeaseRecord:
    try:
        return read_lease(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as problem:
        raise CallFailed(intent, None, f"the answer is not a Lease: {problem}") from problem
