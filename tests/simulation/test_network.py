"""Clients and servers as they are, over the network in memory."""

import asyncio
import contextlib
from typing import Any

import pytest

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
