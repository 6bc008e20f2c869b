"""A whole cluster in one process: the API server, two replicas of the service, kube-scheduler, and everybody else who writes."""

import asyncio
import tempfile
from collections import deque
from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec
import structlog
from dra_extender.config.scheduling_settings import BIND_MARGIN_SECONDS, SchedulingSettings
from dra_extender.config.service_settings import (
    AuditSettings,
    ClusterSettings,
    LeaderElectionSettings,
    MetricsSettings,
    ServerSettings,
)
from dra_extender.config.settings import Settings
from dra_extender.service.wiring import serve
from dra_extender.simulator.apiserver.objects import Key, StoredKind, part
from dra_extender.simulator.apiserver.store import Store
from dra_extender.simulator.controllers.claims import is_finished

from tests.simulation.actors import ControllerManager, Drivers, Kubelets, Rival, Users
from tests.simulation.api_access import User
from tests.simulation.api_requests import ApiRequest
from tests.simulation.api_server import ApiServer, Write
from tests.simulation.claim_writes import broken_by
from tests.simulation.cluster import NAMESPACE, furnish
from tests.simulation.environment import START
from tests.simulation.invariants import Invariants
from tests.simulation.knowledge import Knowledge
from tests.simulation.loop import Process
from tests.simulation.moments import Moments
from tests.simulation.network import Address, NetworkedLoop, SimulatedTransport
from tests.simulation.scheduler import Scheduler
from tests.simulation.views import OF_PODS, View

REPLICAS: Final = ("replica-0", "replica-1")
_SYSTEM: Final = "kube-system"
_SERVICE: Final = "dra-extender"
LEASE: Final = Key(StoredKind.LEASE, _SYSTEM, _SERVICE)
_API: Final[Address] = ("10.0.0.1", 6443)
_SERVICE_ADDRESS: Final[Address] = ("10.96.0.10", 80)
_PORT: Final = 8080
_RESTART_SECONDS: Final = 3.0
_BINDING_SECONDS: Final = 30.0
_KEPT_LINES: Final = 200


class _StoreClock:
    """The API server's clock."""

    def __init__(self, loop: NetworkedLoop) -> None:
        self._loop = loop

    def now(self) -> float:
        return START + self._loop.time()

    def monotonic(self) -> float:
        return self._loop.time()


@dataclass(frozen=True, slots=True)
class Periods:
    """Seconds that a Lease lasts, that it may go without renewal, between two tries, two counts of devices, and two audits."""

    lease: int = 15
    renewal: float = 10.0
    retry: float = 2.0
    count: float = 30.0
    audit: float = 60.0


