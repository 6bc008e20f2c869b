import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager, AsyncExitStack, ExitStack, asynccontextmanager, contextmanager
from functools import partial
from typing import Final, NamedTuple, cast

import structlog
import uvicorn
from fastapi import FastAPI

from dra_extender.api.request_guard import RequestGuard
from dra_extender.config.listener_settings import EVERY_ADDRESS
from dra_extender.config.service_settings import ServerSettings
from dra_extender.runtime.installation import LIMITS
from dra_extender.runtime.supervision import running_task
from dra_extender.service.http_connections import Connections, HttpLimits, NullCounter
from dra_extender.service.http_protocol import Admission, BoundedProtocol
from dra_extender.service.tls_listener import Handshake, TlsListener
from dra_extender.telemetry.metrics import Metrics

_WANTED: Final = 65_536
_OF_WINDOWS: Final = 8_192
_OWN: Final = 128
"""Files for everything but connections of callers: the API server, logs, the policy file."""
_MOST_WAITING: Final = 4096


def raise_limit() -> int:
    """Raise the limit of open files to the hard limit, at most to 65,536; returns the limit."""
    if LIMITS is None:
        return limit()
    soft: int
    hard: int
    soft, hard = LIMITS.getrlimit(LIMITS.RLIMIT_NOFILE)
    most = _WANTED if hard == LIMITS.RLIM_INFINITY else min(hard, _WANTED)
    if soft not in (LIMITS.RLIM_INFINITY, most) and soft < most:
        LIMITS.setrlimit(LIMITS.RLIMIT_NOFILE, (most, hard))
    return limit()


def limit() -> int:
    """How many files the process may open; where no system says so, what Windows allows a process of C's library."""
    if LIMITS is None:
        return _OF_WINDOWS
    soft: int
    soft, _ = LIMITS.getrlimit(LIMITS.RLIMIT_NOFILE)
    return _WANTED if soft == LIMITS.RLIM_INFINITY else min(soft, _WANTED)


def backlog() -> int:
    """How many connections may wait to be accepted; all of them may be accepted before any other can be closed."""
    return min(_MOST_WAITING, limit() // 4)


def most_connections(wanted: int) -> int:
    """How many of `wanted` connections of callers the process can keep open."""
    return max(1, min(wanted, limit() - backlog() - _OWN))


_LOG = structlog.get_logger(__name__)


class ListenError(OSError):
    """The address is taken or does not exist; the message is a sentence."""


class TlsSide(NamedTuple):
    """How connections of a listener are made over TLS: the context for a new one, and who may call (None: all)."""

    context: Callable[[], ssl.SSLContext]
    admission: Admission | None = None


def listen(settings: ServerSettings) -> AbstractContextManager[socket.socket]:
    """A socket that listens on the address of the verbs; see `listen_at`."""
    return listen_at(settings.host, settings.port)


@contextmanager
def listen_at(host: str, port: int) -> Iterator[socket.socket]:
    """A socket that listens on the address, closed at the end; `*` is every address of both families.

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
    """Whether this machine has IPv6; a kernel may have it switched off."""
    try:
        with socket.socket(socket.AF_INET6, socket.SOCK_STREAM) as probe:
            probe.bind(("::", 0))
    except OSError:
        return False
    return True


@asynccontextmanager
async def connections_of(settings: ServerSettings, metrics: Metrics | None = None) -> AsyncIterator[Connections]:
    """What all listeners share: one limit for connections and for the bytes in them."""
    connections = Connections(_limits(settings), metrics or NullCounter())
    if metrics is not None:
        metrics.before_render(lambda: metrics.connections(len(connections), connections.in_flight))
    connections.start()
    try:
        yield connections
    finally:
        connections.stop()


@asynccontextmanager
async def serving(
    app: FastAPI,
    settings: ServerSettings,
    listener: socket.socket,
    metrics: Metrics | None = None,
    *,
    connections: Connections | None = None,
    tls: TlsSide | None = None,
) -> AsyncIterator[Connections]:
    """Serves requests inside the block; at its end, responses in progress are completed.

    `connections` are those that it shares with other listeners; None: it has its own, which report to the metrics.
    """
    if connections is None:
        async with (
            connections_of(settings, metrics) as own,
            serving(app, settings, listener, connections=own, tls=tls),
        ):
            yield own
        return
    # A browser has no client certificate, so that there is no name to be rebound.
    guard = RequestGuard(settings.allowed_hosts, any_host=tls is not None and tls.admission is not None)
    config = uvicorn.Config(
        app,
        # uvicorn only calls it.
        http=cast("type[asyncio.Protocol]", partial(BoundedProtocol, connections=connections, guard=guard)),
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
    task = asyncio.create_task(server.serve([listener] if tls is None else []))
    host, port = listener.getsockname()[:2]
    _LOG.info("listening", address=f"[{host}]:{port}" if ":" in host else f"{host}:{port}", tls=tls is not None)
    try:
        async with AsyncExitStack() as stack:
            if tls is not None:
                await stack.enter_async_context(
                    running_task(_tls_listener(listener, server, connections, guard, tls).run())
                )
            yield connections
    finally:
        server.should_exit = True
        await task


def _tls_listener(
    listener: socket.socket, server: "_Server", connections: Connections, guard: RequestGuard, tls: TlsSide
) -> TlsListener:
    def protocol(handshake: Handshake) -> asyncio.Protocol:
        return BoundedProtocol(
            connections=connections,
            guard=guard,
            config=server.config,
            server_state=server.server_state,
            app_state={},
            admission=tls.admission,
            handshake=handshake,
        )

    return TlsListener(listener, protocol, tls.context, connections)


def _limits(settings: ServerSettings) -> HttpLimits:
    return HttpLimits(
        connections=most_connections(settings.connections),
        body=settings.body_limit_bytes,
        in_flight=settings.in_flight_bytes,
        receive_seconds=settings.receive_seconds,
        idle_seconds=settings.keep_alive_seconds,
    )


class _Server(uvicorn.Server):
    """A server that leaves signals to the service, which stops more than connections."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Capture none."""
        yield
