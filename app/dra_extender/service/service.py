"""One running extender: the order in which its parts start and stop, and the terms of a replica that leads at times."""

import asyncio
import socket
from collections.abc import Awaitable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Final, Protocol

import structlog

from dra_extender.api.application import create_app
from dra_extender.api.health import Health, ReadinessGate
from dra_extender.config.settings import Settings
from dra_extender.ledger.ledger import Ledger
from dra_extender.ledger.sinks import EventSink, sinks_of
from dra_extender.runtime.supervision import BackgroundTask, Supervisor
from dra_extender.scheduling.extender import Extender
from dra_extender.scheduling.ports.cluster import Cluster
from dra_extender.scheduling.ports.errors import STOPPING
from dra_extender.service.gc_policy import GcPolicy, quiet_collector
from dra_extender.service.http_server import serving
from dra_extender.service.policy_reloader import PolicyReloader
from dra_extender.telemetry.metrics import Metrics

LOADING: Final = "the extender is starting: its caches are not complete yet"
CATCHING_UP: Final = "this replica has just become the leader: its caches are being brought up to date"

_LOG = structlog.get_logger(__name__)


class WatchedCluster(Cluster, Protocol):
    """A cluster that keeps sinks up to date."""

    async def start(self, sinks: Mapping[str, EventSink]) -> None:
        """Connect and begin to watch.  Raises ClusterError and errors of its configuration."""
        ...

    async def wait_synced(self) -> None:
        """Returns when every object that exists has been delivered to its sink."""
        ...

    async def stop(self) -> None:
        """End watches and connections."""
        ...

    def life(self) -> Mapping[str, str | None]:
        """Failures that only a restart of the process can repair, by name."""
        ...


class Leadership(Protocol):
    """Decides which of several replicas acts."""

    def reason(self) -> str | None:
        """None while this replica leads; else why it may not act.  Cheap, and right at every moment."""
        ...

    async def win(self) -> None:
        """Returns when this replica leads."""
        ...

    async def keep(self) -> None:
        """Returns when it does not any more."""
        ...

    async def catch_up(self) -> None:
        """Returns when the sinks know everything that was stored before the call."""
        ...

    async def announce(self) -> None:
        """Have kube-scheduler's calls come here, until cancelled."""
        ...

    def notes(self) -> Mapping[str, str]:
        """Problems that do not end a term, by name, for `/readyz?verbose`."""
        ...

    async def release(self) -> None:
        """Let another replica lead at once; never raises."""
        ...


