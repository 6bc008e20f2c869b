"""The composition root: the one place where rooms meet."""

import asyncio
import gc
import signal
import socket
from collections.abc import AsyncIterator, Awaitable, Iterator, Mapping
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from typing import Final, Protocol

import structlog
import uvicorn
import uvloop
from fastapi import FastAPI

from app.api.application import create_app
from app.api.gate import Gate
from app.api.health import Health
from app.kube.cluster import KubeCluster
from app.kube.server_facts import Support
from app.kube.settings import KubeSettings
from app.ledger.feed import Feed
from app.ledger.ledger import Ledger
from app.policy_watch import PolicyWatch
from app.scheduling.extender import Extender
from app.scheduling.ports import Cluster
from app.settings import ServerSettings, Settings
from app.telemetry.metrics import Metrics
from app.telemetry.observer import ClusterObserver

STOPPING: Final = "the extender is stopping"
LOADING: Final = "the extender is starting: its caches are not complete yet"
_BACKLOG: Final = 4096
_COLLECT_SECONDS: Final = 30.0

_LOG = structlog.get_logger(__name__)


class ListenError(OSError):
    """The address is taken or does not exist; the message is a sentence."""


class WatchedCluster(Cluster, Protocol):
    """A cluster that keeps feeds up to date."""

    async def start(self, feeds: Mapping[str, Feed]) -> None:
        """Connect and begin to watch.  Raises ClusterError and errors of its configuration."""
        ...

    async def wait_synced(self) -> None:
        """Returns when every feed has been told all that exists."""
        ...

    async def stop(self) -> None:
        """End watches and connections."""
        ...


class Service:
    """One running extender over a cluster: ledger, use cases, HTTP side, and the order in which they start and stop."""

    def __init__(self, settings: Settings, cluster: WatchedCluster, metrics: Metrics) -> None:
        self.ledger = Ledger()
        self.gate = Gate(LOADING)
        self.health = Health()
        self.extender = Extender(
            self.ledger, cluster, metrics, settings.scheduling.options(), settings.features.features()
        )
        self.policy = PolicyWatch(
            settings.scheduling.policy_file,
            self.ledger,
            metrics,
            seconds=settings.scheduling.policy_check_seconds,
            compatibility_groups=settings.features.compatibility_groups,
        )
        self.health.check("service", lambda: self.gate.reason)
        self.health.checks(cluster.health)
        self.health.notes(cluster.notes)
        self.health.notes(self.policy.notes)
        self.app = create_app(self.extender, self.health, metrics, settings.server, self.gate)
        self._settings = settings.server
        self._cluster = cluster

    async def run(self, stop: asyncio.Event, listener: socket.socket) -> None:
        """Serve on `listener` until `stop` is set.

        Probes are answered from the beginning.  The verbs are answered in words until the caches are complete, and again from the
        moment of stopping; binds that wait then are told so, writes in flight end, and only then the connections do.

        Raises:
            ClusterError: the cluster does not answer, or refuses us.
            BadPolicy: the policy file is wrong.
        """
        with _quiet_collector() as settled:
            async with _serving(self.app, self._settings, listener):
                try:
                    await self._work(stop, settled)
                finally:
                    self.gate.close(STOPPING)
                    await self._cluster.stop()
        _LOG.info("stopped")

    async def _work(self, stop: asyncio.Event, settled: "_Collector") -> None:
        stopped = asyncio.create_task(stop.wait())
        try:
            if not await _unless(stopped, self._load()):
                return
            settled.freeze()
            going_on = [asyncio.create_task(settled.run()), asyncio.create_task(self.policy.run())]
            await self.extender.start()
            self.gate.open()
            _LOG.info("ready")
            try:
                await stopped
            finally:
                self.gate.close(STOPPING)
                _LOG.info("stopping")
                await self._drain()
                for each in going_on:
                    each.cancel()
        finally:
            stopped.cancel()

    async def _load(self) -> None:
        self.policy.load()
        await self._cluster.start(self.ledger.feeds)
        await self._cluster.wait_synced()

    async def _drain(self) -> None:
        try:
            async with asyncio.timeout(self._settings.stop_seconds):
                await self.extender.stop()
        except TimeoutError:
            _LOG.warning(
                "writes did not end in time; the next bind of each pod carries on", seconds=self._settings.stop_seconds
            )


