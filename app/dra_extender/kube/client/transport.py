"""HTTP to one API server: connections, headers, time limits, and the fence before writes."""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Final
from weakref import WeakSet

import aiohttp
from aiohttp.abc import AbstractStreamWriter
from aiohttp.connector import Connection
from multidict import CIMultiDict
from yarl import URL

from dra_extender.kube.client.credentials import ConfigurationError, Credentials, Identity, find_credentials
from dra_extender.kube.client.errors import (
    ApiCallError,
    ApiStatus,
    RequestIntent,
    ResponseTooLongError,
    StreamSilentError,
    WriteBlockedError,
    no_answer,
    read_status,
)
from dra_extender.kube.client.kubeconfig import Impersonation
from dra_extender.kube.client.library import RESTClientObject
from dra_extender.kube.client.settings import KubeSettings
from dra_extender.runtime.clock import SystemClock
from dra_extender.scheduling.ports.cluster import Clock
from dra_extender.telemetry.observer import Observer
from dra_extender.telemetry.spans import NO_SPANS, Spans

JSON = "application/json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_MERGE_PATCH = "application/strategic-merge-patch+json"
APPLY = "application/apply-patch+yaml"
_UNAUTHORIZED = 401
_FIRST_ERROR = 300
_IDLE_SECONDS = 60.0
_CLOSE_SECONDS: Final = 1.0
_LOOK_SECONDS: Final = 0.005
_NETWORK_PROBLEMS = (aiohttp.ClientError, TimeoutError, OSError)
_READS: Final = frozenset({"GET", "HEAD"})

WriteFence = Callable[[], str | None]
"""None while writes may be sent, else why not."""


@dataclass(frozen=True, slots=True)
class ApiCall:
    """One request: what it wants, HTTP method, path, query, body (sent unchanged) and how long it may take in seconds.

    `accept` is the media type of the answer, `max_bytes` the limit of its length, 0 for none.
    """

    intent: RequestIntent
    method: str
    path: str
    seconds: float
    query: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None
    content_type: str = JSON
    accept: str = JSON
    max_bytes: int = 0


