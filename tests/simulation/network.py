"""A network in memory: connections between simulated processes, at the seam at which asyncio meets sockets.

Bytes of one direction of a connection arrive in their order; how long each piece takes, and where pieces are divided, is up to the
seed, so that connections overtake each other.  Nothing here knows what the bytes say.
"""

import asyncio
import errno
import math
import os
import random
import socket
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, Final, Self, cast

from tests.simulation.loop import Process, SimulationLoop

Address = tuple[str, int]
ProtocolFactory = Callable[[], asyncio.BaseProtocol]

_EPHEMERAL: Final = 32_768
_KERNEL_BYTES: Final = 256 * 1024
"""Bytes that the kernels of both sides take before a transport has to keep them."""
_HIGH_WATER: Final = 64 * 1024
_KEEPALIVE_SECONDS: Final = 60.0
"""30 s of idleness and 3 probes 10 s apart: what a connection with keepalive needs to notice a host that is gone."""
_RETRANSMIT_SECONDS: Final = 924.0
_CONNECT_SECONDS: Final = 127.0
"""Linux gives up unanswered bytes and unanswered connection attempts after these times."""
_DIVIDE: Final = 0.05
"""Share of pieces that arrive in two."""


class Link:
    """How bytes get from one host to another."""

    __slots__ = ("blocked", "longest", "rate", "shortest")

    def __init__(self, shortest: float, longest: float) -> None:
        """`shortest` and `longest`: seconds that a piece is on its way; `rate`: bytes a second of one connection."""
        self.shortest = shortest
        self.longest = longest
        self.rate = math.inf
        self.blocked = False


class SimulatedSocket:
    """What code sees of a socket that it makes itself: an address, options, and whether it listens or is connected."""

    def __init__(self, family: int = -1, type: int = -1, proto: int = 0, network: "Network | None" = None) -> None:  # noqa: A002 - as in socket
        self.family = socket.AF_INET if family == -1 else family
        self.type = socket.SOCK_STREAM if type == -1 else type
        self.proto = proto
        self.keepalive = False
        self.transport: SimulatedTransport | None = None
        self._network = network or running_network()
        self._name: Address = ("0.0.0.0", 0)  # noqa: S104 - not bound
        self._listener: Listener | None = None
        if self.family == socket.AF_INET6:
            raise OSError(errno.EAFNOSUPPORT, os.strerror(errno.EAFNOSUPPORT))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def setsockopt(self, level: int, option: int, value: Any) -> None:
        if (level, option) == (socket.SOL_SOCKET, socket.SO_KEEPALIVE):
            self.keepalive = bool(value)
            if self.transport is not None:
                self.transport.keepalive = self.keepalive

    def setblocking(self, blocking: bool) -> None:
        """It never blocks."""

    def bind(self, address: Address) -> None:
        self._name = (self._network.loop.current.address, address[1] or self._network.free_port())

    def listen(self, backlog: int = 0) -> None:
        self._listener = self._network.listen(self._name)

    def getsockname(self) -> Address:
        return self._name if self.transport is None else self.transport.local

    def getpeername(self) -> Address:
        if self.transport is None:
            raise OSError(errno.ENOTCONN, os.strerror(errno.ENOTCONN))
        return self.transport.remote

    def fileno(self) -> int:
        return -1

    def close(self) -> None:
        if self._listener is not None:
            self._network.stop_listening(self._name, self._listener)
        if self.transport is not None and not self.transport.attached:
            self.transport.abort()


def _reset() -> OSError:
    return ConnectionResetError(errno.ECONNRESET, os.strerror(errno.ECONNRESET))


