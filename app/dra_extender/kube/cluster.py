import asyncio
from collections.abc import Mapping
from functools import partial
from math import inf
from typing import Final

import structlog

from dra_extender.kube.client.credentials import Credentials, find_credentials
from dra_extender.kube.client.errors import ForbiddenError
from dra_extender.kube.client.observer import NullObserver, Observer
from dra_extender.kube.client.resources import WATCHED, ResourceKind
from dra_extender.kube.client.retry import Backoff
from dra_extender.kube.client.settings import KubeSettings
from dra_extender.kube.client.transport import ApiTransport
from dra_extender.kube.discovery.discovery import Discovery
from dra_extender.kube.discovery.server_features import (
    DEVICES_BESIDE_COUNTERS_UNTIL,
    EXTENDED_RESOURCES,
    ServerFacts,
    Support,
)
from dra_extender.kube.events.recorder import KubeEvents
from dra_extender.kube.leader.election import LeaderElection
from dra_extender.kube.objects.claims import KubeClaims, KubeClaimTemplates
from dra_extender.kube.objects.pod_groups import KubePodGroups
from dra_extender.kube.objects.pods import KubePods
from dra_extender.kube.objects.scheduler_waker import KubeWaker
from dra_extender.kube.watch.reflector import PROMPT_SECONDS, Reflector, SleepAndJitter
from dra_extender.ledger.sinks import EventSink
from dra_extender.runtime.clock import SystemClock
from dra_extender.runtime.supervision import BackgroundTask, Supervisor, cancel_all
from dra_extender.scheduling.ports.cluster import Clock, ServerUnavailableError

OPTIONAL_KINDS: Final = {
    "podgroups": "pods are placed one by one",
    "devicetaintrules": "only taints in slices count",
}
"""Kinds that the service can do without, and what does not work then."""
_FLUSH_SECONDS = 2.0
_LOOK_SECONDS: Final = 0.1

_LOG = structlog.get_logger(__name__)


