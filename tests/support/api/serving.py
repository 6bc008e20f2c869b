"""The application behind the real server of the service, and raw connections to it."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from dra_extender.config.service_settings import ServerSettings
from dra_extender.service.connection_limits import Connections
from dra_extender.service.server import connections_of, listen, serving

from tests.support.api.sites import Site, make_site
from tests.support.turns import until_async

HEAD = b"POST /filter HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
PROBE = b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n"


@dataclass
class Peer:
    """A raw connection."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def answer(self, seconds: float = 60.0) -> tuple[int, bytes]:
        """Status and body."""
        async with asyncio.timeout(seconds):
            head = await self.reader.readuntil(b"\r\n\r\n")
            length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
            return int(head.split(b" ")[1]), await self.reader.readexactly(length)

    async def rest(self, seconds: float = 60.0) -> bytes:
        """All that comes until the server closes."""
        async with asyncio.timeout(seconds):
            try:
                return await self.reader.read()
            except ConnectionError:
                return b""

    def close(self) -> None:
        self.writer.transport.abort()


@dataclass
class Server:
    """A running server."""

    port: int
    site: Site
    connections: Connections
    peers: list[Peer] = field(default_factory=list)

    async def peer(self, source: str = "127.0.0.1") -> Peer:
        """A new connection without TLS from this address, closed with the server."""
        self.peers.append(Peer(*await asyncio.open_connection("127.0.0.1", self.port, local_addr=(source, 0))))
        return self.peers[-1]

    async def probe(self, source: str = "127.0.0.1") -> bytes:
        """The answer to /livez on a new connection from this address."""
        peer = await self.peer(source)
        try:
            await peer.send(PROBE)
            return (await peer.answer())[1]
        finally:
            peer.close()

    async def metric(self, name: str, **labels: str) -> float:
        await self.site.metrics.render()
        return self.site.metrics.registry.get_sample_value(f"dra_extender_{name}", labels) or 0.0

    async def until_metric(self, value: float, name: str, **labels: str) -> None:
        async def has_value() -> bool:
            return await self.metric(name, **labels) == value

        await until_async(has_value)

    async def close_peers(self) -> None:
        for each in self.peers:
            each.close()
        await asyncio.sleep(0)


async def answer_to(port: int, method: str, path: str, headers: Sequence[str], body: bytes = b"") -> tuple[int, bytes]:
    """Status and body of the answer to these bytes, on a connection of its own."""
    peer = Peer(*await asyncio.open_connection("127.0.0.1", port))
    try:
        lines = [f"{method} {path} HTTP/1.1", *headers, f"Content-Length: {len(body)}", "", ""]
        await peer.send("\r\n".join(lines).encode() + body)
        return await peer.answer()
    finally:
        peer.close()


@asynccontextmanager
async def serve(**settings: float) -> AsyncIterator[Server]:
    """The server with these settings beside port and address."""
    given = ServerSettings.model_validate({"host": "127.0.0.1", "port": 0, **settings})
    site = make_site(given)
    connections = connections_of(given, site.metrics)
    with listen(given.host, given.port) as listener:
        async with serving(site.app, given, listener, connections):
            server = Server(listener.getsockname()[1], site, connections)
            try:
                yield server
            finally:
                await server.close_peers()
