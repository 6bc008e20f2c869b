"""Slow and hostile callers, before uvicorn alone and before the service: what `connection_limits` adds is still needed."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import uvicorn

from tests.support.api.serving import HEAD, PROBE, Peer, serve
from tests.support.api.sites import make_site

KEEP_ALIVE = 91
"""Seconds that an idle connection is kept; both have this limit."""
MiB = 1024 * 1024


class Uvicorn(uvicorn.Server):
    """uvicorn with its own limits alone."""

    @asynccontextmanager
    async def on_a_port(self) -> AsyncIterator[int]:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            self.config.load()
            self.lifespan = self.config.lifespan_class(self.config)
            await self.startup([listener])
            try:
                yield listener.getsockname()[1]
            finally:
                for connection in list(self.server_state.connections):
                    connection.transport.abort()
                await self.shutdown([listener])


@asynccontextmanager
async def uvicorn_alone(connections: int | None = None) -> AsyncIterator[int]:
    config = uvicorn.Config(
        make_site().app,
        http="httptools",
        log_config=None,
        access_log=False,
        timeout_keep_alive=KEEP_ALIVE,
        limit_concurrency=connections,
    )
    async with Uvicorn(config).on_a_port() as port:
        yield port


@asynccontextmanager
async def ours(**limits: int) -> AsyncIterator[int]:
    async with serve(keep_alive_seconds=KEEP_ALIVE, receive_seconds=10, **limits) as server:
        yield server.port


async def peer(port: int) -> Peer:
    return Peer(*await asyncio.open_connection("127.0.0.1", port))


async def is_closed(made: Peer) -> bool:
    """Whether the server has closed the connection; answers that come before are read."""
    try:
        async with asyncio.timeout(0.2):
            await made.reader.read()
    except TimeoutError:
        return False
    except ConnectionError:
        pass
    return True


SLOW = {
    "no request at all": b"",
    "a head that does not end": b"POST /filter HTTP/1.1\r\nHost: x\r\n",
    "a body that does not end": HEAD % 1000 + b"{",
}


@pytest.mark.virtual_time
@pytest.mark.parametrize("sent", SLOW.values(), ids=SLOW)
async def test_a_caller_that_sends_no_whole_request_is_closed(sent: bytes) -> None:
    async with uvicorn_alone() as alone, ours() as port:
        slow = [await peer(each) for each in (alone, port)]
        for each in slow:
            await each.send(sent)
        await asyncio.sleep(10 * KEEP_ALIVE)
        assert [await is_closed(each) for each in slow] == [False, True]
        for each in slow:
            each.close()


@pytest.mark.virtual_time
async def test_a_head_has_a_limit() -> None:
    async with uvicorn_alone() as alone, ours() as port:
        large = [await peer(each) for each in (alone, port)]
        for each in large:
            await each.send(b"GET /livez HTTP/1.1\r\nHost: x\r\n" + b"X: y\r\n" * 50_000)
        assert [await is_closed(each) for each in large] == [False, True]
        for each in large:
            each.close()


@pytest.mark.virtual_time
async def test_many_idle_connections_keep_nobody_out() -> None:
    async with uvicorn_alone(connections=16) as alone, ours(connections=16) as port:
        answers = []
        for each in (alone, port):
            idle = [await peer(each) for _ in range(64)]
            await asyncio.sleep(0.5)
            probe = await peer(each)
            await probe.send(PROBE)
            answers.append((await probe.answer())[0])
            for made in (*idle, probe):
                made.close()
        assert answers == [503, 200]
