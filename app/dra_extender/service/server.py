"""The listeners: sockets, uvicorn on each, and TLS."""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Final, cast

import structlog
import uvicorn
from fastapi import FastAPI
from starlette.types import ASGIApp, Receive, Scope, Send

from dra_extender.api.browser_guard import BrowserGuard, RequestRefusal
from dra_extender.api.calls import failure
from dra_extender.config.service_settings import EVERY_ADDRESS, ServerSettings
from dra_extender.runtime.installation import LIMITS
from dra_extender.runtime.supervision import is_set_within, running_task
from dra_extender.runtime.token_bucket import TokenBuckets
from dra_extender.service.certificates import Certificates
from dra_extender.service.connection_limits import PEER_CERTIFICATE, ConnectionLimits, Connections, LimitedProtocol
from dra_extender.telemetry.metrics import Metrics

UNPROVEN_RATE: Final = 20.0
"""Handshakes per second and address in which no caller shows a good certificate; after more of them, one waits for its turn."""
UNPROVEN_BURST: Final = 500.0
"""As many may be made, or be under way, before that."""
HANDSHAKE_BYTES: Final = 64 * 1024
"""What a handshake counts among the bytes of unanswered requests; by measurement it takes 70 KB."""
_ADDRESSES: Final = 1024
_SHUTDOWN_SECONDS: Final = 2.0
_PAUSE_SECONDS: Final = 0.1
_DATE_SECONDS: Final = 1.0
_MOST_FILES: Final = 65_536
_FILES_OF_WINDOWS: Final = 8_192
_OWN_FILES: Final = 128
"""Files for everything but connections of callers: the API server, logs, the policy file."""
_MOST_WAITING: Final = 4096
_LOG = structlog.get_logger(__name__)


class ListenError(OSError):
    """The address is taken or does not exist; the message is a sentence."""


def raise_limit() -> None:
    """Raise the limit of open files to the hard limit, at most to 65,536."""
    if LIMITS is None:
        return
    soft, hard = LIMITS.getrlimit(LIMITS.RLIMIT_NOFILE)
    limit = _MOST_FILES if hard == LIMITS.RLIM_INFINITY else min(hard, _MOST_FILES)
    if soft != LIMITS.RLIM_INFINITY and soft < limit:
        LIMITS.setrlimit(LIMITS.RLIMIT_NOFILE, (limit, hard))


def file_limit() -> int:
    """Return how many files the process may open; where no system says so, what Windows allows a process of C's library."""
    if LIMITS is None:
        return _FILES_OF_WINDOWS
    soft: int = LIMITS.getrlimit(LIMITS.RLIMIT_NOFILE)[0]
    return _MOST_FILES if soft == LIMITS.RLIM_INFINITY else min(soft, _MOST_FILES)


def backlog() -> int:
    """Return how many connections may wait to be accepted; all of them may be accepted before any other can be closed."""
    return min(_MOST_WAITING, file_limit() // 4)


@contextmanager
def listen(host: str, port: int) -> Iterator[socket.socket]:
    """Yield a socket that listens on the address, closed at the end; `*` is every address of both families.

    Raises:
        ListenError: the address is taken or does not exist.
    """
    with ExitStack() as opened:
        try:
            # With the protocol given, event loops send responses at once instead of waiting to fill a packet.
            family, address = _address(host, port)
            listener = opened.enter_context(socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP))
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, int(host != EVERY_ADDRESS))
            listener.bind(address)
            listener.listen(backlog())
        except OSError as problem:
            raise ListenError(f"cannot listen on {host}, port {port}: {problem.strerror or problem}") from problem
        yield listener


def _address(host: str, port: int) -> tuple[int, tuple[str, int]]:
    if host == EVERY_ADDRESS:
        return (socket.AF_INET6, ("::", port)) if has_ipv6() else (socket.AF_INET, ("0.0.0.0", port))  # noqa: S104 - as asked
    family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    return family, cast("tuple[str, int]", address)


