"""A transport that is closed leaves nothing open: an event loop that ends right after it would leak the connection."""

import gc
import socket
import ssl
from pathlib import Path

import yaml
from aiohttp import web
from dra_extender.kube.client.errors import RequestIntent
from dra_extender.kube.client.settings import KubeSettings
from dra_extender.kube.client.transport import ApiCall, ApiTransport
from dra_extender.kube.port_forward import PROTOCOL

from tests.support.api.tls import Issuer, issuer

PATH = "/api/v1/namespaces/space/pods/pod/portforward"
CALL = ApiCall(RequestIntent("port-forward", "pods"), "GET", PATH, 10.0)


async def answer(request: web.BaseRequest) -> web.StreamResponse:
    if request.path != PATH:
        return web.Response(body=b"{}")
    stream = web.WebSocketResponse(protocols=(PROTOCOL,))
    await stream.prepare(request)
    async for _ in stream:
        await stream.send_bytes(b"\x00")
    return stream


def kubeconfig(path: Path, ours: Issuer, port: int) -> Path:
    cluster = {"server": f"https://127.0.0.1:{port}", "certificate-authority": str(ours.bundle())}
    document = {
        "clusters": [{"name": "one", "cluster": cluster}],
        "users": [{"name": "one", "user": {"token": "first-token"}}],
        "contexts": [{"name": "one", "context": {"cluster": "one", "user": "one"}}],
        "current-context": "one",
    }
    path.write_text(yaml.safe_dump(document))
    return path


async def test_no_tls_connection_is_left_when_the_transport_is_closed(tmp_path: Path) -> None:
    """Those of WebSockets are not in the pool any more, and say goodbye after the session is closed."""
    ours = issuer(tmp_path / "ours")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*ours.server())
    runner = web.ServerRunner(web.Server(answer))
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context)
    await site.start()
    port = runner.addresses[0][1]
    transport = ApiTransport(KubeSettings(kubeconfig=kubeconfig(tmp_path / "config", ours, port)))
    try:
        await transport.open()
        await transport.send(ApiCall(RequestIntent("get", "pods"), "GET", "/api", 10.0))
        async with transport.websocket(CALL, PROTOCOL) as stream:
            await stream.send_bytes(b"\x00")
            await stream.receive_bytes()
        assert open_to(port)
        await transport.close()
        assert open_to(port) == 0
    finally:
        await runner.cleanup()


def open_to(port: int) -> int:
    """Count the sockets of this process that are connected to the port of the server."""
    sockets = [item for item in gc.get_objects() if isinstance(item, socket.socket) and item.family is socket.AF_INET]
    return sum(each.fileno() >= 0 and connected_to(each) == port for each in sockets)


def connected_to(client: socket.socket) -> int:
    try:
        return int(client.getpeername()[1])
    except OSError:
        return 0
