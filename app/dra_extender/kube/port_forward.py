"""One HTTP request to a port of a pod, through the API server and kubelet, as `kubectl port-forward` connects; or to an address.

The extender listens on the loopback address of its pod.  The subresource pods/proxy connects to the pod's IP and does not reach it.

The protocol is kubelet's `v4.channel.k8s.io` over a WebSocket: the first byte of a message is its channel (0 data, 1 errors), and
the first message of each channel is the number of the port.
"""

import asyncio
import http.client
import io
from typing import Final

import aiohttp

from dra_extender.kube.client.errors import ApiCallError, RequestIntent, no_answer
from dra_extender.kube.client.objects import PODS
from dra_extender.kube.client.transport import ApiCall, ApiTransport

PROTOCOL: Final = "v4.channel.k8s.io"
MOST_BYTES: Final = 16 * 2**20
"""The most bytes of an answer."""
_DATA: Final = 0
_ERROR: Final = 1
_PORT_BYTES: Final = 2
_OK: Final = 200


async def get_through(
    transport: ApiTransport, namespace: str, pod: str, port: int, path: str, *, seconds: float
) -> bytes:
    """Return the body of the answer to GET `path` at a port that the pod has on its loopback address.

    Raises:
        ApiCallError: the right `pods/portforward` is missing, nothing answers there, or not with status 200 in time.
    """
    intent = RequestIntent("port-forward", "pods", f"{namespace}/{pod}:{port}")
    call = ApiCall(intent, "GET", PODS.path(namespace, pod, "portforward"), seconds, query={"ports": str(port)})
    request = f"GET {path} HTTP/1.1\r\nHost: localhost:{port}\r\nAccept: application/json\r\nConnection: close\r\n\r\n"
    received = bytearray()
    try:
        async with asyncio.timeout(seconds), transport.websocket(call, PROTOCOL) as socket:
            await socket.send_bytes(bytes([_DATA]) + request.encode())
            opened: set[int] = set()
            async for message in socket:
                if message.type is not aiohttp.WSMsgType.BINARY:
                    continue
                channel, data = (message.data[0], message.data[1:]) if message.data else (_DATA, b"")
                if channel not in opened:
                    opened.add(channel)
                    data = data[_PORT_BYTES:]
                if channel == _ERROR and data:
                    raise ApiCallError(intent, None, data.decode(errors="replace"))
                received += data if channel == _DATA else b""
                if len(received) > MOST_BYTES:
                    raise ApiCallError(intent, None, f"the answer is longer than {MOST_BYTES} bytes")
                if _is_complete(received):
                    break
    except TimeoutError as problem:
        raise ApiCallError(intent, None, f"no answer within {seconds:g} s") from problem
    return _body(bytes(received), intent)


async def get_at(url: str, *, seconds: float) -> bytes:
    """Return the body of the answer to GET at an address, without credentials.

    Raises:
        ApiCallError: nothing answers there, or not with status 200 in time.
    """
    intent = RequestIntent("get", url)
    received = bytearray()
    try:
        limits = aiohttp.ClientTimeout(total=seconds)
        async with aiohttp.ClientSession(timeout=limits) as session, session.get(url, allow_redirects=False) as answer:
            async for piece in answer.content.iter_any():
                received += piece
                if len(received) > MOST_BYTES:
                    raise ApiCallError(intent, None, f"the answer is longer than {MOST_BYTES} bytes")
            if answer.status != _OK:
                body = " ".join(received.decode(errors="replace").split())
                raise ApiCallError(intent, None, f"{answer.status} {answer.reason}: {body}")
    except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as problem:
        raise no_answer(intent, problem, seconds) from problem
    return bytes(received)


def _is_complete(received: bytearray) -> bool:
    """Return whether the head says how long the body is, and all of it is there."""
    head, blank, body = received.partition(b"\r\n\r\n")
    for line in head.lower().split(b"\r\n") if blank else ():
        name, _, value = line.partition(b":")
        if name == b"content-length" and value.strip().isdigit():
            return len(body) >= int(value)
    return False


class _Received:
    """A socket that has received everything already, as `http.client` reads one."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def makefile(self, *_: object, **__: object) -> io.BytesIO:
        return io.BytesIO(self._data)


def _body(received: bytes, intent: RequestIntent) -> bytes:
    response = http.client.HTTPResponse(_Received(received))  # type: ignore[arg-type]  # it reads a file and nothing else
    try:
        response.begin()
        body = response.read()
    except (http.client.HTTPException, ValueError) as problem:
        raise ApiCallError(intent, None, f"the answer is no HTTP: {type(problem).__name__} {problem}") from problem
    if response.status != _OK:
        reason = " ".join(body.decode(errors="replace").split())
        raise ApiCallError(intent, None, f"{response.status} {response.reason}: {reason}")
    return body