def has_ipv6() -> bool:
    """Return whether this machine has IPv6; a kernel may have it switched off."""
    try:
        with socket.socket(socket.AF_INET6, socket.SOCK_STREAM) as probe:
            probe.bind(("::", 0))
    except OSError:
        return False
    return True


def connections_of(settings: ServerSettings, metrics: Metrics) -> Connections:
    """Return the book that all listeners share: one limit for connections, and one for the bytes in them."""
    limits = ConnectionLimits(
        # The process must keep files for connections that wait, and for itself.
        connections=max(1, min(settings.connections, file_limit() - backlog() - _OWN_FILES)),
        body=settings.body_limit_bytes,
        in_flight=settings.in_flight_bytes,
        receive_seconds=settings.receive_seconds,
    )
    connections = Connections(limits, metrics)
    metrics.before_render(lambda: metrics.connections(len(connections), connections.in_flight))
    return connections


@asynccontextmanager
async def serving(
    app: FastAPI,
    settings: ServerSettings,
    listener: socket.socket,
    connections: Connections,
    certificates: Certificates | None = None,
    *,
    clients: bool = True,
) -> AsyncIterator[None]:
    """Serve requests inside the block; at its end, responses in progress are completed.

    With `certificates`, the listener speaks TLS; with `clients`, callers then need a certificate with an allowed name.
    """
    admission = certificates if clients else None
    protocol = partial(LimitedProtocol, connections=connections)
    if admission is not None:
        protocol = partial(protocol, generation=lambda: admission.generation)
    config = uvicorn.Config(
        # A browser has no client certificate, so that there is no name to be rebound.
        _Guarded(app, BrowserGuard(settings.allowed_hosts, any_host=admission is not None), admission, connections),
        # uvicorn only calls it.
        http=cast("type[asyncio.Protocol]", protocol),
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        backlog=backlog(),
        timeout_keep_alive=settings.keep_alive_seconds,
        timeout_graceful_shutdown=settings.stop_seconds,
    )
    config.load()
    server = _Server(config)
    # uvicorn accepts no connections of a listener that speaks TLS.
    task = asyncio.create_task(server.serve([listener] if certificates is None else []))
    host, port = listener.getsockname()[:2]
    address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    _LOG.info("listening", address=address, tls=certificates is not None)
    try:
        async with AsyncExitStack() as stack:
            if certificates is not None:
                context = certificates.verbs if clients else certificates.probes
                accepting = TlsListener(listener, server.new_protocol, context, connections)
                await stack.enter_async_context(running_task(accepting.keep_accepting()))
            yield
    finally:
        server.stop()
        await task