class KubeCluster:
    """A cluster behind an API server (`scheduling.ports.Cluster`): keeps sinks up to date and carries out writes.

    `start` connects and begins to watch, `wait_synced` returns once every kind is listed, `stop` ends it.
    """

    def __init__(
        self,
        settings: KubeSettings | None = None,
        *,
        observer: Observer | None = None,
        clock: Clock | None = None,
        chance: SleepAndJitter | None = None,
        election: LeaderElection | None = None,
    ) -> None:
        """With an `election`, nothing is written while this replica does not lead."""
        self.facts: ServerFacts | None = None
        self._election = election
        self._settings = settings or KubeSettings()
        self._observer = observer or NullObserver()
        self._clock = clock or SystemClock()
        self._chance = chance or SleepAndJitter()
        self._supervisor = Supervisor(self._observer.background_failed, sleep=self._chance.sleep)
        self._credentials: Credentials | None = None
        write_guard = election.reason if election else None
        self._transport = ApiTransport(self._settings, self._clock, self._observer, write_guard)
        self._claims = KubeClaims(
            self._transport,
            self._settings,
            lambda: self.facts is not None and self.facts.allocation_groups is Support.KEPT,
        )
        self._pods = KubePods(self._transport, self._settings)
        self._templates = KubeClaimTemplates(self._transport, self._settings)
        self._pod_groups = KubePodGroups(
            self._transport, self._settings, lambda: self.facts.pod_groups if self.facts else None
        )
        self._events = KubeEvents(self._transport, self._settings, self._clock, self._observer)
        self._waker = KubeWaker(self._transport, self._settings, self._clock)
        self._reflectors: dict[str, Reflector] = {}
        self._sinks: Mapping[str, EventSink] = {}
        # Optional kinds that the account has no right to list; the start did not wait for them.
        self._passed_over: set[str] = set()
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def claims(self) -> KubeClaims:
        """Reads and writes of ResourceClaims."""
        return self._claims

    @property
    def pods(self) -> KubePods:
        """Reads and binds pods."""
        return self._pods

    @property
    def claim_templates(self) -> KubeClaimTemplates:
        """Reads ResourceClaimTemplates."""
        return self._templates

    @property
    def pod_groups(self) -> KubePodGroups:
        """Reads and writes PodGroups."""
        return self._pod_groups

    @property
    def events(self) -> KubeEvents:
        """Records Events on pods."""
        return self._events

    @property
    def waker(self) -> KubeWaker:
        """Makes kube-scheduler requeue rejected pods."""
        return self._waker

    @property
    def clock(self) -> Clock:
        """Time."""
        return self._clock

    @property
    def transport(self) -> ApiTransport:
        """The connection, for further adapters of this package."""
        return self._transport

    async def start(self, sinks: Mapping[str, EventSink]) -> None:
        """Connect, learn what the server is, and begin to watch the kinds that have a sink, by plural name.

        Kinds: resourceslices, resourceclaims, deviceclasses, pods, nodes; and podgroups, devicetaintrules.  Where the server does
        not serve one of the last two, `absent` of its sink is called.

        Raises:
            ConfigurationError: no usable configuration.
            RequestRejectedError: the server is too old, does not know us, or did not give us a right before the start timed out.
            ServerUnavailableError: it did not answer before the start timed out.
        """
        unknown = sorted(set(sinks) - set(WATCHED) - set(OPTIONAL_KINDS))
        if unknown:
            raise ValueError(f"cannot watch {', '.join(unknown)}: known are {', '.join((*WATCHED, *OPTIONAL_KINDS))}")
        self._credentials = await find_credentials(self._settings, self._clock)
        self._transport.connect(self._credentials)
        if self._election is not None:
            self._election.connect(self._credentials)
        self.facts = await self._discover()
        _LOG.info("connected to API server", source=self._credentials.source, **self.facts.notes())
        self._sinks = sinks
        for plural, sink in sinks.items():
            kind = self._kind(plural, self.facts)
            if kind is None:
                sink.absent()
            else:
                self._watch(kind, sink)
        self._tasks.append(self._supervisor.keep(BackgroundTask.EVENTS, self._events.run))
        keep_fresh = partial(self._credentials.keep_fresh, self._chance.sleep)
        self._tasks.append(self._supervisor.keep(BackgroundTask.CREDENTIALS, keep_fresh))

    async def wait_synced(self) -> None:
        """Returns when every watched kind has been listed and delivered; optional kinds without the right to list are skipped.

        Raises:
            RequestRejectedError: the account did not get the right to list a needed kind before the start timed out.
        """
        await self._listed(self._settings.startup_timeout)

    async def refresh(self) -> None:
        """List every kind again; on return the sinks know everything that was stored before the call."""
        for reflector in self._reflectors.values():
            reflector.relist()
        await self._listed(inf)

    async def _listed(self, startup_timeout: float) -> None:
        optional = {plural: each for plural, each in self._reflectors.items() if plural in OPTIONAL_KINDS}
        for plural, reflector in self._reflectors.items():
            if plural not in optional:
                await self._needed_listed(reflector, startup_timeout)
        # The roles that serve the needed kinds are loaded by now, so a further 403 will last.
        refusals = {plural: reflector.refusals for plural, reflector in optional.items()}
        for plural, reflector in optional.items():
            await self._optional_listed(plural, reflector, refusals[plural])

    async def _needed_listed(self, reflector: Reflector, startup_timeout: float) -> None:
        while not await _synced_soon(reflector):
            since = reflector.forbidden_since
            if since is not None and self._clock.monotonic() - since >= startup_timeout:
                raise _lacking(reflector.last_error or f"list {reflector.kind.plural}", startup_timeout)

    async def _optional_listed(self, plural: str, reflector: Reflector, refusals: int) -> None:
        while not await _synced_soon(reflector):
            if reflector.refusals > refusals or (plural in self._passed_over and reflector.refusals):
                self._pass_over(plural, reflector)
                return

    def _pass_over(self, plural: str, reflector: Reflector) -> None:
        if plural not in self._passed_over:
            self._passed_over.add(plural)
            lost = OPTIONAL_KINDS[plural]
            _LOG.warning("optional kind is not watched", kind=plural, problem=reflector.last_error, consequence=lost)
            self._sinks[plural].absent()

    async def stop(self) -> None:
        """Write Events that are waiting, for a moment; then end watches and connections."""
        if self._tasks:
            try:
                async with asyncio.timeout(_FLUSH_SECONDS):
                    await self._events.flush()
            except TimeoutError:
                _LOG.warning("Events were dropped at shutdown")
        await cancel_all(self._tasks)
        self._tasks.clear()
        await self._transport.close()

    @property
    def keeps_extended_claims(self) -> bool:
        """Whether `status.extendedResourceClaimStatus` of pods is kept, as far as is known."""
        return self.facts is None or self.facts.fields.get(EXTENDED_RESOURCES) is not Support.DROPPED

    @property
    def has_devices_beside_counters(self) -> bool:
        """Whether slices may have devices beside counter sets: False until the release is known."""
        return self.facts is not None and self.facts.minor <= DEVICES_BESIDE_COUNTERS_UNTIL

    def health(self) -> Mapping[str, str | None]:
        """A check for each watched kind: None when listed and in contact."""
        if self.facts is None:
            return {"api-server": "not connected yet"}
        watches = {
            f"watch-{plural}": None if self._is_passed_over(plural) else reflector.health()
            for plural, reflector in self._reflectors.items()
        }
        return {**watches, **self._supervisor.failing()}

    def life(self) -> Mapping[str, str | None]:
        """The background tasks that have failed for so long that the process must restart."""
        return self._supervisor.beyond_repair()

    def contact_ages(self) -> Mapping[str, float]:
        """Seconds since the last response to the list or watch of each kind."""
        now = self._clock.monotonic()
        return {plural: now - reflector.last_contact for plural, reflector in self._reflectors.items()}

    def notes(self) -> Mapping[str, str]:
        """What the server does not serve, and errors that do not make the service unready."""
        notes: dict[str, str] = dict(self.facts.notes()) if self.facts else {}
        notes |= self._supervisor.notes()
        for plural, reflector in self._reflectors.items():
            notes |= reflector.notes()
            if self._is_passed_over(plural):
                notes[f"forbidden-{plural}"] = f"{reflector.last_error}: {OPTIONAL_KINDS[plural]}"
        errors = {
            "credentials": self._credentials.last_error if self._credentials else None,
            "events": self._events.last_error,
            "wake-up": self._waker.last_error,
            "lease": self._election.last_error if self._election else None,
        }
        return notes | {name: error for name, error in errors.items() if error}

    def _is_passed_over(self, plural: str) -> bool:
        """Whether the service works without an optional kind, because the account has no right to list it."""
        reflector = self._reflectors[plural]
        return (
            plural in OPTIONAL_KINDS
            and reflector.refusals > 0
            and (plural in self._passed_over or reflector.synced.is_set())
        )

    async def _discover(self) -> ServerFacts:
        discovery = Discovery(self._transport, self._settings)
        deadline = self._clock.monotonic() + self._settings.startup_timeout
        backoff = Backoff(self._chance.number)
        while True:
            try:
                return await discovery.facts()
            except ForbiddenError as problem:
                if self._clock.monotonic() >= deadline:
                    raise _lacking(str(problem), self._settings.startup_timeout) from problem
                _LOG.warning("API server refused access", problem=str(problem))
                await self._chance.sleep(min(backoff.next(), PROMPT_SECONDS))
            except ServerUnavailableError as problem:
                if self._clock.monotonic() >= deadline:
                    raise
                _LOG.warning("API server did not answer", problem=str(problem))
                await self._chance.sleep(backoff.next())

    @staticmethod
    def _kind(plural: str, facts: ServerFacts) -> ResourceKind | None:
        optional = {"podgroups": facts.pod_groups, "devicetaintrules": facts.taint_rules}
        return WATCHED.get(plural) or optional[plural]

    def _watch(self, kind: ResourceKind, sink: EventSink) -> None:
        reflector = Reflector(
            self._transport, kind, sink, self._settings, self._clock, observer=self._observer, chance=self._chance
        )
        self._reflectors[kind.plural] = reflector
        self._tasks.append(self._supervisor.keep(BackgroundTask.WATCH, reflector.run, kind.plural))


async def _synced_soon(reflector: Reflector) -> bool:
    """Whether the kind is listed, after a short wait if it is not yet."""
    try:
        async with asyncio.timeout(_LOOK_SECONDS):
            await reflector.synced.wait()
    except TimeoutError:
        return False
    return True


def _lacking(problem: str, startup_timeout: float) -> ForbiddenError:
    return ForbiddenError(f"the account lacks a right, for {startup_timeout:g} s at least: {problem}")