async def serve(settings: Settings) -> None:
    """Run the service against the API server until SIGTERM or SIGINT.

    Raises:
        ListenError: the address cannot be used.
        ConfigurationError: there is no usable configuration of the API server.
        BadPolicy: the policy file is wrong.
        ClusterError: the API server does not answer, is too old, or does not let us in.
    """
    metrics = Metrics()
    cluster = kube_cluster(settings, metrics)
    service = Service(settings, cluster, metrics)
    with listen(settings.server) as listener:
        await service.run(_stop_on_signal(), listener)


def run(settings: Settings) -> None:
    """As `serve`, in an event loop of its own."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve(settings))


def kube_cluster(settings: Settings, metrics: Metrics) -> KubeCluster:
    """The cluster behind the configured API server, counted by `metrics`."""
    connection = KubeSettings(
        kubeconfig=settings.cluster.kubeconfig,
        context=settings.cluster.context,
        identity=settings.scheduling.field_manager,
        instance=socket.gethostname(),
        patience=settings.cluster.patience_seconds,
    )
    cluster = KubeCluster(connection, observer=ClusterObserver(metrics))

    def refresh() -> None:
        for kind, seconds in cluster.contact_ages().items():
            metrics.watch_age(kind, seconds)
        for field, support in (cluster.facts.fields if cluster.facts else {}).items():
            if support is not Support.UNKNOWN:
                metrics.unserved(field, support is Support.DROPPED)

    metrics.before_render(refresh)
    return cluster


@contextmanager
def listen(settings: ServerSettings) -> Iterator[socket.socket]:
    """A socket that listens on the configured address, closed at the end.

    Raises:
        ListenError: the address is taken or does not exist.
    """
    with ExitStack() as opened:
        try:
            family, kind, _, _, address = socket.getaddrinfo(
                settings.host, settings.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            )[0]
            # With the protocol named, event loops send answers at once instead of waiting to fill a packet.
            listener = opened.enter_context(socket.socket(family, kind, socket.IPPROTO_TCP))
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
            listener.listen(_BACKLOG)
        except OSError as problem:
            where = f"{settings.host}, port {settings.port}"
            raise ListenError(f"cannot listen on {where}: {problem.strerror or problem}") from problem
        yield listener


@asynccontextmanager
async def _serving(app: FastAPI, settings: ServerSettings, listener: socket.socket) -> AsyncIterator[None]:
    """Answers requests inside the block; at its end, answers in progress are completed."""
    config = uvicorn.Config(
        app,
        http="httptools",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        backlog=_BACKLOG,
        timeout_keep_alive=settings.keep_alive_seconds,
        timeout_graceful_shutdown=settings.stop_seconds,
    )
    server = _Server(config)
    task = asyncio.create_task(server.serve([listener]))
    _LOG.info("listening", address=":".join(str(part) for part in listener.getsockname()[:2]))
    try:
        yield
    finally:
        server.should_exit = True
        await task


class _Server(uvicorn.Server):
    """A server that leaves signals to the service, which has more to end than connections."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Capture none."""
        yield


class _Collector:
    """The cyclic garbage collector, kept from walking through the caches: a full collection stops everything for up to a second."""

    def freeze(self) -> None:
        """Take everything that exists now out of consideration."""
        gc.collect()
        gc.freeze()

    async def run(self) -> None:
        """Collect young cycles, which failed requests and ended tasks leave behind, now and then."""
        while True:
            await asyncio.sleep(_COLLECT_SECONDS)
            gc.collect(1)


@contextmanager
def _quiet_collector() -> Iterator[_Collector]:
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield _Collector()
    finally:
        gc.unfreeze()
        if was_enabled:
            gc.enable()


def _stop_on_signal() -> asyncio.Event:
    """Set by the first SIGTERM or SIGINT; a second one ends the process at once."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()

    def first(number: signal.Signals) -> None:
        _LOG.info("asked to stop", signal=number.name)
        stop.set()
        for each in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(each)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, first, number)
    return stop


async def _unless(stopped: asyncio.Task[bool], work: Awaitable[None]) -> bool:
    """Whether the work was completed before the stop, which cancels it."""
    task = asyncio.ensure_future(work)
    await asyncio.wait({task, stopped}, return_when=asyncio.FIRST_COMPLETED)
    if task.done():
        task.result()
        return True
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    return False
