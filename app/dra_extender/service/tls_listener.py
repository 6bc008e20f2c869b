"""Accepts connections and makes their TLS handshakes, each with the certificates that are in use at that moment.

A server of asyncio has one context for ever, leaves handshakes uncounted, and waits a minute for each.  Here a connection counts
from the moment in which it is accepted; `Connections` closes it if its handshake takes too long, or if there are too many.
"""

import asyncio
import socket
import ssl
from collections.abc import Callable
from typing import Final

import structlog

from dra_extender.runtime.token_bucket import TokenBuckets
from dra_extender.service.http_connections import Connections

UNPROVEN_RATE: Final = 20.0
"""Handshakes per second and address in which no caller shows a good certificate; after more of them, one waits for its turn."""
UNPROVEN_BURST: Final = 500.0
"""As many may be made, or be under way, before that."""
HANDSHAKE_BYTES: Final = 64 * 1024
"""What a handshake counts among the bytes of unanswered requests; by measurement it takes 70 KB."""
_ADDRESSES: Final = 1024
_SHUTDOWN_SECONDS: Final = 2.0
_PAUSE_SECONDS: Final = 0.1

_LOG = structlog.get_logger(__name__)


class Handshake:
    """A connection before its first request; see `Connection`."""

    def __init__(self, connection: socket.socket, host: str, now: float, connections: Connections) -> None:
        self.host = host
        self.held = 0
        self.served = self.busy = self.probes_only = False
        self.begun: float | None = now
        self.idle_since = now
        self.suspect: float | None = None
        self.task: asyncio.Task[None] | None = None
        self._connection = connection
        self._connections = connections

    def refuse(self, status: int, reason: str, sentence: str) -> None:  # noqa: ARG002 - nobody could read them yet
        """See Connection."""
        self.abort()

    def unsent(self) -> int:
        """See Connection."""
        return 0

    def abort(self) -> None:
        """See Connection."""
        self._connections.closed(self)
        if self.task is None:
            self._connection.close()
        else:
            self.task.cancel()


class TlsListener:
    """Accepts the connections of one socket; `protocol` makes what answers on each."""

    def __init__(
        self,
        listener: socket.socket,
        protocol: Callable[[Handshake], asyncio.Protocol],
        context: Callable[[], ssl.SSLContext],
        connections: Connections,
    ) -> None:
        self._listener = listener
        self._protocol = protocol
        self._context = context
        self._connections = connections
        self._loop = asyncio.get_running_loop()
        self._unproven = TokenBuckets(UNPROVEN_RATE, UNPROVEN_BURST, _ADDRESSES)
        self._handshakes: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Accept until cancelled; handshakes that are not complete then are aborted."""
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
            for each in self._handshakes:
                each.cancel()

    def _begin(self, accepted: socket.socket, host: str) -> None:
        handshake = Handshake(accepted, host, self._loop.time(), self._connections)
        self._connections.opened(handshake)
        if accepted.fileno() >= 0:
            self._connections.record_held(handshake, HANDSHAKE_BYTES)
        # Either of the two may have closed it.
        if accepted.fileno() < 0:
            return
        task = handshake.task = asyncio.create_task(self._shake(accepted, handshake))
        self._handshakes.add(task)
        task.add_done_callback(self._handshakes.discard)

    async def _shake(self, accepted: socket.socket, handshake: Handshake) -> None:
        host, seconds = handshake.host, self._connections.limits.receive_seconds
        try:
            await self._turn(host)
            context = self._context()
            await self._loop.connect_accepted_socket(
                lambda: self._protocol(handshake),
                accepted,
                ssl=context,
                ssl_handshake_timeout=seconds,
                ssl_shutdown_timeout=_SHUTDOWN_SECONDS,
            )
            if context.verify_mode is ssl.CERT_REQUIRED:
                self._unproven.spend(host, -1.0, self._loop.time())
            self._connections.count_handshake("done")
        except OSError:
            self._connections.count_handshake("failed")
            accepted.close()
        except BaseException:
            accepted.close()
            raise
        finally:
            self._connections.closed(handshake)

    async def _turn(self, host: str) -> None:
        """Return when a handshake of this address may begin: at once, unless there were many by callers that nobody knows."""
        while not self._unproven.take(host, self._loop.time()):  # noqa: ASYNC110 - tokens come with time
            await asyncio.sleep(1.0 / UNPROVEN_RATE)