class _Rest(RESTClientObject):
    """The official client's transport (trust, client certificate, proxy) with our connection pool."""

    def _create_connector(self) -> aiohttp.TCPConnector:
        self._sockets: WeakSet[socket.socket] = WeakSet()
        return aiohttp.TCPConnector(
            limit=self.maxsize, ssl=self.ssl_context, keepalive_timeout=_IDLE_SECONDS, socket_factory=self._socket
        )

    def _socket(self, address: aiohttp.AddrInfoType) -> socket.socket:
        family, kind, protocol, _, _ = address
        connection = socket.socket(family=family, type=kind, proto=protocol)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        # With the system's defaults a peer that vanished is noticed after two hours.
        for option, value in (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3)):
            if hasattr(socket, option):
                connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
        self._sockets.add(connection)
        return connection

    def session(self) -> aiohttp.ClientSession:
        session: aiohttp.ClientSession = self._create_pool_manager()
        return session

    async def wait_closed(self, seconds: float) -> None:
        """Return when every socket is closed, after so many seconds at the latest.

        A session that is closed leaves TLS connections that still say goodbye; a loop that ends before them would leak them.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while any(connection.fileno() >= 0 for connection in self._sockets):  # noqa: ASYNC110 - a socket tells nobody
                    await asyncio.sleep(_LOOK_SECONDS)


class ApiTransport:
    """Requests to one API server over at most `connections` kept-alive connections.  Bodies are bytes, both ways.

    The official client decides about trust, proxies and authentication.  Requests do not go through its `call_api`, which
    would parse and rebuild JSON bodies and so change what is written.
    """

    def __init__(
        self,
        settings: KubeSettings,
        clock: Clock | None = None,
        observer: Observer | None = None,
        write_fence: WriteFence | None = None,
        spans: Spans = NO_SPANS,
    ) -> None:
        """`write_fence` is asked about every write, last in the moment in which its bytes are handed to the connection."""
        self._request_class = aiohttp.ClientRequest if write_fence is None else _fenced_requests(write_fence)
        self.spans = spans
        self._settings = settings
        self._clock = clock or SystemClock()
        self._observer = observer or Observer()
        self._connect_seconds = settings.timeouts.connect
        # Compression would cost both sides more processor time than the network of a cluster is worth.
        self._headers = {"Accept-Encoding": "identity", "User-Agent": settings.identity}
        self._named = Impersonation(settings.impersonate, settings.impersonate_groups, settings.impersonate_uid)
        self._extra: dict[str, Any] = {}
        self._host = ""
        self._credentials: Credentials | None = None
        self._rest: _Rest | None = None
        self._session: aiohttp.ClientSession | None = None

    async def open(self) -> Credentials:
        """Find the credentials that the settings name, and connect with them.

        Raises:
            ConfigurationError: there are none, or they cannot be used.
        """
        credentials = await find_credentials(self._settings, self._clock)
        self.connect(credentials)
        return credentials

    def connect(self, credentials: Credentials) -> None:
        """Set the server and our identity; until then every request fails.  Must be called in the event loop.

        Raises:
            ConfigurationError: the certificates cannot be used.
        """
        configuration = credentials.configuration
        self._host = configuration.host.rstrip("/")
        try:
            # Proxies come from the configuration; looking for them in the environment costs two thread hops a request.
            configuration.client_session_kwargs = {"trust_env": False, "request_class": self._request_class}
            client = _Rest(configuration)
        except (OSError, ValueError) as problem:
            raise ConfigurationError(
                f"The certificates of {credentials.source} cannot be used: {problem}."
            ) from problem
        self._rest = client
        self._session = client.session()
        self._credentials = credentials
        if not self._named.user:
            self._named = credentials.identity.impersonation
        options = {
            "server_hostname": configuration.tls_server_name,
            "proxy": configuration.proxy,
            "proxy_headers": configuration.proxy_headers,
        }
        self._extra = {name: value for name, value in options.items() if value}

    def identified(self, source: str) -> str:
        """Return the source of the credentials with the context, and in whose name requests are sent."""
        identity = Identity() if self._credentials is None else self._credentials.identity
        uid = f" with UID {self._named.uid}" if self._named.uid else ""
        groups = f" in {', '.join(self._named.groups)}" if self._named.groups else ""
        return "".join(
            (
                source,
                f", context {identity.context}" if identity.context else "",
                *(f", {override}" for override in identity.instead),
                f", as {self._named.user}{uid}{groups}" if self._named.user else "",
            )
        )

    async def close(self) -> None:
        """Close all connections; later requests fail."""
        session, self._session = self._session, None
        if session is not None and self._rest is not None:
            await session.close()
            await self._rest.wait_closed(_CLOSE_SECONDS)

    async def send(self, call: ApiCall) -> bytes:
        """Return the whole body of a successful answer.

        Raises:
            ResponseTooLongError: there is more of it than `call.max_bytes`.
            ApiCallError: an answer that refuses, or none in time.
        """
        started = self._clock.monotonic()
        status = "none"
        limits = aiohttp.ClientTimeout(total=call.seconds, sock_connect=self._connect_seconds)
        try:
            async with self._answer(call, limits) as response:
                status = str(response.status)
                return await (_bounded(response, call) if call.max_bytes else response.read())
        except ApiCallError as failed:
            status = str(failed.status.code) if failed.status else status
            raise
        except _NETWORK_PROBLEMS as problem:
            raise no_answer(call.intent, problem, call.seconds) from problem
        finally:
            self._observer.api_request(
                call.intent.verb, call.intent.resource, status, self._clock.monotonic() - started
            )

    @asynccontextmanager
    async def stream(self, call: ApiCall, silence: float) -> AsyncIterator[AsyncIterator[bytes]]:
        """Return the body of a successful answer in pieces as they arrive; at most `silence` seconds may pass between two.

        Raises:
            StreamSilentError: nothing came for `silence` seconds after the answer had begun, or it did not end in `call.seconds`.
            ApiCallError: an answer that refuses, none, or a broken connection; also while the pieces are read.
        """
        has_begun = False
        limits = aiohttp.ClientTimeout(total=call.seconds, sock_connect=self._connect_seconds, sock_read=silence)
        try:
            async with self._answer(call, limits) as response:
                has_begun = True
                yield response.content.iter_any()
        except _NETWORK_PROBLEMS as problem:
            if has_begun and isinstance(problem, TimeoutError):
                raise StreamSilentError(call.intent, None, f"nothing came for {silence:g} s") from problem
            raise no_answer(call.intent, problem, silence) from problem

    @asynccontextmanager
    async def websocket(self, call: ApiCall, protocol: str) -> AsyncIterator[aiohttp.ClientWebSocketResponse[bool]]:
        """Return a WebSocket that speaks this protocol.

        Raises:
            ApiCallError: the server refuses it, or does not answer; also while messages are read and sent.
        """
        if self._session is None or self._credentials is None:
            raise ApiCallError(call.intent, None, "there is no connection to an API server")
        url = URL(self._host + call.path, encoded=True).update_query(call.query)
        headers = await self._head(call, self._credentials)
        try:
            async with self._session.ws_connect(url, protocols=(protocol,), headers=headers, **self._extra) as socket:
                yield socket
        except aiohttp.WSServerHandshakeError as problem:
            reason = self._credentials.hidden(problem.message.encode()).decode()
            status = ApiStatus(code=problem.status, message=f"the server refuses the WebSocket: {reason}")
            raise ApiCallError(call.intent, status) from problem
        except _NETWORK_PROBLEMS as problem:
            raise no_answer(call.intent, problem, call.seconds) from problem

    @asynccontextmanager
    async def _answer(self, call: ApiCall, limits: aiohttp.ClientTimeout) -> AsyncIterator[aiohttp.ClientResponse]:
        if self._session is None or self._credentials is None:
            raise ApiCallError(call.intent, None, "there is no connection to an API server")
        response = await self._request(self._session, self._credentials, call, limits)
        # A refused token was refused before anything was done: with another one the same request may go again.
        if response.status == _UNAUTHORIZED and await self._credentials.renew():
            response.release()
            response = await self._request(self._session, self._credentials, call, limits)
        async with response:
            if response.status >= _FIRST_ERROR:
                status = read_status(response.status, self._credentials.hidden(await response.read()))
                raise ApiCallError(call.intent, status, retry_after=_pause(response.headers.get("Retry-After")))
            yield response

    async def _request(
        self, session: aiohttp.ClientSession, credentials: Credentials, call: ApiCall, limits: aiohttp.ClientTimeout
    ) -> aiohttp.ClientResponse:
        headers = await self._head(call, credentials)
        if call.body is not None:
            headers["Content-Type"] = call.content_type
        # Path segments are quoted already, and a second quoting would change names.
        url = URL(self._host + call.path, encoded=True).update_query(call.query)
        return await session.request(
            call.method,
            url,
            data=call.body,
            headers=headers,
            timeout=limits,
            allow_redirects=False,
            **self._extra,
        )

    async def _head(self, call: ApiCall, credentials: Credentials) -> CIMultiDict[str]:
        """Return the headers by which the server knows who asks, and for what."""
        headers = CIMultiDict({**self._headers, "Accept": call.accept, **await credentials.headers()})
        for name, value in self._named.headers():
            headers.add(name, value)
        return headers


async def _bounded(response: aiohttp.ClientResponse, call: ApiCall) -> bytes:
    """Return the body; reading stops at the limit of the call."""
    body = bytearray()
    async for piece in response.content.iter_any():
        body += piece
        if len(body) > call.max_bytes:
            raise ResponseTooLongError(call.intent, None, f"the answer is longer than {call.max_bytes} bytes")
    return bytes(body)


def _fenced_requests(write_fence: WriteFence) -> type[aiohttp.ClientRequest]:
    """Make requests that ask the fence when they have a connection, and again when their body is handed to it.

    Between these two the event loop may run other tasks, and the process may be suspended for longer than it may lead.
    """

    class FencedRequest(aiohttp.ClientRequest):
        async def send(self, conn: Connection) -> aiohttp.ClientResponse:
            refusal = None if self.method in _READS else write_fence()
            if refusal is not None:
                raise WriteBlockedError(refusal)
            return await super().send(conn)

        async def write_bytes(
            self, writer: AbstractStreamWriter, conn: Connection, content_length: int | None = None
        ) -> None:
            refusal = None if self.method in _READS else write_fence()
            if refusal is None:
                await super().write_bytes(writer, conn, content_length)
                return
            if conn.protocol is not None:
                conn.protocol.set_exception(WriteBlockedError(refusal))
            conn.close()

    return FencedRequest


def _pause(text: str | None) -> float:
    """Return the seconds of a Retry-After header; API servers send whole numbers."""
    return float(text) if text is not None and text.isascii() and text.isdigit() else 0.0