class Service:
    """One running extender over a cluster: ledger, use cases and HTTP side.

    With a `leadership` it stands by with warm caches until it leads, and again when it leads no more.
    """

    def __init__(
        self, settings: Settings, cluster: WatchedCluster, metrics: Metrics, leadership: Leadership | None = None
    ) -> None:
        self.ledger = Ledger(settings.scheduling.namespace_claim_bytes)
        self.gate = ReadinessGate(LOADING)
        self.health = Health()
        features = settings.features
        options = settings.scheduling.options(
            extended_resources=features.extended_resources, pod_group_claims=features.pod_group_claims
        )
        options = replace(options, own_namespace=settings.leader_election.known_namespace() or options.own_namespace)
        self.extender = Extender(self.ledger, cluster, metrics, options, features.features())
        self.policy = PolicyReloader(
            settings.scheduling.policy_file,
            self.ledger,
            metrics,
            seconds=settings.scheduling.policy_check_seconds,
            compatibility_groups=settings.features.compatibility_groups,
        )
        self._supervisor = Supervisor(metrics.background_failed)
        self._phase: str | None = LOADING
        self._settings = settings.server
        self._metrics = metrics
        self._cluster = cluster
        self._leadership = leadership
        self._keeping: asyncio.Task[None] | None = None
        self._add_checks(metrics)
        self.app = create_app(self.extender, self.health, metrics, settings.server, self.gate)

    async def run(self, stop: asyncio.Event, listener: socket.socket) -> None:
        """Serve on `listener` until `stop` is set.

        Probes are answered from the beginning.  The verbs respond with an error until the caches are complete and this replica
        leads, and again after `stop`.  Then waiting binds end with an error, writes in flight are completed, the lease is released,
        and at last the connections are closed.

        Raises:
            ClusterError: the cluster does not answer, or refuses us.
            InvalidPolicyError: the policy file is wrong.
        """
        self._supervisor.watch_loop(asyncio.get_running_loop())
        with quiet_collector() as collector:
            async with serving(self.app, self._settings, listener, self._metrics):
                try:
                    await self._work(stop, collector)
                finally:
                    self._enter(STOPPING)
                    await self._cluster.stop()
                    await self._resign()
        _LOG.info("stopped")

    def _add_checks(self, metrics: Metrics) -> None:
        self.health.check("service", lambda: self._phase)
        if self._leadership is not None:
            self.health.check("leader", lambda: None if self._phase else self.gate.reason)
            self.health.notes(self._leadership.notes)
        self.health.checks(self._cluster.health)
        self.health.life(self._cluster.life)
        for each in (self._supervisor, self.extender.supervisor):
            self.health.checks(each.failing)
            self.health.life(each.beyond_repair)
            self.health.notes(each.notes)
        self.health.notes(self._cluster.notes)
        self.health.notes(self.policy.notes)
        self.health.notes(self._kept_claims)
        self.health.notes(self.extender.group_claims.notes)
        metrics.before_render(lambda: metrics.leader(self._leadership is None or self._leadership.reason() is None))

    def _kept_claims(self) -> Mapping[str, str]:
        note = self.ledger.claims.kept.note()
        return {"claims-kept-short": note} if note else {}

    async def _work(self, stop: asyncio.Event, collector: GcPolicy) -> None:
        stopped = asyncio.create_task(stop.wait())
        stopped.add_done_callback(lambda _: self._enter(STOPPING))
        try:
            if not await _unless(stopped, self._load()):
                return
            collector.freeze()
            keep = self._supervisor.keep
            going_on = [keep(BackgroundTask.COLLECTOR, collector.run), keep(BackgroundTask.POLICY, self.policy.run)]
            try:
                await self._terms(stopped)
            finally:
                for each in going_on:
                    each.cancel()
        finally:
            stopped.cancel()

    async def _load(self) -> None:
        self.policy.load()
        await self._cluster.start(sinks_of(self.ledger))
        await self._cluster.wait_synced()

    async def _terms(self, stopped: asyncio.Task[bool]) -> None:
        """Act for as long as this replica leads, again and again, until stopped."""
        self._phase = None
        if self._leadership is None:
            await self._term({stopped})
            return
        while not stopped.done():
            self.gate.close(self._not_leading)
            _LOG.info("standing by")
            if await _unless(stopped, self._leadership.win()):
                # It goes on while writes in flight end, until the lease is given up.
                self._keeping = self._supervisor.begin(BackgroundTask.LEASE, self._leadership.keep())
                if await _unless_any({stopped, self._keeping}, self._leadership.catch_up()):
                    await self._term({stopped, self._keeping}, self._leadership)

    async def _term(self, ends: set[asyncio.Task[bool] | asyncio.Task[None]], leads: Leadership | None = None) -> None:
        """Answer the verbs until one of `ends` is done."""
        await self.extender.start()
        self.gate.open(leads.reason if leads else None)
        announcing = self._supervisor.keep(BackgroundTask.SERVICE_ROUTE, leads.announce) if leads else None
        _LOG.info("ready")
        try:
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self.gate.close(self._phase or self._not_leading)
            _LOG.info("ending the work", reason=self.gate.reason)
            if announcing is not None:
                announcing.cancel()
            await self._drain(self._phase or self._not_leading())

    async def _drain(self, reason: str) -> None:
        try:
            async with asyncio.timeout(self._settings.stop_seconds):
                await self.extender.stop(reason)
        except TimeoutError:
            _LOG.warning(
                "writes did not end in time; the next bind of each pod carries on", seconds=self._settings.stop_seconds
            )

    async def _resign(self) -> None:
        if self._keeping is not None:
            self._keeping.cancel()
            await asyncio.gather(self._keeping, return_exceptions=True)
        if self._leadership is not None:
            await self._leadership.release()

    def _enter(self, phase: str) -> None:
        self._phase = phase
        self.gate.close(phase)

    def _not_leading(self) -> str:
        return (self._leadership.reason() if self._leadership else None) or CATCHING_UP


async def _unless(stopped: asyncio.Task[bool], work: Awaitable[None]) -> bool:
    """Whether the work was completed before the stop, which cancels it."""
    return await _unless_any({stopped}, work)


async def _unless_any(ends: set[asyncio.Task[bool] | asyncio.Task[None]], work: Awaitable[None]) -> bool:
    """Whether the work was completed before one of the ends, which cancels it."""
    task = asyncio.ensure_future(work)
    await asyncio.wait({task, *ends}, return_when=asyncio.FIRST_COMPLETED)
    if task.done():
        task.result()
        return True
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    return False
