"""What goes wrong with the simulated API server on request, seen by the service's own client on virtual time."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest
from dra_extender.kube.client.settings import KubeSettings
from dra_extender.kube.cluster import KubeCluster
from dra_extender.scheduling.ports.cluster import ConflictError, ServerUnavailableError
from dra_extender.simulator.apiserver.objects import Key, StoredKind
from dra_extender.simulator.virtual_time import VirtualClock, VirtualClockLoop, running_virtual_loop

from tests.simulation.api_access import User
from tests.simulation.api_server import ApiServer, Fault, Write
from tests.simulation.faults import Faults
from tests.simulation.http_server import HttpConnection
from tests.support.kube.recording import RecordingSink
from tests.support.simulator.things import claim

CLAIM = Key(StoredKind.CLAIM, "default", "claim")
BODY = msgspec.json.encode(claim("claim"))


class World:
    """A server and the service's view of its claims."""

    def __init__(self, server: ApiServer, cluster: KubeCluster, sink: RecordingSink) -> None:
        self.server = server
        self.cluster = cluster
        self.sink = sink
        self.faults = Faults(server)
        self.writes: list[Write] = []
        server.writes.append(self.writes.append)

    def fail_next_create(self, fault: Fault) -> None:
        """Let this go wrong with the next create."""
        self.faults.plan("create", "resourceclaims", fault)

    def change(self, name: str) -> None:
        """Create a claim beside HTTP."""
        self.server.store.create(StoredKind.CLAIM, claim(name))

    def is_stored(self) -> bool:
        """Whether the claim exists."""
        return self.server.store.find(CLAIM) is not None


@asynccontextmanager
async def started(folder: Path) -> AsyncIterator[World]:
    """A world whose claims are listed."""
    clock = VirtualClock(running_virtual_loop())
    server = ApiServer(clock, users={"secret": User("dra-extender")})
    await server.start()
    kubeconfig = server.kubeconfig(folder / "kubeconfig")
    sink = RecordingSink()
    cluster = KubeCluster(KubeSettings(kubeconfig=kubeconfig), clock=clock)
    await cluster.start({"resourceclaims": sink})
    await cluster.wait_synced()
    # The watch that follows the list is open then.
    await asyncio.sleep(1)
    try:
        yield World(server, cluster, sink)
    finally:
        await cluster.stop()
        server.stop()


def on_virtual_time(folder: Path, story: Callable[[World], Awaitable[None]]) -> None:
    async def run() -> None:
        async with started(folder) as world:
            await story(world)

    with asyncio.Runner(loop_factory=VirtualClockLoop) as runner:
        runner.run(run())


def test_lost_answer_leaves_the_write_and_a_lost_request_does_not(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        world.fail_next_create(Fault(lose_request=True))
        with pytest.raises(ServerUnavailableError):
            await world.cluster.claims.create("default", BODY)
        assert not world.is_stored()
        world.fail_next_create(Fault(lose_answer=True))
        with pytest.raises(ServerUnavailableError):
            await world.cluster.claims.create("default", BODY)
        assert world.is_stored()
        with pytest.raises(ConflictError):
            await world.cluster.claims.create("default", BODY)

    on_virtual_time(tmp_path, story)


@pytest.mark.parametrize(("fault", "stored"), [(Fault(delay=60), False), (Fault(late=60), True)])
def test_slow_answer_is_given_up_before_or_after_the_write(tmp_path: Path, fault: Fault, *, stored: bool) -> None:
    async def story(world: World) -> None:
        world.fail_next_create(fault)
        begun = asyncio.get_running_loop().time()
        with pytest.raises(ServerUnavailableError, match="silent"):
            await world.cluster.claims.create("default", BODY)
        assert asyncio.get_running_loop().time() - begun < fault.delay + fault.late
        assert world.is_stored() is stored
        await asyncio.sleep(60)
        assert world.is_stored() is stored

    on_virtual_time(tmp_path, story)


def test_slow_watch_tells_everything_later_and_in_order(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        world.server.pause_watches(30, StoredKind.CLAIM)
        for name in ("a", "b", "c"):
            world.change(name)
        await asyncio.sleep(20)
        assert world.sink.told == []
        await asyncio.sleep(20)
        assert world.sink.told == ["+a", "+b", "+c"]

    on_virtual_time(tmp_path, story)


class ClientTransport(asyncio.Transport):
    """The connection of a client of which only the server's end is there."""

    def __init__(self) -> None:
        super().__init__()
        self.sent = b""
        self.aborted = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.sent += data

    def abort(self) -> None:
        self.aborted = True


def watching_leases(server: ApiServer) -> tuple[HttpConnection, ClientTransport]:
    connection, transport = server.connect(), ClientTransport()
    connection.connection_made(transport)
    path = "/apis/coordination.k8s.io/v1/leases?watch=true"
    connection.data_received(f"GET {path} HTTP/1.1\r\nAuthorization: Bearer admin\r\n\r\n".encode())
    return connection, transport


@pytest.mark.parametrize(("changes", "aborted"), [(1000, False), (1001, True)])
def test_client_that_does_not_read_gets_what_waited_or_is_cut_off(changes: int, *, aborted: bool) -> None:
    async def story() -> None:
        server = ApiServer(VirtualClock(running_virtual_loop()))
        connection, transport = watching_leases(server)
        connection.pause_writing()
        for number in range(changes):
            server.store.create(StoredKind.LEASE, {"metadata": {"name": f"lease-{number}"}})
        assert b"lease" not in transport.sent
        assert transport.aborted is aborted
        connection.resume_writing()
        names = [f'"lease-{number}"'.encode() for number in range(changes)]
        assert [name for name in names if name in transport.sent] == names
        connection.connection_lost(None)

    with asyncio.Runner(loop_factory=VirtualClockLoop) as runner:
        runner.run(story())


def test_each_write_is_reported_with_its_writer(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        await world.cluster.claims.create("default", BODY)
        world.change("beside")
        found = [(write.change.key.name, write.user, write.agent, write.verb) for write in world.writes]
        assert found == [("claim", "dra-extender", "dra-extender", "create"), ("beside", "", "", "")]

    on_virtual_time(tmp_path, story)
