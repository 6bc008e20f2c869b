"""The one thing that a kubelet does for these tests: it forwards ports, as `v4.channel.k8s.io` over a WebSocket."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

from aiohttp import WSMsgType, web

from tests.support.serving import serving

PROTOCOL: Final = "v4.channel.k8s.io"
_DATA: Final = b"\0"
_ERROR: Final = b"\1"


class ForwardingKubelet:
    """Serves the API server on a loopback port, and connects to ports of this machine; `asked` are the paths of the requests."""

    def __init__(self) -> None:
        self.port = 0
        self.asked: list[str] = []

    @classmethod
    @asynccontextmanager
    async def serving(cls, certificates: Path) -> AsyncIterator["ForwardingKubelet"]:
        """Serve with the certificate that the API server made for itself; it does not check that of a kubelet."""
        kubelet = cls()
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(certificates / "apiserver.crt", certificates / "apiserver.key")
        application = web.Application()
        application.router.add_get("/portForward/{namespace}/{pod}", kubelet.forward)
        async with serving(application, context) as url:
            kubelet.port = int(url.rpartition(":")[2])
            yield kubelet

    async def forward(self, request: web.Request) -> web.WebSocketResponse:
        """Answers a request for port-forward."""
        self.asked.append(request.path)
        socket = web.WebSocketResponse(protocols=(PROTOCOL,))
        await socket.prepare(request)
        number = int(request.query["port"] if "port" in request.query else request.query["ports"])
        for channel in (_DATA, _ERROR):
            await socket.send_bytes(channel + number.to_bytes(2, "little"))
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", number)
        except OSError as problem:
            await socket.send_bytes(_ERROR + f"error forwarding port {number}: {problem}".encode())
            return socket
        back = asyncio.create_task(self._back(reader, socket))
        async for message in socket:
            if message.type is WSMsgType.BINARY and message.data[:1] == _DATA:
                writer.write(message.data[1:])
                await writer.drain()
        back.cancel()
        writer.close()
        return socket

    @staticmethod
    async def _back(reader: asyncio.StreamReader, socket: web.WebSocketResponse) -> None:
        while data := await reader.read(32_768):
            await socket.send_bytes(_DATA + data)
        await socket.close()


def node_status(kubelet: ForwardingKubelet) -> dict[str, Any]:
    """Where an API server finds it."""
    return {
        "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": kubelet.port}},
    }
