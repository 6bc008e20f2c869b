"""The cluster behind an API server, as the service uses it."""

import asyncio
from collections.abc import Mapping
from math import inf
from typing import Final

import structlog

from dra_extender.kube.claims import KubeClaims, KubeClaimTemplates
from dra_extender.kube.client.backoff import Backoff, SleepAndJitter
from dra_extender.kube.client.errors import ForbiddenError
from dra_extender.kube.client.objects import WATCHED
from dra_extender.kube.client.settings import KubeSettings
from dra_extender.kube.client.transport import ApiTransport
from dra_extender.kube.connection import ClusterConnection
from dra_extender.kube.discovery import (
    DEVICES_BESIDE_COUNTERS_UNTIL,
    EXTENDED_RESOURCES,
    ServerFacts,
    Support,
)
from dra_extender.kube.events import KubeEvents
from dra_extender.kube.leader_election import LeaderElection
from dra_extender.kube.pods import KubePodGroups, KubePods
from dra_extender.kube.reflector import PROMPT_SECONDS
from dra_extender.kube.scheduler_waker import KubeSchedulerWaker
from dra_extender.ledger.sinks import EventSink
from dra_extender.runtime.supervision import BackgroundTask, is_set_within
from dra_extender.scheduling.ports.cluster import Clock, ServerUnavailableError
from dra_extender.telemetry.observer import Observer
from dra_extender.telemetry.spans import NO_SPANS, Spans

