"""HTTP/1.1 on the event loop alone: no task, no thread and no clock, so that a simulated loop runs it the same way every time."""

import asyncio
import socket
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from http import HTTPStatus
from urllib.parse import parse_qsl, unquote

import httptools

JSON = "application/json"
_KEPT_URLS = 1_000


@dataclass(slots=True)
class HttpRequest:
    """A request with its body; names of headers are in lower case."""

    method: str = ""
    path: str = ""
    raw_path: str = ""
    query: dict[str, str] = field(default_factory=dict)
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""


class HttpConnection(asyncio.Protocol):
    """One connection of a client; its requests are handled one after the other, in their order."""

    def __init__(
        self, handle: Callable[[HttpRequest, "HttpConnection"], None], known: dict["HttpConnection", None]
    ) -> None:
        self.closed = False
        self.on_close: Callable[[], None] | None = None
        self.on_resume: Callable[[], None] | None = None
        self.congested = False
        self._handle = handle
        self._known = known
        self._transport: asyncio.Transport | None = None
        self._parser = httptools.HttpRequestParser(self)
        self._waiting: deque[HttpRequest] = deque()
        self._busy = False
        self._keep_alive = True
        self._url = b""
        self._request = HttpRequest()

    def respond(
        self, status: int, body: bytes, content_type: str = JSON, headers: Mapping[str, str] | None = None
    ) -> None:
        """Send the whole answer to the request that is being handled."""
        head = {"Content-Type": content_type, "Content-Length": str(len(body)), **(headers or {})}
        self._write(_head(status, head) + body)
        self._end()

    def begin_stream(self) -> None:
        """Send the head of an answer that comes in pieces."""
        self._write(_head(200, {"Content-Type": JSON, "Transfer-Encoding": "chunked"}))

    def send_piece(self, data: bytes) -> None:
        self._write(b"%x\r\n%b\r\n" % (len(data), data))

    def end_stream(self) -> None:
        """End the answer; the connection can be used again."""
        ended, self.on_close, self.on_resume = self.on_close, None, None
        if ended is not None:
            ended()
        self._write(b"0\r\n\r\n")
        self._end()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._known[self] = None
        # As Go's servers do: otherwise the connection of a host that is gone stays for ever.
        made = transport.get_extra_info("socket")
        if made is not None:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed = True
        self._known.pop(self, None)
        self._waiting.clear()
        if self.on_close is not None:
            self.on_close()

    def pause_writing(self) -> None:
        self.congested = True

    def resume_writing(self) -> None:
        self.congested = False
        if self.on_resume is not None:
            self.on_resume()

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            self.abort()

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self._request.headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_body(self, body: bytes) -> None:
        self._request.body += body

    def on_message_complete(self) -> None:
        request, self._request = self._request, HttpRequest()
        url, self._url = self._url, b""
        request.method = self._parser.get_method().decode()
        request.raw_path, request.path, query = _read_url(url)
        request.query = dict(query)
        self._keep_alive = self._parser.should_keep_alive()
        self._waiting.append(request)
        self._next()

    def _next(self) -> None:
        if self._waiting and not self._busy:
            self._busy = True
            self._handle(self._waiting.popleft(), self)

    def _end(self) -> None:
        self._busy = False
        if not self._keep_alive and self._transport is not None:
            self._transport.close()
        self._next()

    def _write(self, data: bytes) -> None:
        if self._transport is not None and not self.closed:
            self._transport.write(data)


@lru_cache(_KEPT_URLS)
def _read_url(text: bytes) -> tuple[str, str, tuple[tuple[str, str], ...]]:
    """Return the path as it was sent, the path, and the query."""
    url = httptools.parse_url(text)
    path = url.path.decode()
    return path, unquote(path), tuple(parse_qsl((url.query or b"").decode(), keep_blank_values=True))


def _head(status: int, headers: Mapping[str, str]) -> bytes:
    lines = [f"HTTP/1.1 {status} {HTTPStatus(status).phrase}", *(f"{name}: {value}" for name, value in headers.items())]
    return "\r\n".join([*lines, "", ""]).encode("latin-1")
