import asyncio
import gc
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest

from app.http_server import ListenError, listen
from app.ledger.feed import Feed
from app.scheduling.ports import Unavailable
from app.service import Service
from app.settings import ServerSettings, Settings
from app.simulator.cluster import MemoryCluster, MemoryPods
from app.simulator.objects import Kind
from app.telemetry.metrics import Metrics

LOOPBACK = ServerSettings(host="127.0.0.1", port=0, stop_seconds=10)
PASS_THROUGH = {"Pod": {"metadata": {"name": "p", "namespace": "ns", "uid": "u"}}, "NodeNames": ["a"]}


class SlowPods(MemoryPods):
    """Bindings wait until they are let through."""

    entered: asyncio.Event
    go: asyncio.Event

    async def bind(self, namespace: str, name: str, uid: str, node: str) -> None:
        self.entered.set()
        await self.go.wait()
        await super().bind(namespace, name, uid, node)


class WatchedMemory(MemoryCluster):
    """A cluster in memory that is watched as a real one is, at the pace of the test."""

    def __init__(self) -> None:
        super().__init__()
        self.refuse: Exception | None = None
        self.complete = asyncio.Event()
        self.stopped = False
        self.slow = SlowPods(self.store)
        self.slow.entered, self.slow.go = asyncio.Event(), asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    @property
    def pods(self) -> MemoryPods:
        return self.slow

    async def start(self, feeds: Mapping[str, Feed]) -> None:
        if self.refuse is not None:
            raise self.refuse
        self.watch.attach(feeds)
        self._task = asyncio.create_task(self.watch.run())

    async def wait_synced(self) -> None:
        await self.complete.wait()

    async def stop(self) -> None:
        self.stopped = True
        if self._task is not None:
            self._task.cancel()


class Running:
    """A service at work and the means to talk to it."""

    def __init__(self, cluster: WatchedMemory, client: httpx.AsyncClient, stop: asyncio.Event) -> None:
        self.cluster = cluster
        self.client = client
        self.stop = stop
        self.task: asyncio.Task[None]

    async def post(self, verb: str, body: Any) -> Any:
        return (await self.client.post(f"/{verb}", json=body)).json()

    async def ready(self) -> str:
        return (await self.client.get("/readyz?verbose")).text

    async def until_ready(self) -> None:
        self.cluster.complete.set()
        async with asyncio.timeout(10):
            while (await self.client.get("/readyz")).status_code != 200:  # noqa: ASYNC110 - as a probe does
                await asyncio.sleep(0.01)


@asynccontextmanager
async def running() -> AsyncIterator[Running]:
    cluster, stop = WatchedMemory(), asyncio.Event()
    service = Service(Settings(server=LOOPBACK), cluster, Metrics())
    with listen(LOOPBACK) as listener:
        base = f"http://127.0.0.1:{listener.getsockname()[1]}"
        async with httpx.AsyncClient(base_url=base) as client:
            site = Running(cluster, client, stop)
            site.task = asyncio.create_task(service.run(stop, listener))
            try:
                yield site
            finally:
                stop.set()
                async with asyncio.timeout(20):
                    await site.task
                assert cluster.stopped


async def test_while_loading_probes_are_answered_and_verbs_in_words() -> None:
    async with running() as site:
        assert (await site.client.get("/livez")).status_code == 200
        not_ready = await site.client.get("/readyz")
        assert not_ready.status_code == 503
        assert "[-]service failed: the extender is starting" in not_ready.text
        assert "caches are not complete" in (await site.post("filter", PASS_THROUGH))["Error"]


async def test_once_the_caches_are_complete_the_verbs_are_answered() -> None:
    async with running() as site:
        await site.until_ready()
        assert await site.ready() == "[+]ping ok\n[+]service ok\n[+]memory ok\nreadyz check passed\n"
        assert await site.post("filter", PASS_THROUGH) == {"NodeNames": ["a"]}


async def test_a_stop_while_loading_ends_the_service() -> None:
    async with running() as site:
        await site.client.get("/livez")


async def test_a_pod_is_bound_in_the_cluster() -> None:
    async with running() as site:
        uid = create_pod(site.cluster)
        site.cluster.slow.go.set()
        await site.until_ready()
        body = {"PodName": "p", "PodNamespace": "ns", "PodUID": uid, "Node": "a"}
        assert await site.post("bind", body) == {"Error": ""}
        assert (await site.cluster.pods.read("ns", "p")).node_name == "a"


async def test_a_stop_answers_waiting_binds_and_lets_the_write_in_flight_end() -> None:
    """The caller has its answer at once; the process stays until the write has ended."""
    async with running() as site:
        uid = create_pod(site.cluster, claim="c")
        await site.until_ready()
        body = {"PodName": "p", "PodNamespace": "ns", "PodUID": uid, "Node": "a"}
        bind = asyncio.create_task(site.post("bind", body))
        async with asyncio.timeout(10):
            await site.cluster.slow.entered.wait()
            site.stop.set()
            assert "stopping" in (await bind)["Error"]
            assert not site.task.done()
            assert "stopping" in (await site.post("filter", PASS_THROUGH))["Error"]
            assert "[-]service failed: the extender is stopping" in await site.ready()
            site.cluster.slow.go.set()
            await site.task
    assert (await site.cluster.pods.read("ns", "p")).node_name == "a"


async def test_a_cluster_that_refuses_ends_the_service_with_its_sentence() -> None:
    cluster = WatchedMemory()
    cluster.refuse = Unavailable("the API server does not answer")
    service = Service(Settings(server=LOOPBACK), cluster, Metrics())
    with listen(LOOPBACK) as listener, pytest.raises(Unavailable, match="does not answer"):
        await service.run(asyncio.Event(), listener)
    assert cluster.stopped


async def test_the_garbage_collector_is_as_before_when_the_service_has_ended() -> None:
    assert gc.isenabled()
    async with running() as site:
        await site.until_ready()
        assert not gc.isenabled()
        assert gc.get_freeze_count() > 0
    assert gc.isenabled()
    assert gc.get_freeze_count() == 0


def test_a_taken_port_is_said() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with (
            pytest.raises(ListenError, match=f"cannot listen on 127.0.0.1, port {port}: Address already in use"),
            listen(ServerSettings(host="127.0.0.1", port=port)),
        ):
            pass


def test_an_unknown_address_is_said() -> None:
    with (
        pytest.raises(ListenError, match=r"cannot listen on no\.such\.host\.invalid, port 0: "),
        listen(ServerSettings(host="no.such.host.invalid", port=0)),
    ):
        pass


def create_pod(cluster: WatchedMemory, claim: str = "") -> str:
    """A node and a pod, which uses a claim for no devices if one is named; returns the pod's UID."""
    store = cluster.store
    store.create(Kind.NODE, {"metadata": {"name": "a"}})
    spec: dict[str, Any] = {"containers": [{"name": "c", "image": "i"}]}
    if claim:
        store.create(Kind.CLAIM, {"metadata": {"name": claim, "namespace": "ns"}, "spec": {}})
        spec["resourceClaims"] = [{"name": "gpu", "resourceClaimName": claim}]
    pod = store.create(Kind.POD, {"metadata": {"name": "p", "namespace": "ns"}, "spec": spec})
    uid: str = pod["metadata"]["uid"]
    return uid