class Listener:
    """A port that accepts connections; those that come before `factory` is set wait."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self.factory: ProtocolFactory | None = None
        self.waiting: list[SimulatedTransport] = []

    def accept(self, transport: "SimulatedTransport") -> None:
        if self.factory is None:
            self.waiting.append(transport)
        else:
            transport.attach(self.factory())


class SimulatedServer(asyncio.AbstractServer):
    """What `create_server` returns."""

    def __init__(self, made: SimulatedSocket) -> None:
        self.sockets = [made]

    def close(self) -> None:
        for each in self.sockets:
            each.close()
        self.sockets = []

    def is_serving(self) -> bool:
        return bool(self.sockets)

    def get_loop(self) -> asyncio.AbstractEventLoop:
        return asyncio.get_running_loop()

    async def start_serving(self) -> None:
        """It serves already."""

    async def serve_forever(self) -> None:
        await asyncio.Event().wait()

    async def wait_closed(self) -> None:
        """Nothing is left to wait for."""


class SimulatedTransport(asyncio.Transport):
    """One end of a connection.

    `vanished`: the other host is gone without a word, or this one is for it; what is sent is lost.
    """

    peer: "SimulatedTransport"

    def __init__(self, network: "Network", process: Process, local: Address, remote: Address, number: int) -> None:
        super().__init__()
        self.process = process
        self.local = local
        self.remote = remote
        self.number = number
        self.attached = False
        self.vanished = False
        self.keepalive = False
        self.waiting_for_reader: deque[bytes | None] = deque()
        self.on_way = 0
        self._network = network
        self._loop = network.loop
        self._random = random.Random(f"connection {network.seed} {number} {local < remote}")
        self._protocol: asyncio.BaseProtocol | None = None
        self._arrives = 0.0
        self._reading = True
        self._closing = False
        self._lost = False
        self._end_sent = False
        self._write_paused = False
        self._high, self._low = _HIGH_WATER, _HIGH_WATER // 4
        self._giving_up: asyncio.TimerHandle | None = None
        self._socket = SimulatedSocket(network=network)
        self._socket.transport = self

    def attach(self, protocol: asyncio.BaseProtocol) -> None:
        """Give this end its protocol; what has arrived is delivered to it."""
        self._protocol = protocol
        self.attached = True
        protocol.connection_made(self)
        self._deliver()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        known = {"peername": self.remote, "sockname": self.local, "socket": self._socket}
        return known.get(name, default)

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol

    def get_protocol(self) -> asyncio.BaseProtocol:
        assert self._protocol is not None
        return self._protocol

    def is_closing(self) -> bool:
        # The streams of a loop that is closed have nothing left to end, whenever they are freed.
        return self._closing or self._loop.is_closed()

    def is_reading(self) -> bool:
        return self._reading and not self._closing

    def pause_reading(self) -> None:
        self._reading = False

    def resume_reading(self) -> None:
        if not self._reading and not self._closing:
            self._reading = True
            self._loop.call_soon(self._deliver, context=self.process.context)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high = _HIGH_WATER if high is None else high
        self._low = self._high // 4 if low is None else low

    def get_write_buffer_limits(self) -> tuple[int, int]:
        return self._low, self._high

    def get_write_buffer_size(self) -> int:
        return max(0, self.on_way - _KERNEL_BYTES)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if data and not self._lost and not self._end_sent and self.process.alive:
            self._send(bytes(data))
            if self.get_write_buffer_size() > self._high and not self._write_paused:
                self._write_paused = True
                cast("asyncio.Protocol", self._protocol).pause_writing()

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        self.write(b"".join(list_of_data))

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        if not self._end_sent and not self._lost:
            self._end_sent = True
            self._send(None)

    def close(self) -> None:
        """Send what is written, then end."""
        if not self._closing:
            self._closing = True
            self.write_eof()
            self._loop.call_soon(self._lose, None, context=self.process.context)

    def abort(self) -> None:
        """End at once; the other side sees a reset."""
        self._closing = True
        self.reset_peer()
        self._loop.call_soon(self._lose, None, context=self.process.context)

    def reset_peer(self) -> None:
        """Have the other side see a reset after what is on its way."""
        self._end_sent = True
        if not self.vanished:
            self._after_delay(self.peer.fail, _reset())

    def fail(self, problem: OSError) -> None:
        """The connection is broken; the protocol learns of it."""
        if not self._lost:
            self._closing = True
            self._lose(problem)

    def vanish(self) -> None:
        """From now on nothing arrives at the other side, which learns nothing of that unless it sends or probes."""
        self.vanished = self.peer.vanished = True
        self.peer.watch_silence()

    def watch_silence(self) -> None:
        """Give up in time when nothing comes from the other host: by keepalive, or because nobody acknowledges bytes."""
        if self._giving_up is None and (self.on_way or self.keepalive):
            seconds = _RETRANSMIT_SECONDS if self.on_way else _KEEPALIVE_SECONDS
            problem = TimeoutError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT))
            self._giving_up = self._loop.call_later(seconds, self.fail, problem, context=self.process.context)

    def end_silence(self) -> None:
        """The other host can be reached again."""
        if self._giving_up is not None and not self.vanished:
            self._giving_up.cancel()
            self._giving_up = None

    def _send(self, data: bytes | None) -> None:
        size = 0 if data is None else len(data)
        if data is not None:
            self._network.on_send(self, data)
        self.on_way += size
        if self.vanished:
            if self._network.answers(self.remote[0], self.peer.process):
                # The host is back, and knows nothing of the connection.
                self._after_delay(self.fail, _reset())
            else:
                self.watch_silence()
            return
        if data is not None and size > 1 and self._random.random() < _DIVIDE:
            cut = self._random.randrange(1, size)
            self._after_delay(self.peer.arrive, data[:cut])
            data = data[cut:]
        self._after_delay(self.peer.arrive, data)

    def _after_delay(self, call: Callable[[Any], None], what: Any) -> None:
        link = self._network.link(self.local[0], self.remote[0])
        seconds = link.shortest + (link.longest - link.shortest) * self._random.random()
        size = len(what) if isinstance(what, bytes) else 0
        self._arrives = max(self._arrives, self._loop.time() + seconds) + size / link.rate
        owner = self.process if call == self.fail else self.peer.process
        self._network.carry(link, self._arrives, call, what, owner)

    def arrive(self, data: bytes | None) -> None:
        """Take a piece that has come over the network; None is the end."""
        if self._lost or self.vanished:
            if not self.vanished and data:
                self.reset_peer()
            return
        self.waiting_for_reader.append(data)
        if self._reading and self.attached:
            self._deliver()

    def _deliver(self) -> None:
        while self.waiting_for_reader and self._reading and not self._closing:
            data = self.waiting_for_reader.popleft()
            protocol = cast("asyncio.Protocol", self._protocol)
            self._network.delivered(self, data)
            if data is None:
                if not protocol.eof_received():
                    self.close()
                return
            self.peer.acknowledged(len(data))
            protocol.data_received(data)

    def acknowledged(self, size: int) -> None:
        self.on_way -= size
        if self._write_paused and self.get_write_buffer_size() <= self._low:
            self._write_paused = False
            protocol = cast("asyncio.Protocol", self._protocol)
            self._loop.call_soon(protocol.resume_writing, context=self.process.context)

    def _lose(self, problem: Exception | None) -> None:
        if self._lost:
            return
        self._lost = True
        if self._giving_up is not None:
            self._giving_up.cancel()
        self._network.forget(self)
        if self._protocol is not None:
            self._protocol.connection_lost(problem)


class Network:
    """All hosts, their listeners and connections."""

    def __init__(self, loop: SimulationLoop, seed: int) -> None:
        self.loop = loop
        self.seed = seed
        self.shortest, self.longest = 0.0002, 0.003
        self.transports: dict[int, SimulatedTransport] = {}
        self.on_send: Callable[[SimulatedTransport, bytes], None] = lambda transport, data: None
        """Called with everything that a process hands to a connection."""
        self.on_deliver: Callable[[SimulatedTransport, bytes], None] = lambda transport, data: None
        """Called with everything that a connection hands to a process."""
        self.routes: dict[Address, Callable[[], Address | None]] = {}
        """Where connections to a virtual address go when they are made; None: nowhere."""
        self._listeners: dict[Address, Listener] = {}
        self._links: dict[tuple[str, str], Link] = {}
        self._held: list[tuple[Link, Callable[[], None]]] = []
        self._hosts: dict[str, Process] = {}
        self._down: set[str] = set()
        self._port = _EPHEMERAL
        self._connections = 0

    def host(self, process: Process) -> None:
        """Make the process reachable; when it ends, its listeners and connections end."""
        self._hosts[process.address] = process
        self._down.discard(process.address)
        process.at_end.append(lambda: self._end(process))

    def lose_host(self, process: Process) -> None:
        """End the process without a word to those that are connected with it."""
        self._down.add(process.address)
        process.kill()

    def answers(self, address: str, before: Process) -> bool:
        """Whether another process than `before` runs at the address by now."""
        found = self._hosts.get(address)
        return found is not None and found is not before and found.alive

    def link(self, source: str, target: str) -> Link:
        """How bytes get from one address to another."""
        found = self._links.get((source, target))
        if found is None:
            found = self._links[source, target] = Link(self.shortest, self.longest)
        return found

    def forget_link(self, source: str, target: str) -> None:
        """Have later bytes take their usual time."""
        link = self.link(source, target)
        link.shortest, link.longest, link.rate = self.shortest, self.longest, math.inf

    def heal(self) -> None:
        """Have every link work as usual."""
        for source, target in list(self._links):
            self.block(source, target, blocked=False)
            self.forget_link(source, target)

    def block(self, source: str, target: str, *, blocked: bool) -> None:
        """Keep back, or let go, everything in this direction: TCP sends it again until it arrives."""
        link = self.link(source, target)
        link.blocked = blocked
        for end in self._ends():
            if {end.local[0], end.remote[0]} == {source, target}:
                (end.watch_silence if blocked else end.end_silence)()
        if not blocked:
            held, self._held = self._held, []
            for place, call in held:
                if place is link:
                    call()
                else:
                    self._held.append((place, call))

    def cut(self, number: int) -> None:
        """Reset a connection at both ends."""
        transport = self.transports.get(number)
        if transport is not None:
            for end in (transport, transport.peer):
                self.loop.call_soon(end.fail, _reset(), context=end.process.context)

    def carry(self, link: Link, when: float, call: Callable[[Any], None], what: Any, owner: Process) -> None:
        """Have something arrive at this time, or once the link is free."""
        if link.blocked:
            self._held.append((link, lambda: self._again(call, what, owner)))
        else:
            self.loop.call_at(when, call, what, context=owner.context)

    def _again(self, call: Callable[[Any], None], what: Any, owner: Process) -> None:
        self.loop.call_later(self.shortest, call, what, context=owner.context)

    def delivered(self, transport: SimulatedTransport, data: bytes | None) -> None:
        """Note what a process is given."""
        head = b"%d %s:%d " % (transport.number, transport.local[0].encode(), transport.local[1])
        self.loop.note(head + (b"EOF" if data is None else data))
        if data is not None:
            self.on_deliver(transport, data)

    def free_port(self) -> int:
        """A port that nobody has."""
        self._port += 1
        return self._port

    def listen(self, name: Address) -> Listener:
        """Accept connections here."""
        if name in self._listeners:
            raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))
        listener = self._listeners[name] = Listener(self.loop.current)
        return listener

    def stop_listening(self, name: Address, listener: Listener) -> None:
        """Accept none any more."""
        if self._listeners.get(name) is listener:
            del self._listeners[name]
            for each in listener.waiting:
                each.abort()

    def serve(self, name: Address, factory: ProtocolFactory) -> None:
        """Give connections to this port protocols."""
        listener = self._listeners[name]
        listener.factory = factory
        for each in listener.waiting:
            each.attach(factory())
        listener.waiting.clear()

    async def connect(self, address: Address) -> SimulatedTransport:
        """Open a connection from the process that runs; its end has no protocol yet."""
        process = self.loop.current
        found = self.routes[address]() if address in self.routes else address
        if found is None:
            raise ConnectionRefusedError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED))
        address = found
        await asyncio.sleep(self._trip(process.address, address[0]))
        listener = self._listeners.get(address)
        if address[0] in self._down or self._is_blocked(process.address, address[0]):
            await asyncio.sleep(_CONNECT_SECONDS)
            raise TimeoutError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT))
        if listener is None:
            raise ConnectionRefusedError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED))
        self._connections += 1
        local = (process.address, self.free_port())
        client = SimulatedTransport(self, process, local, address, self._connections)
        server = SimulatedTransport(self, listener.process, address, local, self._connections)
        client.peer, server.peer = server, client
        self.transports[client.number] = client
        self.loop.call_soon(listener.accept, server, context=listener.process.context)
        return client

    def forget(self, transport: SimulatedTransport) -> None:
        """The connection has ended on one side."""
        self.transports.pop(transport.number, None)

    def _trip(self, source: str, target: str) -> float:
        there, back = self.link(source, target), self.link(target, source)
        return self.loop.random.uniform(there.shortest + back.shortest, there.longest + back.longest)

    def _is_blocked(self, source: str, target: str) -> bool:
        return self.link(source, target).blocked or self.link(target, source).blocked

    def _end(self, process: Process) -> None:
        if self._hosts.get(process.address) is process:
            del self._hosts[process.address]
        for name in [name for name, each in self._listeners.items() if each.process is process]:
            del self._listeners[name]
        for end in self._ends():
            if end.process is process:
                if process.address in self._down:
                    end.vanish()
                else:
                    end.reset_peer()

    def _ends(self) -> list[SimulatedTransport]:
        return [end for each in self.transports.values() for end in (each, each.peer)]


class NetworkedLoop(SimulationLoop):
    """A SimulationLoop whose connections go over a Network."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.network = Network(self, seed)

    async def getaddrinfo(self, host: Any, port: Any, **_: Any) -> list[Any]:
        return address_info(host, port)

    async def sock_connect(self, sock: Any, address: Any) -> None:
        transport = await self.network.connect((address[0], address[1]))
        transport.keepalive = sock.keepalive
        sock.transport = transport

    async def create_connection(
        self, protocol_factory: ProtocolFactory, host: Any = None, port: Any = None, *, sock: Any = None, **_: Any
    ) -> tuple[asyncio.Transport, Any]:
        transport = await self.network.connect((host, port)) if sock is None else sock.transport
        protocol = protocol_factory()
        transport.attach(protocol)
        return transport, protocol

    async def create_server(  # type: ignore[override]  # typeshed lists a dozen options
        self, protocol_factory: ProtocolFactory, host: Any = None, port: Any = None, *, sock: Any = None, **_: Any
    ) -> SimulatedServer:
        if sock is None:
            sock = SimulatedSocket()
            sock.bind((host, port))
            sock.listen()
        self.network.serve(sock.getsockname(), protocol_factory)
        return SimulatedServer(sock)


def address_info(host: Any, port: Any, *_: Any, **__: Any) -> list[Any]:
    """As `socket.getaddrinfo`, for addresses; there are no names."""
    return [(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (host, port))]


def running_network() -> Network:
    """The network of the loop that runs."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, NetworkedLoop)
    return loop.network
