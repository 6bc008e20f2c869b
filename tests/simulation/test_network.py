"""Clients and servers as they are, over the network in memory."""

import asyncio
import contextlib
import socket
from collections.abc import Iterator
from typing import Any

import aiohttp
import pytest
import uvicorn

from tests.simulation.environment import simulated
from tests.simulation.loop import Process
from tests.simulation.network import NetworkedLoop
from tests.simulation.test_loop import run

SERVER = ("10.0.0.1", 80)


class Pair:
    """A host with a server and one with a client."""

    def __init__(self, seed: int = 1) -> None:
        self.loop = NetworkedLoop(seed)
        self.network = self.loop.network
        self.server = self.host("server", SERVER[0])
        self.client = self.host("client", "10.0.0.2")

    def host(self, name: str, address: str) -> Process:
        process = self.loop.process(name, address)
        self.network.host(process)
        return process

    def run(self, work: Any) -> Any:
        """Run in the client, inside the simulation."""

        async def main() -> Any:
            return await self.client.start(work)

        with simulated(self.loop, 1):
            return run(self.loop, main())


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(2**16):
            writer.write(data)
            await writer.drain()
    writer.close()


async def listen() -> None:
    await asyncio.start_server(echo, *SERVER)


@pytest.fixture
def pair() -> Pair:
    made = Pair()
    made.server.start(listen())
    return made


async def connect() -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    await asyncio.sleep(0.1)
    return await asyncio.open_connection(*SERVER)


def test_bytes_arrive_in_their_order_however_they_are_divided(pair: Pair) -> None:
    sent = bytes(range(256)) * 4000

    async def work() -> bytes:
        reader, writer = await connect()
        for begin in range(0, len(sent), 999):
            writer.write(sent[begin : begin + 999])
        writer.write_eof()
        return await reader.read()

    assert pair.run(work()) == sent


def test_connections_overtake_each_other() -> None:
    def order(seed: int) -> tuple[int, ...]:
        pair, seen = Pair(seed), list[int]()
        pair.server.start(listen())

        async def ask(number: int) -> None:
            reader, writer = await connect()
            writer.write(b"x")
            await reader.readexactly(1)
            seen.append(number)

        async def work() -> None:
            await asyncio.gather(*map(ask, range(4)))

        pair.run(work())
        return tuple(seen)

    assert len({order(seed) for seed in range(10)}) > 1
    assert order(5) == order(5)


