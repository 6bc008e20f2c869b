"""The connections of all callers: their number, the memory they hold, and which one is closed when there are too many."""

import asyncio
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, Protocol

PROBES: Final = 32
"""Connections beyond the limit, when every other one is being answered; they may only GET, which is what probes do."""
_SWEEP_SECONDS: Final = 1.0
_GRACE_SECONDS: Final = 0.25
"""A younger connection may have sent a request that has not been read yet."""


@dataclass(frozen=True, slots=True)
class HttpLimits:
    """What callers may use.  `in_flight` is bytes of unanswered requests and unsent responses, over all connections.

    `receive_seconds` limits sending a request and receiving a response, not the time in between.
    """

    connections: int
    body: int
    in_flight: int
    receive_seconds: float
    idle_seconds: float


class Connection(Protocol):
    """The state of one connection; `held` is bytes, times are those of the event loop."""

    host: str
    held: int
    served: bool
    busy: bool
    begun: float | None
    idle_since: float
    suspect: float | None
    probes_only: bool

    def refuse(self, status: int, reason: str, sentence: str) -> None:
        """Respond with the sentence if that is possible, and close."""
        ...

    def unsent(self) -> int:
        """Bytes of responses that the caller has not received."""
        ...

    def abort(self) -> None:
        """Close at once; unsent bytes are lost."""
        ...


class ClosedCounter(Protocol):
    """Counts connections that were closed by the service, and TLS handshakes."""

    def tls_handshake(self, outcome: str) -> None:
        """One is done, or failed."""
        ...

    def closed_connection(self, reason: str) -> None:
        """One was closed for this reason."""
        ...


class NullCounter:
    """Counts nothing."""

    def closed_connection(self, reason: str) -> None:
        """See ClosedCounter."""

    def tls_handshake(self, outcome: str) -> None:
        """See ClosedCounter."""


@dataclass(slots=True)
class _Host:
    """The connections of one address; the idle ones in the order in which they became idle."""

    all: dict[Connection, None] = field(default_factory=dict)
    new: OrderedDict[Connection, None] = field(default_factory=OrderedDict)
    known: OrderedDict[Connection, None] = field(default_factory=OrderedDict)

    def mark_idle(self, connection: Connection) -> None:
        (self.known if connection.served else self.new)[connection] = None

    def mark_busy(self, connection: Connection) -> None:
        self.known.pop(connection, None)
        self.new.pop(connection, None)

    def eviction_candidate(self, before: float) -> Connection | None:
        """An idle connection since `before`: one without any request yet, else the one that has been idle for longest."""
        firsts = (next(iter(self.new), None), next(iter(self.known), None))
        return next((each for each in firsts if each is not None and each.idle_since <= before), None)


class Connections:
    """Every open connection.

    At the limit, the address with the most connections loses the one that has been idle for longest, so that a caller that opens
    many closes its own.  A connection whose request is in progress is never closed for that.
    """

    def __init__(self, limits: HttpLimits, counter: ClosedCounter) -> None:
        self.limits = limits
        self.in_flight = 0
        self._counter = counter
        self._hosts: dict[str, _Host] = {}
        self._count = 0
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return self._count

    def start(self) -> None:
        """Begin to sweep for callers that are too slow, until `stop`."""
        self._timer = asyncio.get_running_loop().call_later(_SWEEP_SECONDS, self._tick)

    def stop(self) -> None:
        """End the sweeps."""
        if self._timer is not None:
            self._timer.cancel()

    def count_closed(self, reason: str) -> None:
        """Count a connection that the service closes."""
        self._counter.closed_connection(reason)

    def count_handshake(self, outcome: str) -> None:
        """Count a TLS handshake: `done` or `failed`."""
        self._counter.tls_handshake(outcome)

    def opened(self, connection: Connection) -> None:
        """Add a new connection; at the limit, another one or this one is closed."""
        grace_began = connection.idle_since - _GRACE_SECONDS
        if self._count >= self.limits.connections and not self._evict(grace_began):
            if self._count >= self.limits.connections + PROBES and not self._evict(connection.idle_since):
                connection.refuse(503, "busy", "every connection is in use")
                return
            connection.probes_only = True
        host = self._hosts.setdefault(connection.host, _Host())
        host.all[connection] = None
        host.mark_idle(connection)
        self._count += 1

    def closed(self, connection: Connection) -> None:
        """The connection is gone, or going."""
        host = self._hosts.get(connection.host)
        if host is None or connection not in host.all:
            return
        self.in_flight -= connection.held
        connection.held = 0
        del host.all[connection]
        host.mark_busy(connection)
        self._count -= 1
        if not host.all:
            del self._hosts[connection.host]

    def mark_busy(self, connection: Connection) -> None:
        """A whole request has been received and is being answered."""
        host = self._hosts.get(connection.host)
        if host is not None:
            host.mark_busy(connection)

    def mark_idle(self, connection: Connection) -> None:
        """Everything has been answered; the next request may come."""
        host = self._hosts.get(connection.host)
        if host is not None and connection in host.all:
            host.mark_idle(connection)

    def record_held(self, connection: Connection, size: int) -> None:
        """Record the bytes held for this connection; over the limit, the connections with most bytes are refused."""
        self.in_flight += size - connection.held
        connection.held = size
        if self.in_flight > self.limits.in_flight:
            self._free_memory()

    def sweep(self, now: float) -> None:
        """Close the connections whose callers are too slow at this moment and were so at the sweep before."""
        for connection in tuple(self._each()):
            self._close_if_slow(connection, now)

    @property
    def crowded(self) -> bool:
        """Whether there are more connections than there should be."""
        return self._count > self.limits.connections

    def _evict(self, before: float) -> bool:
        """Close one that has been idle since `before`; False if there is none."""
        hosts = [host for host in self._hosts.values() if host.eviction_candidate(before) is not None]
        victim = max(hosts, key=lambda host: len(host.all)).eviction_candidate(before) if hosts else None
        if victim is None:
            return False
        self.count_closed("replaced")
        victim.abort()
        return True

    def _free_memory(self) -> None:
        def held(host: _Host) -> int:
            return sum(each.held for each in host.all)

        while self.in_flight > self.limits.in_flight and self._hosts:
            host = max(self._hosts.values(), key=held)
            max(host.all, key=lambda each: (not each.busy, each.held) if each.held else (False, 0)).refuse(
                503, "memory", "requests that are not answered yet take up all the memory there is for them"
            )

    def _tick(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(_SWEEP_SECONDS, self._tick)
        self.sweep(loop.time())

    def _each(self) -> Iterator[Connection]:
        for host in self._hosts.values():
            yield from host.all

    def _close_if_slow(self, connection: Connection, now: float) -> None:
        """Close the connection if its caller was too slow at two sweeps: data that has arrived is read between the two."""
        if connection.unsent():
            since, most, reason = connection.idle_since, self.limits.receive_seconds, "slow_reader"
        elif connection.busy:
            return
        elif connection.begun is not None:
            since, most, reason = connection.begun, self.limits.receive_seconds, "slow_request"
        else:
            since, most, reason = connection.idle_since, self.limits.idle_seconds, "idle"
            if connection.held:
                self.record_held(connection, 0)
        if now - since <= most:
            return
        if connection.suspect != since:
            connection.suspect = since
        elif reason == "slow_request":
            connection.refuse(408, reason, f"the request was not complete within {most:g} s")
        else:
            self.count_closed(reason)
            connection.abort()
