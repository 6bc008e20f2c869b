"""One running extender: the order in which its parts start and stop.

Start:

1. the HTTP listeners: probes and metrics are served, the verbs respond with an error;
2. the policy file is read;
3. the watches of the cluster begin, until every kind is listed;
4. background work begins: garbage collection, checks of the policy file, audits, counts of the devices;
5. with leader election, the replica stands by until it holds the lease, and lists every kind again;
6. the use cases start, the gate opens, and the endpoint of the Service is published.

Stop: the gate closes, the use cases drain, background work and watches end, the lease is released, the listeners end.  A
replica that loses its lease goes back to step 5.
"""

import asyncio
import math
import socket
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Final

import structlog
from fastapi import FastAPI

from dra_extender.api.application import create_app, create_probe_app
from dra_extender.api.debug import add_debug
from dra_extender.api.health import Health, ReadinessGate
from dra_extender.api.scrape_access import ScrapeAccess, ScrapeReviewer
from dra_extender.config.listener_settings import MetricsAccess
from dra_extender.config.settings import Settings
from dra_extender.inspection.audit.cluster_audit import AuditedCluster
from dra_extender.ledger.ledger import Ledger
from dra_extender.ledger.sinks import sinks_of
from dra_extender.runtime.garbage import GarbageCollector, collected_in_short
from dra_extender.runtime.supervision import BackgroundTask, Supervisor, cancel
from dra_extender.scheduling.claims.writer import Takeover
from dra_extender.scheduling.extender import Extender
from dra_extender.scheduling.ports.errors import STOPPING
from dra_extender.scheduling.recent_decisions import DecisionReport, RecentDecisions
from dra_extender.service.audit_task import AuditTask
from dra_extender.service.certificates import Certificates
from dra_extender.service.decision_recorder import DecisionRecorder
from dra_extender.service.device_count import DeviceCountTask, DeviceStates
from dra_extender.service.leadership import Leadership
from dra_extender.service.policy_reloader import PolicyReloader
from dra_extender.service.server import connections_of, serving
from dra_extender.service.tracing import tracing_of
from dra_extender.service.watched_cluster import WatchedCluster
from dra_extender.telemetry.metrics import Metrics

LOADING: Final = "the extender is starting: its caches are not complete yet"
CATCHING_UP: Final = "this replica has just become the leader: its caches are being brought up to date"

_LOG = structlog.get_logger(__name__)