def test_a_writer_waits_for_a_reader_that_does_not_read() -> None:
    pair = Pair()
    written = list[int]()

    async def write(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for number in range(100):
            writer.write(bytes(2**16))
            await writer.drain()
            written.append(number)
        writer.close()

    async def serve() -> None:
        await asyncio.start_server(write, *SERVER)

    pair.server.start(serve())

    async def work() -> int:
        reader, _ = await connect()
        await asyncio.sleep(60)
        assert 2 < len(written) < 50
        return len(await reader.read())

    assert pair.run(work()) == 100 * 2**16
    assert len(written) == 100


def test_nobody_listens_where_no_process_does(pair: Pair) -> None:
    async def work() -> None:
        await asyncio.open_connection(SERVER[0], 81)

    with pytest.raises(ConnectionRefusedError):
        pair.run(work())


def test_the_end_of_a_process_resets_its_connections(pair: Pair) -> None:
    async def work() -> None:
        reader, _ = await connect()
        pair.server.kill()
        await reader.read()

    with pytest.raises(ConnectionResetError):
        pair.run(work())


def test_nobody_hears_of_a_host_that_is_lost_until_bytes_stay_unanswered(pair: Pair) -> None:
    async def work() -> float:
        reader, writer = await connect()
        pair.network.lose_host(pair.server)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(reader.read(), 500)
        writer.write(b"x")
        with pytest.raises(OSError, match="timed out"):
            await reader.read()
        return pair.loop.time()

    assert 900 < pair.run(work()) - 500 < 1000


def test_a_host_that_is_back_resets_what_it_does_not_know(pair: Pair) -> None:
    async def work() -> None:
        reader, writer = await connect()
        pair.network.lose_host(pair.server)
        await asyncio.sleep(5)
        pair.host("server", SERVER[0])
        writer.write(b"x")
        await reader.read()

    with pytest.raises(ConnectionResetError):
        pair.run(work())


def test_bytes_wait_while_a_direction_is_blocked(pair: Pair) -> None:
    async def work() -> float:
        reader, writer = await connect()
        pair.network.block(pair.client.address, SERVER[0], blocked=True)
        writer.write(b"x")
        pair.loop.call_later(7, lambda: pair.network.block(pair.client.address, SERVER[0], blocked=False))
        await reader.readexactly(1)
        return pair.loop.time()

    assert 7 < pair.run(work()) < 7.2


def test_a_connection_attempt_over_a_blocked_link_gives_up(pair: Pair) -> None:
    async def work() -> None:
        pair.network.block(SERVER[0], pair.client.address, blocked=True)
        await connect()

    with pytest.raises(TimeoutError):
        pair.run(work())
    assert pair.loop.time() > 100


def test_a_slow_link_takes_its_time(pair: Pair) -> None:
    async def work() -> float:
        reader, writer = await connect()
        pair.network.link(pair.client.address, SERVER[0]).rate = 1000
        writer.write(bytes(10_000))
        await reader.readexactly(10_000)
        return pair.loop.time()

    assert 10 < pair.run(work()) < 11


def test_a_cut_breaks_both_ends(pair: Pair) -> None:
    async def work() -> None:
        reader, _ = await connect()
        await asyncio.sleep(1)
        (number,) = pair.network.transports
        pair.network.cut(number)
        await reader.read()

    with pytest.raises(ConnectionResetError):
        pair.run(work())
    assert pair.network.transports == {}


def test_a_paused_process_gets_what_has_arrived_when_it_goes_on(pair: Pair) -> None:
    async def work() -> float:
        reader, writer = await connect()
        pair.server.paused = True
        writer.write(b"x")
        pair.loop.call_later(30, setattr, pair.server, "paused", False, context=pair.loop.main.context)
        await reader.readexactly(1)
        return pair.loop.time()

    assert 30 < pair.run(work()) < 31


def test_a_virtual_address_leads_to_where_its_route_points_at_that_moment(pair: Pair) -> None:
    service = ("10.96.0.1", 8)
    targets = [None, SERVER]
    pair.network.routes[service] = lambda: targets.pop(0)

    async def work() -> bytes:
        await asyncio.sleep(0.1)
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection(*service)
        reader, writer = await asyncio.open_connection(*service)
        writer.write(b"x")
        return await reader.readexactly(1)

    assert pair.run(work()) == b"x"


class Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


async def answer(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    for number in range(3):
        await send({"type": "http.response.body", "body": b"%d" % number * 200_000, "more_body": True})
        await asyncio.sleep(0.5)
    await send({"type": "http.response.body", "body": b"", "more_body": False})


async def serve_http() -> None:
    with socket.socket() as listener:
        listener.bind(SERVER)
        listener.listen()
        await Server(uvicorn.Config(answer, log_config=None, lifespan="off", http="httptools")).serve([listener])


def test_uvicorn_and_aiohttp_run_as_they_are_and_a_seed_replays_exactly() -> None:
    def digest(seed: int) -> str:
        pair = Pair(seed)
        pair.server.start(serve_http())

        async def work() -> None:
            await asyncio.sleep(0.1)
            async with aiohttp.ClientSession(trust_env=False) as session:

                async def get(path: int) -> int:
                    async with session.get(f"http://{SERVER[0]}:{SERVER[1]}/{path}") as response:
                        return len(await response.read())

                assert await asyncio.gather(*map(get, range(5))) == [600_000] * 5

        pair.run(work())
        return pair.loop.digest()

    assert digest(1) == digest(1) != digest(2)
