"""One running extender: the order in which its parts start and stop.  `wiring.assemble` makes them.

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
import socket
from collections.abc import Awaitable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Final, Protocol

import structlog
from fastapi import FastAPI

from dra_extender.api.calls import VerbGate
from dra_extender.config.service_settings import MetricsAccess
from dra_extender.config.settings import Settings
from dra_extender.ledger.ledger import Ledger
from dra_extender.ledger.sinks import EventSink, sinks_of
from dra_extender.runtime.garbage import collected_in_short, freeze, keep_collecting
from dra_extender.runtime.supervision import BackgroundTask, Supervisor, cancel
from dra_extender.scheduling.extender import Extender
from dra_extender.scheduling.ports.cluster import Cluster
from dra_extender.scheduling.ports.shutdown import STOPPING
from dra_extender.service.audit_task import AuditTask
from dra_extender.service.certificates import Certificates
from dra_extender.service.device_count import DeviceCountTask
from dra_extender.service.leadership import Leadership
from dra_extender.service.policy_reloader import PolicyReloader
from dra_extender.service.server import connections_of, serving
from dra_extender.service.tracing import stop_tracing
from dra_extender.telemetry.metrics import Metrics
from dra_extender.telemetry.spans import Spans

LOADING: Final = "the extender is starting: its caches are not complete yet"
CATCHING_UP: Final = "this replica has just become the leader: its caches are being brought up to date"

_LOG = structlog.get_logger(__name__)


class WatchedCluster(Cluster, Protocol):
    """A cluster that keeps sinks up to date."""

    async def start(self, sinks: Mapping[str, EventSink]) -> None:
        """Connect and begin to watch.  Raises ClusterError and errors of its configuration."""

    async def wait_synced(self) -> None:
        """Return when every object that exists has been delivered to its sink."""

    async def stop(self) -> None: ...

    def life(self) -> Mapping[str, str | None]:
        """Return the failures that only a restart of the process can repair, by name."""


@dataclass(slots=True)
class Service:
    """One running extender over a cluster: ledger, use cases, background work, and what is served over HTTP.

    With a `leadership`, it stands by with warm caches until it leads, and again after it has lost the lease.  `phase` is why no
    call is answered for as long as the service starts or stops, None in between.
    """

    settings: Settings
    cluster: WatchedCluster
    ledger: Ledger
    extender: Extender
    policy: PolicyReloader
    audit: AuditTask
    device_count: DeviceCountTask
    certificates: Certificates
    supervisor: Supervisor
    metrics: Metrics
    spans: Spans
    gate: VerbGate
    app: FastAPI
    probe_app: FastAPI
    leadership: Leadership | None = None
    phase: str | None = LOADING
    _keeping: asyncio.Task[None] | None = field(default=None, init=False)

    async def serve(self, stop: asyncio.Event, listener: socket.socket, probes: socket.socket | None = None) -> None:
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
        self.supervisor.watch_loop(asyncio.get_running_loop())
        with collected_in_short():
            async with AsyncExitStack() as listeners:
                await self._listen(listeners, listener, probes)
                try:
                    await self._work(stop)
                finally:
                    self._enter(STOPPING)
                    await self.cluster.stop()
                    await self._resign()
                    await stop_tracing(self.spans)
        _LOG.info("stopped")

    async def _listen(self, listeners: AsyncExitStack, verbs: socket.socket, probes: socket.socket | None) -> None:
        """Begin to serve both; probes are served until the very end."""
        server = self.settings.server
        connections = connections_of(server, self.metrics)
        if probes is not None:
            authorized = self.settings.probes.metrics is MetricsAccess.AUTHORIZED
            certificates = self.certificates if authorized else None
            await listeners.enter_async_context(
                serving(self.probe_app, server, probes, connections, certificates, clients=False)
            )
        certificates = self.certificates if self.settings.tls.serves_verbs else None
        await listeners.enter_async_context(serving(self.app, server, verbs, connections, certificates))

    async def _work(self, stop: asyncio.Event) -> None:
        stopped = asyncio.create_task(stop.wait())
        stopped.add_done_callback(lambda _: self._enter(STOPPING))
        certificates = self.supervisor.keep(BackgroundTask.CERTIFICATES, self.certificates.keep_reloading)
        try:
            if not await _unless({stopped}, self._load()):
                return
            freeze()
            keep = self.supervisor.keep
            background = [
                keep(BackgroundTask.COLLECTOR, keep_collecting),
                keep(BackgroundTask.POLICY, self.policy.keep_reloading),
                keep(BackgroundTask.AUDIT, self.audit.keep_auditing),
                keep(BackgroundTask.DEVICE_COUNT, self.device_count.keep_counting),
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
        await self.cluster.start(sinks_of(self.ledger))
        await self.cluster.wait_synced()

    async def _terms(self, stopped: asyncio.Task[bool]) -> None:
        """Stand by, lead, and stand by again, until stopped."""
        self.phase = None
        if self.leadership is None:
            if await _unless({stopped}, self.extender.claim_writer.withdraw_snapshots()):
                await self._term({stopped})
            return
        while not stopped.done():
            self.gate.close(self._not_leading)
            _LOG.info("standing by")
            if await _unless({stopped}, self.leadership.acquire()):
                # Renewals continue while writes in flight end, until the lease is released.
                self._keeping = self.supervisor.begin(BackgroundTask.LEASE, self.leadership.renew())
                ends: set[asyncio.Task[bool] | asyncio.Task[None]] = {stopped, self._keeping}
                if await _unless(ends, self.leadership.catch_up()) and await _unless(
                    ends, self.extender.claim_writer.withdraw_snapshots()
                ):
                    await self._term(ends, self.leadership)

    async def _term(self, ends: set[asyncio.Task[bool] | asyncio.Task[None]], leads: Leadership | None = None) -> None:
        """Start the use cases and open the gate, until one of `ends` is done; then close the gate and drain."""
        await self.extender.start()
        self.gate.open(leads.reason if leads else None)
        announcing = self.supervisor.keep(BackgroundTask.SERVICE_ROUTE, leads.keep_publishing) if leads else None
        _LOG.info("ready")
        try:
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self.gate.close(self.phase or self._not_leading)
            _LOG.info("draining", reason=self.gate.reason)
            if announcing is not None:
                announcing.cancel()
            await self._drain(self.phase or self._not_leading())

    async def _drain(self, reason: str) -> None:
        try:
            async with asyncio.timeout(self.settings.server.stop_seconds):
                await self.extender.stop(reason)
        except TimeoutError:
            _LOG.warning("drain timed out", seconds=self.settings.server.stop_seconds)

    async def _resign(self) -> None:
        if self._keeping is not None:
            self._keeping.cancel()
            await asyncio.gather(self._keeping, return_exceptions=True)
        if self.leadership is not None:
            await self.leadership.release()

    def _enter(self, phase: str) -> None:
        self.phase = phase
        self.gate.close(phase)

    def _not_leading(self) -> str:
        return (self.leadership.reason() if self.leadership else None) or CATCHING_UP


async def _unless(ends: set[asyncio.Task[bool] | asyncio.Task[None]], work: Awaitable[None]) -> bool:
    """Return whether the work was completed; the first of the ends cancels it."""
    task = asyncio.ensure_future(work)
    await asyncio.wait({task, *ends}, return_when=asyncio.FIRST_COMPLETED)
    if task.done():
        task.result()
        return True
    await cancel(task)
    return False
