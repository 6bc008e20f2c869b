"""Limits for callers that uvicorn does not have, so that no slow or hostile caller keeps kube-scheduler and kubelet out.

tests/service/test_hostile_callers.py shows what uvicorn does by itself with httptools:

* A request may take for ever, and so may a caller that does not read its response: connections pile up until no file is left.
* `limit_concurrency` refuses every caller, kube-scheduler and probes among them, once one caller has opened many connections.
* The head of a request may have any size, and so may the bodies of all requests together.
"""

from asyncio import AbstractEventLoop, BaseTransport, TimerHandle, Transport
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, cast

import msgspec
from uvicorn import Config
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol
from uvicorn.server import ServerState

from dra_extender.telemetry.metrics import Metrics

PROBES: Final = 32
"""Connections beyond the limit, when every other one is being answered; they may only GET, which is what probes do."""
PEER_CERTIFICATE: Final = "peer_certificate"
"""The caller's certificate in the state of a request's scope, as `SSLSocket.getpeercert` returns it; None without one."""
_GRACE_SECONDS: Final = 0.25
"""A younger connection may have sent a request that has not been read yet."""
_HEAD_BYTES: Final = 64 * 1024
_PIPELINED: Final = 16
_OVERHEAD_BYTES: Final = 256 * 1024
"""What a request may take on the wire beyond the limit of its body: one read, and the marks between chunks."""


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """The limits of all callers.  `in_flight` is bytes of unanswered requests and unsent responses, over all connections.

    `receive_seconds` limits sending a request and receiving a response, not the time in between.
    """

    connections: int
    body: int
    in_flight: int
    receive_seconds: float


class Connection(Protocol):
    """A connection of a caller; `idle_since` is a time of the event loop."""

    host: str
    held_bytes: int
    busy: bool
    probes_only: bool
    idle_since: float

    def refuse(self, status: int, reason: str, sentence: str) -> None:
        """Respond with the sentence if that is possible, and close."""
        ...

    def abort(self) -> None:
        """Close at once; unsent bytes are lost."""
        ...


@dataclass(slots=True)
class _Host:
    """The connections of one address; those without a request in progress in the order in which they became idle."""

    all: dict[Connection, None] = field(default_factory=dict)
    fresh: OrderedDict[Connection, None] = field(default_factory=OrderedDict)
    served: OrderedDict[Connection, None] = field(default_factory=OrderedDict)

    def idle(self, before: float) -> Connection | None:
        """Return an idle connection since `before`: the first one without any request yet, else the first one."""
        firsts = (next(iter(self.fresh), None), next(iter(self.served), None))
        return next((first for first in firsts if first is not None and first.idle_since <= before), None)


class Connections:
    """Every open connection, over all listeners.

    At the limit, the address with the most connections loses the one that has been idle for longest, so that a caller that opens
    many closes its own.  A connection whose request is in progress is never closed for that.
    """

    def __init__(self, limits: ConnectionLimits, metrics: Metrics) -> None:
        self.limits = limits
        self.metrics = metrics
        self.in_flight = 0
        self._hosts: dict[str, _Host] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    @property
    def crowded(self) -> bool:
        return self._count > self.limits.connections

    def add(self, connection: Connection) -> None:
        """Add a new connection; at the limit, another one or this one is closed."""
        grace_began = connection.idle_since - _GRACE_SECONDS
        if self._count >= self.limits.connections and not self._evict(grace_began):
            if self._count >= self.limits.connections + PROBES and not self._evict(connection.idle_since):
                connection.refuse(503, "busy", "every connection is in use")
                return
            connection.probes_only = True
        host = self._hosts.setdefault(connection.host, _Host())
        host.all[connection] = None
        host.fresh[connection] = None
        self._count += 1

    def remove(self, connection: Connection) -> None:
        """Forget a connection that is closed, or about to be."""
        host = self._hosts.get(connection.host)
        if host is None or connection not in host.all:
            return
        self.in_flight -= connection.held_bytes
        connection.held_bytes = 0
        del host.all[connection]
        host.fresh.pop(connection, None)
        host.served.pop(connection, None)
        self._count -= 1
        if not host.all:
            del self._hosts[connection.host]

    def mark_busy(self, connection: Connection) -> None:
        """Note that a whole request has been received and is being answered."""
        host = self._hosts.get(connection.host)
        if host is not None:
            host.fresh.pop(connection, None)
            host.served.pop(connection, None)

    def mark_idle(self, connection: Connection) -> None:
        """Note that everything has been answered."""
        host = self._hosts.get(connection.host)
        if host is not None and connection in host.all:
            host.served[connection] = None

    def hold(self, connection: Connection, size: int) -> None:
        """Record the bytes held for a connection; over the limit, the address that holds most loses its largest request."""
        self.in_flight += size - connection.held_bytes
        connection.held_bytes = size
        while self.in_flight > self.limits.in_flight and self._hosts:
            host = max(self._hosts.values(), key=lambda host: sum(connection.held_bytes for connection in host.all))
            max(
                host.all,
                key=lambda connection: (
                    (not connection.busy, connection.held_bytes) if connection.held_bytes else (False, 0)
                ),
            ).refuse(503, "memory", "requests that are not answered yet take up all the memory there is for them")

    def _evict(self, before: float) -> bool:
        """Close one that has been idle since `before`; False if there is none."""
        hosts = [host for host in self._hosts.values() if host.idle(before) is not None]
        victim = max(hosts, key=lambda host: len(host.all)).idle(before) if hosts else None
        if victim is None:
            return False
        self.metrics.closed_connections.labels("replaced").inc()
        victim.abort()
        return True


