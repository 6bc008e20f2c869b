import asyncio
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from functools import partial
from typing import Final, cast

import structlog
import uvicorn
from fastapi import FastAPI

from dra_extender.config.service_settings import ServerSettings
from dra_extender.runtime.installation import LIMITS
from dra_extender.service.http_connections import Connections, HttpLimits, NullCounter
from dra_extender.service.http_protocol import BoundedProtocol
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


@contextmanager
def listen(settings: ServerSettings) -> Iterator[socket.socket]:
    """A socket that listens on the configured address, closed at the end.

    Raises:
        ListenError: the address is taken or does not exist.
    """
    with ExitStack() as opened:
        try:
            family, kind, _, _, address = socket.getaddrinfo(
                settings.host, settings.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            )[0]
            # With the protocol given, event loops send responses at once instead of waiting to fill a packet.
            listener = opened.enter_context(socket.socket(family, kind, socket.IPPROTO_TCP))
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
            listener.listen(backlog())
        except OSError as problem:
            where = f"{settings.host}, port {settings.port}"
            raise ListenError(f"cannot listen on {where}: {problem.strerror or problem}") from problem
        yield listener


@asynccontextmanager
async def serving(
    app: FastAPI, settings: ServerSettings, listener: socket.socket, metrics: Metrics | None = None
) -> AsyncIterator[Connections]:
    """Serves requests inside the block; at its end, responses in progress are completed."""
    connections = Connections(_limits(settings), metrics or NullCounter())
    if metrics is not None:
        metrics.before_render(lambda: metrics.connections(len(connections), connections.in_flight))
    config = uvicorn.Config(
        app,
        # uvicorn only calls it.
        http=cast("type[asyncio.Protocol]", partial(BoundedProtocol, connections=connections)),
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
    server = _Server(config)
    task = asyncio.create_task(server.serve([listener]))
    connections.start()
    _LOG.info("listening", address=":".join(str(part) for part in listener.getsockname()[:2]))
    try:
        yield connections
    finally:
        server.should_exit = True
        await task
        connections.stop()


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