OPTIONAL_KINDS: Final = {
    "podgroups": "pods are placed one by one",
    "devicetaintrules": "only taints in slices count",
}
"""Kinds that the service can do without, and what does not work then."""
_FLUSH_SECONDS: Final = 2.0
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
        spans: Spans = NO_SPANS,
    ) -> None:
        """With an `election`, nothing is written while this replica does not lead."""
        self._settings = settings = settings or KubeSettings()
        self._election = election
        write_fence = election.reason if election else None
        self._connection = ClusterConnection(settings, clock, observer, chance, write_fence, spans)
        self.clock = self._connection.clock
        self.transport: ApiTransport = self._connection.transport
        self.claims = KubeClaims(
            self.transport,
            settings,
            lambda: self.facts is not None and self.facts.allocation_groups is Support.KEPT,
        )
        self.pods = KubePods(self.transport, settings)
        self.claim_templates = KubeClaimTemplates(self.transport, settings)
        self.pod_groups = KubePodGroups(self.transport, settings, lambda: self.facts.pod_groups if self.facts else None)
        self.events = KubeEvents(self.transport, settings, self.clock, self._connection.observer)
        self.waker = KubeSchedulerWaker(self.transport, settings, self.clock)
        self._sinks: Mapping[str, EventSink] = {}
        # Optional kinds that the account has no right to list; the start did not wait for them.
        self._passed_over: set[str] = set()

    @property
    def facts(self) -> ServerFacts | None:
        """Return what the API server is and serves; None until that is known."""
        return self._connection.facts

    @property
    def keeps_extended_claims(self) -> bool:
        return self.facts is None or self.facts.fields.get(EXTENDED_RESOURCES) is not Support.DROPPED

    @property
    def has_devices_beside_counters(self) -> bool:
        return self.facts is not None and self.facts.minor <= DEVICES_BESIDE_COUNTERS_UNTIL

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
        credentials = await self._connection.open()
        if self._election is not None:
            self._election.connect(credentials)
        facts = await self._discover()
        _LOG.info("connected to API server", source=credentials.source, **facts.notes())
        self._sinks = sinks
        self._connection.watch_served(sinks, facts, credentials)
        self._connection.keep(BackgroundTask.EVENTS, self.events.keep_writing)

    async def _discover(self) -> ServerFacts:
        """Read the facts, again until the start times out while the server does not answer or refuses access."""
        clock, chance, startup_timeout = self.clock, self._connection.chance, self._settings.startup_timeout
        deadline = clock.monotonic() + startup_timeout
        backoff = Backoff(chance.number)
        while True:
            try:
                return await self._connection.discover()
            except ForbiddenError as problem:
                if clock.monotonic() >= deadline:
                    raise _missing_right(str(problem), startup_timeout) from problem
                _LOG.warning("API server refused access", problem=str(problem))
                await chance.sleep(min(backoff.next(), PROMPT_SECONDS))
            except ServerUnavailableError as problem:
                if clock.monotonic() >= deadline:
                    raise
                _LOG.warning("API server did not answer", problem=str(problem))
                await chance.sleep(backoff.next())

    async def wait_synced(self) -> None:
        """Return when every watched kind has been listed and delivered; optional kinds without the right to list are skipped.

        Raises:
            RequestRejectedError: the account did not get the right to list a needed kind before the start timed out.
        """
        await self._wait_listed(self._settings.startup_timeout)

    async def refresh(self) -> None:
        """List every kind again; on return the sinks know everything that was stored before the call."""
        for reflector in self._connection.reflectors.values():
            reflector.relist()
        await self._wait_listed(inf)

    async def _wait_listed(self, startup_timeout: float) -> None:
        optional = {}
        for plural, reflector in self._connection.reflectors.items():
            if plural in OPTIONAL_KINDS:
                optional[plural] = reflector
                continue
            while not await is_set_within(reflector.synced, _LOOK_SECONDS):
                since = reflector.forbidden_since
                if since is not None and self.clock.monotonic() - since >= startup_timeout:
                    raise _missing_right(reflector.last_error or f"list {plural}", startup_timeout)
        # The roles that serve the needed kinds are loaded by now, so a further 403 will last.
        refusals = {plural: reflector.refusals for plural, reflector in optional.items()}
        for plural, reflector in optional.items():
            while not await is_set_within(reflector.synced, _LOOK_SECONDS):
                if reflector.refusals > refusals[plural] or (plural in self._passed_over and reflector.refusals):
                    if plural not in self._passed_over:
                        self._passed_over.add(plural)
                        lost = OPTIONAL_KINDS[plural]
                        _LOG.warning(
                            "optional kind is not watched", kind=plural, problem=reflector.last_error, consequence=lost
                        )
                        self._sinks[plural].absent()
                    break

    def _is_passed_over(self, plural: str) -> bool:
        """Return whether the service works without an optional kind, because the account has no right to list it."""
        reflector = self._connection.reflectors[plural]
        return (
            plural in OPTIONAL_KINDS
            and reflector.refusals > 0
            and (plural in self._passed_over or reflector.synced.is_set())
        )

    async def stop(self) -> None:
        """Write Events that are waiting, for a moment; then end watches and connections."""
        try:
            async with asyncio.timeout(_FLUSH_SECONDS):
                await self.events.flush()
        except TimeoutError:
            _LOG.warning("Events were dropped at shutdown")
        await self._connection.close()

    def health(self) -> Mapping[str, str | None]:
        """Return a check for each watched kind: None when listed and in contact."""
        if self.facts is None:
            return {"api-server": "not connected yet"}
        watches = {
            f"watch-{plural}": None if self._is_passed_over(plural) else reflector.health()
            for plural, reflector in self._connection.reflectors.items()
        }
        return {**watches, **self._connection.supervisor.failing()}

    def life(self) -> Mapping[str, str | None]:
        """Return the background tasks that have failed for so long that the process must restart."""
        return self._connection.supervisor.beyond_repair()

    def contact_ages(self) -> Mapping[str, float]:
        """Return the seconds since the last response to the list or watch of each kind."""
        return self._connection.contact_ages()

    def notes(self) -> Mapping[str, str]:
        """Return what the server does not serve, and errors that do not make the service unready."""
        connection = self._connection
        notes: dict[str, str] = dict(self.facts.notes()) if self.facts else {}
        notes |= connection.supervisor.notes()
        for plural, reflector in connection.reflectors.items():
            notes |= reflector.notes()
            if self._is_passed_over(plural):
                notes[f"forbidden-{plural}"] = f"{reflector.last_error}: {OPTIONAL_KINDS[plural]}"
        errors = {
            "credentials": connection.credentials.last_error if connection.credentials else None,
            "events": self.events.last_error,
            "wake-up": self.waker.last_error,
            "lease": self._election.last_error if self._election else None,
        }
        return notes | {name: error for name, error in errors.items() if error}


def _missing_right(problem: str, startup_timeout: float) -> ForbiddenError:
    return ForbiddenError(f"the account lacks a right, for {startup_timeout:g} s at least: {problem}")