class _Deadline:
    """Calls a function once a time is over, unless it is cleared before."""

    __slots__ = ("_call", "_loop", "_timer")

    def __init__(self, loop: AbstractEventLoop, call: Callable[[], None]) -> None:
        self._loop = loop
        self._call = call
        self._timer: TimerHandle | None = None

    @property
    def is_set(self) -> bool:
        return self._timer is not None

    def set(self, seconds: float) -> None:
        self.clear()
        self._timer = self._loop.call_later(seconds, self._call)

    def clear(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class LimitedProtocol(HttpToolsProtocol):
    """uvicorn's HTTP/1.1 on one connection, with limits for time, size of the head, requests sent ahead, and memory."""

    def __init__(
        self,
        *,
        connections: Connections,
        generation: Callable[[], int] = lambda: 0,
        handshake: Connection | None = None,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: AbstractEventLoop | None = None,
    ) -> None:
        """`generation` changes when the caller is to make a new connection, because certificates were replaced.

        With TLS, `handshake` is what counts as this connection before it is made.
        """
        super().__init__(config, server_state, app_state, _loop)
        self.host = ""
        self.held_bytes = 0
        self.busy = self.probes_only = False
        self.idle_since = self.loop.time()
        self._connections = connections
        self._generation = generation
        self._made_in = generation()
        self._handshake = handshake
        self._refused = False
        self._receiving = self._in_head = False
        self._wire = 0
        self._seconds = connections.limits.receive_seconds
        self._received_by = _Deadline(self.loop, self._end_receiving)
        self._read_by = _Deadline(self.loop, lambda: self._close("slow_reader"))

    def connection_made(self, transport: BaseTransport) -> None:
        if self._handshake is not None:
            self._connections.remove(self._handshake)
        # uvloop's transports are no subclasses of asyncio's.
        super().connection_made(cast("Transport", transport))
        self.app_state = {**self.app_state, PEER_CERTIFICATE: transport.get_extra_info("peercert")}
        self.host = self.client[0] if self.client else ""
        # uvicorn itself sets no time for the first request.
        self.timeout_keep_alive_task = self.loop.call_later(self.timeout_keep_alive, self.timeout_keep_alive_handler)
        self._connections.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._leave()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._refused:
            return
        super().data_received(data)
        if not self._receiving or self._refused:
            return
        self._wire += len(data)
        limit = self._connections.limits.body + _OVERHEAD_BYTES
        if self._in_head and self._wire > _HEAD_BYTES:
            self.refuse(431, "large_head", f"the head of the request has more than {_HEAD_BYTES} bytes")
        elif self._wire > limit:
            self.refuse(413, "large_body", f"the request takes more than {limit} bytes")
        elif not self._received_by.is_set:
            self._received_by.set(self._seconds)

    def on_message_begin(self) -> None:
        self._receiving = self._in_head = True
        self._wire = 0
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        if self._refused:
            return
        if len(self.pipeline) >= _PIPELINED:
            self.refuse(400, "pipeline", f"more than {_PIPELINED} requests were sent ahead")
        elif self.probes_only and self._connections.crowded and self.parser.get_method() != b"GET":
            self.refuse(503, "busy", "every connection is in use; this one is for probes")
        else:
            self._in_head = False
            super().on_headers_complete()
            if self._generation() != self._made_in:
                self.cycle.keep_alive = False

    def on_body(self, body: bytes) -> None:
        if self._refused or self.cycle.response_complete:
            return
        super().on_body(body)
        self._connections.hold(self, self.held_bytes + len(body))

    def on_message_complete(self) -> None:
        if self._refused:
            return
        self._receiving = False
        self._received_by.clear()
        super().on_message_complete()
        if not self.cycle.response_complete:
            self.busy = True
            self._connections.mark_busy(self)

    def on_response_complete(self) -> None:
        is_last = not self.pipeline
        super().on_response_complete()
        if self._refused or not is_last:
            return
        self.busy = False
        self.idle_since = self.loop.time()
        if self._receiving:
            # The bytes of the next request were not read meanwhile.
            self._unset_keepalive_if_required()
            self._received_by.set(self._seconds)
        self._connections.hold(self, self.transport.get_write_buffer_size() if self._read_by.is_set else 0)
        self._connections.mark_idle(self)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._read_by.set(self._seconds)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._read_by.clear()
        if not (self.busy or self._receiving):
            self._connections.hold(self, 0)

    def timeout_keep_alive_handler(self) -> None:
        self._close("idle")

    def refuse(self, status: int, reason: str, sentence: str) -> None:
        of_an_answered_one = self.busy if self._in_head or self.cycle is None else self.cycle.response_started
        self._leave()
        self._connections.metrics.closed_connections.labels(reason).inc()
        if not of_an_answered_one:
            body = msgspec.json.encode({"Error": sentence})
            head = b"content-type: application/json\r\ncontent-length: %d\r\nconnection: close\r\n\r\n" % len(body)
            self.transport.write(STATUS_LINE[status] + head + body)
        if self.flow.write_paused:
            self.transport.abort()
        else:
            self.transport.close()

    def abort(self) -> None:
        self._leave()
        self.transport.abort()

    def _end_receiving(self) -> None:
        self._received_by.clear()
        # While a request before is answered, nothing is read.
        if not self.busy:
            self.refuse(408, "slow_request", f"the request was not complete within {self._seconds:g} s")

    def _close(self, reason: str) -> None:
        if not self._refused:
            self._connections.metrics.closed_connections.labels(reason).inc()
            self.abort()

    def _leave(self) -> None:
        self._refused = True
        self._received_by.clear()
        self._read_by.clear()
        self._unset_keepalive_if_required()
        self._connections.remove(self)