class Service:
    """One running extender over a cluster: ledger, use cases and HTTP side.

    With a `leadership`, it stands by with warm caches until it leads, and again after it has lost the lease.
    """

    def __init__(
        self,
        settings: Settings,
        cluster: WatchedCluster,
        metrics: Metrics,
        leadership: Leadership | None = None,
        watch_ages: Callable[[], Mapping[str, float]] = dict,
        reviewer: ScrapeReviewer | None = None,
    ) -> None:
        """`watch_ages`: seconds since the API server last answered the watch of each kind.

        `reviewer` knows who may read metrics, where the settings want it to be asked.

        Raises:
            InvalidSettingsError: it is to trace, and OpenTelemetry is not installed.
        """
        self.ledger = Ledger(settings.scheduling.namespace_claim_bytes)
        self.gate = ReadinessGate(LOADING)
        self.health = Health()
        features = settings.features
        options = settings.scheduling.options(
            extended_resources=features.extended_resources, pod_group_claims=features.pod_group_claims
        )
        options = replace(options, own_namespace=settings.leader_election.known_namespace() or options.own_namespace)
        self._tracing = tracing = tracing_of(settings.tracing)
        self.extender = Extender(
            self.ledger, tracing.cluster(cluster), metrics, options, features.features(), tracing.spans
        )
        self.policy = PolicyReloader(
            settings.scheduling.policy_file,
            self.ledger,
            metrics,
            seconds=settings.scheduling.policy_check_seconds,
            compatibility_groups=settings.features.compatibility_groups,
        )
        self.audit = AuditTask(
            AuditedCluster(
                self.ledger,
                cluster.clock.now,
                options.binding_timeout_seconds if features.device_binding_and_status else math.inf,
                policy_messages=lambda: self.policy.ineffective,
                device_taints=features.device_taints,
            ),
            metrics,
            settings.audit,
        )
        states = DeviceStates(self.ledger, self.extender, features.features())
        self.device_count = DeviceCountTask(states, metrics, settings.metrics)
        self._takeover = Takeover(self.ledger, cluster.claims, metrics)
        self._supervisor = Supervisor(metrics.background_failed)
        self._phase: str | None = LOADING
        self._settings = settings.server
        self._tls = settings.tls
        self._probes = settings.probes
        self.certificates = Certificates(settings.tls, metrics)
        self._metrics = metrics
        self._cluster = cluster
        self._leadership = leadership
        self._keeping: asyncio.Task[None] | None = None
        self._add_checks(metrics)
        self._replica = settings.leader_election.host or socket.gethostname()
        self._watch_ages = watch_ages
        self._decisions = RecentDecisions(cluster.clock.now)
        verbs = tracing.verbs(DecisionRecorder(self.extender, self._decisions, self._needs_devices))
        self.app = create_app(verbs, self.health, metrics, settings.server, self.gate)
        self.probe_app = self._probe_app(metrics, reviewer)
        for app in (self.app, self.probe_app):
            add_debug(app, lambda: self.extender.holds.report(leads=self.gate.reason is None), self._report_decisions)

    async def run(self, stop: asyncio.Event, listener: socket.socket, probes: socket.socket | None = None) -> None:
        """Serve the verbs on `listener`, and probes and metrics on `probes` if that is another one, until `stop` is set.

        Probes are answered from the beginning.  The verbs respond with an error until the caches are complete and this replica
        leads, and again after `stop`.  Then waiting binds end with an error, writes in flight are completed, the lease is released,
        and at last the connections are closed.

        Raises:
            ClusterError: the cluster does not answer, or refuses us.
            InvalidPolicyError: the policy file is wrong.
            InvalidSettingsError: a certificate cannot be used.
        """
        self.certificates.load()
        self._supervisor.watch_loop(asyncio.get_running_loop())
        with collected_in_short() as collector:
            async with AsyncExitStack() as listeners:
                await self._listen(listeners, listener, probes)
                try:
                    await self._work(stop, collector)
                finally:
                    self._enter(STOPPING)
                    await self._cluster.stop()
                    await self._resign()
                    await self._tracing.stop()
        _LOG.info("stopped")

    async def _listen(self, listeners: AsyncExitStack, verbs: socket.socket, probes: socket.socket | None) -> None:
        """Begin to serve both; probes are served until the very end."""
        connections = connections_of(self._settings, self._metrics)
        if probes is not None:
            certificates = self.certificates if self._probes.metrics is MetricsAccess.AUTHORIZED else None
            await listeners.enter_async_context(
                serving(self.probe_app, self._settings, probes, connections, certificates, clients=False)
            )
        certificates = self.certificates if self._tls.serves_verbs else None
        await listeners.enter_async_context(serving(self.app, self._settings, verbs, connections, certificates))

    def _probe_app(self, metrics: Metrics, reviewer: ScrapeReviewer | None) -> FastAPI:
        access = self._probes.metrics
        if access is MetricsAccess.AUTHORIZED and reviewer is None:
            raise ValueError("metrics for authorized callers need somebody who reviews their tokens")
        return create_probe_app(
            self.health,
            None if access is MetricsAccess.OFF else metrics,
            ScrapeAccess(reviewer) if reviewer is not None and access is MetricsAccess.AUTHORIZED else None,
        )

    def _add_checks(self, metrics: Metrics) -> None:
        self.health.check("service", lambda: self._phase)
        if self._leadership is not None:
            self.health.check("leader", lambda: None if self._phase else self.gate.reason)
            self.health.notes(self._leadership.notes)
        self.health.checks(self._cluster.health)
        self.health.life(self._cluster.life)
        for supervisor in (self._supervisor, self.extender.supervisor):
            self.health.checks(supervisor.failing)
            self.health.life(supervisor.beyond_repair)
            self.health.notes(supervisor.notes)
        self.health.notes(self._cluster.notes)
        self.health.notes(self.policy.notes)
        self.health.notes(self.certificates.notes)
        self.health.notes(self.audit.notes)
        self.health.notes(self._kept_claims)
        self.health.notes(self.extender.group_claims.notes)
        metrics.before_render(lambda: metrics.leader.set(self._leadership is None or self._leadership.reason() is None))

    def _needs_devices(self, pod_uid: str) -> bool:
        """Return whether the pod needs devices; True if the watch has not delivered the pod."""
        pod = self.ledger.pods.by_uid(pod_uid)
        return pod is None or pod.needs_devices

    def _report_decisions(self) -> DecisionReport:
        return self._decisions.report(
            leads=self.gate.reason is None,
            replica=self._replica,
            watches=self._watch_ages(),
            notes=self.health.ready().failures_and_notes,
        )

    def _kept_claims(self) -> Mapping[str, str]:
        note = self.ledger.claims.kept.note()
        return {"claims-kept-short": note} if note else {}

    async def _work(self, stop: asyncio.Event, collector: GarbageCollector) -> None:
        stopped = asyncio.create_task(stop.wait())
        stopped.add_done_callback(lambda _: self._enter(STOPPING))
        certificates = self._supervisor.keep(BackgroundTask.CERTIFICATES, self.certificates.run)
        try:
            if not await _unless(stopped, self._load()):
                return
            collector.freeze()
            keep = self._supervisor.keep
            background = [
                keep(BackgroundTask.COLLECTOR, collector.run),
                keep(BackgroundTask.POLICY, self.policy.run),
                keep(BackgroundTask.AUDIT, self.audit.run),
                keep(BackgroundTask.DEVICE_COUNT, self.device_count.run),
            ]
            try:
                await self._terms(stopped)
            finally:
                for task in background:
                    task.cancel()
        finally:
            stopped.cancel()
            certificates.cancel()

    async def _load(self) -> None:
        await self.policy.load()
        await self._cluster.start(sinks_of(self.ledger))
        await self._cluster.wait_synced()

    async def _terms(self, stopped: asyncio.Task[bool]) -> None:
        """Stand by, lead, and stand by again, until stopped."""
        self._phase = None
        if self._leadership is None:
            if await _unless(stopped, self._takeover.withdraw_snapshots()):
                await self._term({stopped})
            return
        while not stopped.done():
            self.gate.close(self._not_leading)
            _LOG.info("standing by")
            if await _unless(stopped, self._leadership.win()):
                # Renewals continue while writes in flight end, until the lease is released.
                self._keeping = self._supervisor.begin(BackgroundTask.LEASE, self._leadership.keep())
                ends: set[asyncio.Task[bool] | asyncio.Task[None]] = {stopped, self._keeping}
                if await _unless_any(ends, self._leadership.catch_up()) and await _unless_any(
                    ends, self._takeover.withdraw_snapshots()
                ):
                    await self._term(ends, self._leadership)

    async def _term(self, ends: set[asyncio.Task[bool] | asyncio.Task[None]], leads: Leadership | None = None) -> None:
        """Start the use cases and open the gate, until one of `ends` is done; then close the gate and drain."""
        await self.extender.start()
        self.gate.open(leads.reason if leads else None)
        announcing = self._supervisor.keep(BackgroundTask.SERVICE_ROUTE, leads.announce) if leads else None
        _LOG.info("ready")
        try:
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self.gate.close(self._phase or self._not_leading)
            _LOG.info("draining", reason=self.gate.reason)
            if announcing is not None:
                announcing.cancel()
            await self._drain(self._phase or self._not_leading())

    async def _drain(self, reason: str) -> None:
        try:
            async with asyncio.timeout(self._settings.stop_seconds):
                await self.extender.stop(reason)
        except TimeoutError:
            _LOG.warning("drain timed out", seconds=self._settings.stop_seconds)

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
    """Return whether the work was completed; the stop cancels it."""
    return await _unless_any({stopped}, work)


async def _unless_any(ends: set[asyncio.Task[bool] | asyncio.Task[None]], work: Awaitable[None]) -> bool:
    """Return whether the work was completed; the first of the ends cancels it."""
    task = asyncio.ensure_future(work)
    await asyncio.wait({task, *ends}, return_when=asyncio.FIRST_COMPLETED)
    if task.done():
        task.result()
        return True
    await cancel(task)
    return False