class _Server(uvicorn.Server):
    """A server that leaves signals to the service, which stops more than connections."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._stop = asyncio.Event()

    def stop(self) -> None:
        self.should_exit = True
        self._stop.set()

    async def main_loop(self) -> None:
        """Renew the date in answers every second; uvicorn looks ten times a second whether it is to end."""
        while not await self.on_tick(0):
            await is_set_within(self._stop, _DATE_SECONDS)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    def new_protocol(self, handshake: "Handshake") -> asyncio.Protocol:
        """Return what answers on a connection that uvicorn has not accepted itself."""
        make = cast("Callable[..., asyncio.Protocol]", self.config.http_protocol_class)
        return make(config=self.config, server_state=self.server_state, app_state={}, handshake=handshake)


@dataclass(frozen=True)
class _Guarded:
    """ASGI middleware: refuses requests that a web page may have sent, and callers whose certificate has another name."""

    app: ASGIApp
    guard: BrowserGuard
    admission: Certificates | None
    connections: Connections

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        refusal = self._refusal(scope)
        if refusal is None:
            await self.app(scope, receive, send)
            return
        self.connections.metrics.closed_connections.labels(refusal.reason).inc()
        await failure(refusal.sentence, refusal.status, closing=True)(scope, receive, send)

    def _refusal(self, scope: Scope) -> RequestRefusal | None:
        if self.admission is not None:
            refusal = self.admission.refusal(scope["state"][PEER_CERTIFICATE] or {})
            if refusal is not None:
                return refusal
        refusal = self.guard.refusal(scope["method"].encode(), scope["headers"])
        if refusal is not None:
            caller = scope["client"][0] if scope["client"] else ""
            _LOG.warning("request refused", problem=refusal.sentence, caller=caller)
        return refusal


class Handshake:
    """A connection before its first request; see `Connection`."""

    busy = probes_only = False

    def __init__(self, accepted: socket.socket, host: str, now: float, connections: Connections) -> None:
        self.host = host
        self.held_bytes = 0
        self.idle_since = now
        self.task: asyncio.Task[None] | None = None
        self._socket = accepted
        self._connections = connections

    def refuse(self, status: int, reason: str, sentence: str) -> None:  # noqa: ARG002 - nobody could read them yet
        self.abort()

    def abort(self) -> None:
        self._connections.remove(self)
        if self.task is None:
            self._socket.close()
        else:
            self.task.cancel()


class TlsListener:
    """Accepts the connections of one socket and makes their TLS handshakes, each with the certificates of that moment.

    A server of asyncio has one context for ever, and counts no handshake, waits a minute for each, and gives each 70 KB.  Here a
    connection counts from the moment in which it is accepted; it is closed if its handshake takes too long, or if there are too
    many.
    """

    def __init__(
        self,
        listener: socket.socket,
        protocol: Callable[["Handshake"], asyncio.Protocol],
        context: Callable[[], ssl.SSLContext],
        connections: Connections,
    ) -> None:
        """`protocol` returns what answers on a connection after its handshake."""
        self._listener = listener
        self._protocol = protocol
        self._context = context
        self._connections = connections
        self._loop = asyncio.get_running_loop()
        self._unproven = TokenBuckets(UNPROVEN_RATE, UNPROVEN_BURST, _ADDRESSES)
        self._handshakes: set[asyncio.Task[None]] = set()

    async def keep_accepting(self) -> None:
        """Accept connections until cancelled; handshakes that are not complete then are aborted."""
        self._listener.setblocking(False)
        try:
            while True:
                try:
                    accepted, address = await self._loop.sock_accept(self._listener)
                    self._begin(accepted, address[0])
                except Exception as problem:  # noqa: BLE001 - e.g. no file is left; whatever it is, others are to be accepted
                    _LOG.warning("connection was not accepted", problem=str(problem))
                    await asyncio.sleep(_PAUSE_SECONDS)
        finally:
            for task in self._handshakes:
                task.cancel()

    def _begin(self, accepted: socket.socket, host: str) -> None:
        handshake = Handshake(accepted, host, self._loop.time(), self._connections)
        self._connections.add(handshake)
        if accepted.fileno() >= 0:
            self._connections.hold(handshake, HANDSHAKE_BYTES)
        # Either of the two may have closed it.
        if accepted.fileno() < 0:
            return
        task = handshake.task = asyncio.create_task(self._shake(accepted, handshake))
        self._handshakes.add(task)
        task.add_done_callback(self._handshakes.discard)

    async def _shake(self, accepted: socket.socket, handshake: Handshake) -> None:
        host, metrics = handshake.host, self._connections.metrics
        try:
            # There is a turn at once, unless there were many handshakes of this address by callers that nobody knows.
            while not self._unproven.take(host, self._loop.time()):  # noqa: ASYNC110 - tokens come with time
                await asyncio.sleep(1.0 / UNPROVEN_RATE)
            context = self._context()
            await self._loop.connect_accepted_socket(
                partial(self._protocol, handshake),
                accepted,
                ssl=context,
                ssl_handshake_timeout=self._connections.limits.receive_seconds,
                ssl_shutdown_timeout=_SHUTDOWN_SECONDS,
            )
            if context.verify_mode is ssl.CERT_REQUIRED:
                self._unproven.spend(host, -1.0, self._loop.time())
            metrics.tls_handshakes.labels("done").inc()
        except OSError:
            metrics.tls_handshakes.labels("failed").inc()
            accepted.close()
        except BaseException:
            accepted.close()
            raise
        finally:
            self._connections.remove(handshake)