class World:
    """The processes of one cluster.  `log` has the last lines that the replicas have logged."""

    def __init__(
        self,
        loop: NetworkedLoop,
        folder: Path,
        nodes: int,
        *,
        lacking: frozenset[str] = frozenset(),
        completing: float = 0.5,
        lag: float = 1.0,
        periods: Periods = Periods(),
        honest: Callable[[], AbstractContextManager[Any]] = nullcontext,
    ) -> None:
        """`lacking`: devices no node has; `completing`: the share of pods that end; `lag`: how slow others learn of changes;
        `periods`: how often the service does what it does again and again.

        In the context of `honest` the service's own rules judge as they are, whatever is planted.
        """
        self.loop = loop
        self.network = loop.network
        self.log: deque[str] = deque(maxlen=_KEPT_LINES)
        self.processes: dict[str, Process] = {}
        self.exits: list[str] = []
        self._folder = folder
        clock = _StoreClock(loop)
        self.api = ApiServer(clock, users={name: User(name) for name in REPLICAS}, store=Store(clock))
        self.store = self.api.store
        furnish(self.store, nodes, lacking)
        self._lacking, self._completing, self._lag, self._periods = lacking, completing, lag, periods
        self.honest = honest
        self.moments = Moments()
        self.knowledge = Knowledge(self.store, loop.time)
        self.invariants = Invariants(self.store, LEASE, lambda: (loop.time(), loop.steps, loop.current.name))
        self.api.writes.append(self._wrote)
        self.api.requests.append(self._asked)
        self.network.on_send = self._sent
        self.network.on_deliver = self._delivered
        self.users = Users(loop, self.store)
        self.network.routes[_SERVICE_ADDRESS] = self._endpoint
        self._addresses = {
            "api-server": _API[0],
            "controllers": "10.0.0.2",
            "kubelets": "10.0.0.3",
            "drivers": "10.0.0.4",
            "rival": "10.0.0.7",
        }
        self._addresses |= {"scheduler": "10.0.0.5", "replica-0": "10.0.1.0", "replica-1": "10.0.1.1"}
        self._proxy: View | None = None
        self.drivers: Drivers | None = None
        self.rival: Rival | None = None

    async def start(self) -> None:
        self._proxy = self._view(self._process("kube-proxy", "10.0.0.6"), 1.0, (StoredKind.ENDPOINT_SLICE,))
        await self._start("api-server").start(self._serve_api())
        for name in ("controllers", "kubelets", "drivers", "rival", "scheduler", *REPLICAS):
            self.run(name)

    def run(self, name: str) -> None:
        """Start a process of this name, if none runs."""
        found = self.processes.get(name)
        if found is not None and found.alive:
            return
        process = self._start(name)
        if name == "api-server":
            process.start(self._serve_api())
        elif name in REPLICAS:
            process.start(self._serve_replica(process))
        elif name == "scheduler":
            scheduler = process.context.run(self._scheduler, process)
            process.start(scheduler.run())
        else:
            process.context.run(self._actor, name, process)

    def _actor(self, name: str, process: Process) -> None:
        # The rival waits longer than its view may lag.
        view = View(self.store, self.loop, process, 0.3) if name == "rival" else self._view(process, 0.3)
        if name == "controllers":
            ControllerManager(self.loop, self.store, view)
        elif name == "kubelets":
            Kubelets(self.loop, self.store, view).completing = self._completing
        elif name == "drivers":
            self.drivers = Drivers(self.loop, self.store, view)
            self.drivers.lacking = self._lacking
        else:
            self.rival = Rival(self.loop, self.store, view)

    def _scheduler(self, process: Process) -> Scheduler:
        host, port = _SERVICE_ADDRESS
        return Scheduler(
            self.loop,
            self.store,
            self._view(process, 0.1),
            f"http://{host}:{port}",
            _BINDING_SECONDS + BIND_MARGIN_SECONDS,
        )

    def _view(self, process: Process, slowest: float, kinds: Collection[StoredKind] = OF_PODS) -> View:
        return View(self.store, self.loop, process, slowest * self._lag, kinds)

    def _start(self, name: str) -> Process:
        return self._process(name, self._addresses[name])

    def _process(self, name: str, address: str) -> Process:
        process = self.processes[name] = self.loop.process(name, address)
        self.network.host(process)
        return process

    async def _serve_api(self) -> None:
        await self.api.start(*_API)

    async def _serve_replica(self, process: Process) -> None:
        """Run the service until it ends, and have it started again as a kubelet does."""
        try:
            await serve(self._settings(process.name, process.address))
            why = "stopped"
        except Exception as problem:  # noqa: BLE001 - a process may end by any
            why = f"{type(problem).__name__}: {problem}"
        self.exits.append(f"{self.loop.time():.3f} {process.name}: {why}")
        self.loop.call_later(_RESTART_SECONDS, self.run, process.name, context=self.loop.main.context)
        self.loop.call_soon(process.kill)

    def _settings(self, name: str, address: str) -> Settings:
        periods = self._periods
        return Settings(
            server=ServerSettings(host=address, port=_PORT, plain_http=True),
            cluster=ClusterSettings(kubeconfig=self._kubeconfig(name)),
            scheduling=SchedulingSettings(binding_timeout_seconds=_BINDING_SECONDS),
            metrics=MetricsSettings(devices_interval_seconds=periods.count),
            audit=AuditSettings(interval_seconds=periods.audit),
            leader_election=LeaderElectionSettings(
                enabled=True,
                duration_seconds=periods.lease,
                renew_seconds=periods.renewal,
                retry_seconds=periods.retry,
                namespace=_SYSTEM,
                service=_SERVICE,
                address=address,
                host=name,
            ),
        )

    def _kubeconfig(self, name: str) -> Path:
        path = self._folder / name
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "one", "cluster": {"server": f"http://{_API[0]}:{_API[1]}"}}],
            "users": [{"name": "user", "user": {"token": name}}],
            "contexts": [{"name": "one", "context": {"cluster": "one", "user": "user"}}],
            "current-context": "one",
        }
        path.write_bytes(msgspec.json.encode(config))
        return path

    def _endpoint(self) -> Address | None:
        """Where kube-proxy sends a new connection to the Service."""
        assert self._proxy is not None
        found = self._proxy.find(Key(StoredKind.ENDPOINT_SLICE, _SYSTEM, _SERVICE))
        if found is None or not found.get("endpoints"):
            return None
        port = next(each["port"] for each in found["ports"] if each["name"] == "verbs")
        return found["endpoints"][0]["addresses"][0], port

    def _wrote(self, write: Write) -> None:
        self.loop.note(b"write %d " % write.change.version + write.change.data)
        with self.honest():
            self._judge(write)

    def _judge(self, write: Write) -> None:
        self.invariants.look(write)
        # Guard claims, in the namespace of the service, take devices without anybody's reservation.
        if write.user in REPLICAS and write.change.key[:2] == (StoredKind.CLAIM, NAMESPACE):
            for wrong in (*broken_by(write.change, self._runs), *self.knowledge.wrong_allocation(write)):
                self.invariants.note(wrong, write.user, str(write.change.key))

    def _runs(self, uid: str) -> bool:
        found = [pod for pod in self.store.peek_all(StoredKind.POD) if pod["metadata"]["uid"] == uid]
        return any(pod["spec"].get("nodeName") and not is_finished(pod) for pod in found)

    def _sent(self, transport: SimulatedTransport, data: bytes) -> None:
        name = transport.process.name
        if name in REPLICAS:
            self.invariants.look_at_request(name, data)
            self.knowledge.sent(transport.process, data)
        if name in REPLICAS or name == "scheduler":
            self.moments.sent(transport, data)

    def _delivered(self, transport: SimulatedTransport, data: bytes) -> None:
        if transport.process.name in REPLICAS and transport.remote == _API:
            self.knowledge.hear(transport, data)

    def _asked(self, request: ApiRequest) -> None:
        if request.subresource == "binding":
            for wrong in self.knowledge.wrong_about(request):
                self.invariants.note(f"bound against what it knew: {wrong}", request.user, str(request.key))

    def pending(self) -> list[str]:
        """Names of pods that are not bound."""
        return [
            pod["metadata"]["name"]
            for pod in self.store.peek_all(StoredKind.POD)
            if not pod["spec"].get("nodeName") and part(pod, "status").get("phase") not in ("Succeeded", "Failed")
        ]


@contextmanager
def logged(keep: Callable[[str], None], describe: Callable[[], str]) -> Iterator[None]:
    """Inside the block, give log lines to `keep`, each behind what `describe` says of the moment."""

    def line(_: Any, level: str, event: Any) -> str:
        text = " ".join(f"{name}={value!r}" for name, value in event.items() if name != "event")
        keep(f"{describe()} {level}: {event.get('event')} {text}")
        raise structlog.DropEvent

    before = structlog.get_config()
    structlog.configure(
        processors=[line],
        wrapper_class=structlog.BoundLogger,
        logger_factory=structlog.PrintLoggerFactory(),
        cache_logger_on_first_use=False,
    )
    try:
        yield
    finally:
        structlog.configure(**before)


@contextmanager
def new_folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


def run_until_complete(loop: NetworkedLoop, work: Any) -> Any:
    """Run in the loop, in its main process."""
    asyncio.set_event_loop(loop)
    try:
        return loop.run_until_complete(loop.main.start(work))
    finally:
        asyncio.set_event_loop(None)
        loop.ended = True
