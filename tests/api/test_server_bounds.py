"""What callers can use of the server: connections, memory and time."""

import asyncio
import contextlib
import json
import subprocess
import sys
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

import pytest
from dra_extender.service.connection_limits import PROBES, ConnectionLimits, Connections
from dra_extender.telemetry.metrics import Metrics

from tests.support.api.serving import HEAD, PROBE, Peer, serve
from tests.support.turns import until_async

ECHO = json.dumps({"Pod": {}, "NodeNames": ["a"]}).encode()
BIND = json.dumps({"PodName": "p", "PodNamespace": "ns", "PodUID": "u1", "Node": "n1"}).encode()
MiB = 1024 * 1024


@pytest.mark.virtual_time
@pytest.mark.parametrize("sent", [b"POST /filter HT", HEAD % 100, HEAD % 100 + b'{"Pod"'])
async def test_a_request_that_is_not_sent_in_time_ends(sent: bytes) -> None:
    async with serve(receive_seconds=1) as server:
        peer = await server.peer()
        await peer.send(sent)
        status, body = await peer.answer()
        assert (status, json.loads(body)) == (408, {"Error": "the request was not complete within 1 s"})
        assert await peer.rest() == b""
        assert await server.probe() == b"ok"
        assert await server.metric("closed_connections_total", reason="slow_request") == 1


@pytest.mark.virtual_time
async def test_a_request_that_trickles_ends_as_well() -> None:
    """Each byte is in time, the request is not."""
    async with serve(receive_seconds=1) as server:
        peer = await server.peer()

        async def trickle() -> None:
            for byte in HEAD % 100000:
                await peer.send(bytes([byte]))
                await asyncio.sleep(0.1)

        sending = asyncio.create_task(trickle())
        assert (await peer.answer())[0] == 408
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)


@pytest.mark.virtual_time
async def test_waiting_for_an_answer_is_not_limited() -> None:
    """A bind waits for binding conditions for minutes."""
    async with serve(receive_seconds=1) as server:
        server.site.verbs.park = True
        peer = await server.peer()
        await peer.send(
            b"POST /bind HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
            % len(BIND)
            + BIND
        )
        await server.site.verbs.entered.wait()
        await asyncio.sleep(1000)
        assert server.site.verbs.hung_up is not None
        assert not server.site.verbs.hung_up.is_set()
        server.site.verbs.hung_up.set()
        assert await peer.answer() == (200, b'{"Error":""}')


@pytest.mark.virtual_time
async def test_an_idle_connection_is_kept_longer_than_kube_scheduler_keeps_it() -> None:
    async with serve(receive_seconds=1) as server:
        peer = await server.peer()
        for _ in range(2):
            await asyncio.sleep(100)
            await peer.send(PROBE)
            assert (await peer.answer())[1] == b"ok"
        assert await peer.rest(150) == b""
        assert await server.metric("closed_connections_total", reason="idle") == 1


@pytest.mark.virtual_time
async def test_a_request_behind_a_long_one_has_its_whole_time_after_it() -> None:
    async with serve(receive_seconds=1) as server:
        server.site.verbs.park = True
        peer = await server.peer()
        await peer.send(HEAD.replace(b"filter", b"bind") % len(BIND) + BIND + HEAD % len(ECHO))
        await server.site.verbs.entered.wait()
        await asyncio.sleep(100)
        assert server.site.verbs.hung_up is not None
        server.site.verbs.hung_up.set()
        assert await peer.answer() == (200, b'{"Error":""}')
        await asyncio.sleep(0.5)
        await peer.send(ECHO)
        assert await peer.answer() == (200, b'{"NodeNames":["a"]}')


async def test_unfinished_bodies_take_no_more_memory_than_there_is_for_them() -> None:
    limit = 8 * MiB
    async with serve(body_limit_bytes=2 * MiB, in_flight_bytes=limit) as server:
        peers = [await server.peer() for _ in range(40)]

        async def fill(peer: Peer) -> None:
            with contextlib.suppress(ConnectionError):
                await peer.send(HEAD % (2 * MiB) + b" " * MiB)

        sending = [asyncio.create_task(fill(peer)) for peer in peers]

        async def all_others_are_closed() -> bool:
            assert await server.metric("in_flight_bytes") <= limit
            return await server.metric("closed_connections_total", reason="memory") >= 32

        await until_async(all_others_are_closed)
        assert await server.metric("in_flight_bytes") <= limit
        assert await server.probe() == b"ok"
        honest = await server.peer()
        await honest.send(HEAD % len(ECHO) + ECHO)
        assert await honest.answer() == (200, b'{"NodeNames":["a"]}')
        for each in (*peers, honest):
            each.close()
        await asyncio.gather(*sending)
        await server.until_metric(0, "in_flight_bytes")


@pytest.mark.real_time(reason="the kernel's buffers fill in real time")
async def test_answers_that_nobody_takes_end_with_their_connection() -> None:
    names = [f"node-{number:06}" for number in range(60_000)]
    body = json.dumps({"Pod": {}, "NodeNames": names}).encode()
    async with serve(receive_seconds=1) as server:
        peer = await server.peer()
        peer.reader._limit = 1  # type: ignore[attr-defined]  # a caller that reads nothing
        for _ in range(8):
            await peer.send(HEAD % len(body) + body)
        await server.until_metric(1, "closed_connections_total", reason="slow_reader")
        assert await server.metric("in_flight_bytes") == 0
        peer.close()


async def test_requests_sent_ahead_are_limited() -> None:
    async with serve() as server:
        peer = await server.peer()
        await peer.send(PROBE * 5000)
        await peer.rest()
        assert await server.metric("closed_connections_total", reason="pipeline") == 1
        peer = await server.peer()
        await peer.send(PROBE * 10)
        for _ in range(10):
            assert await peer.answer() == (200, b"ok")


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"GET /livez HTTP/1.1\r\nX: " + b"x" * MiB, 431),
        (b"GET /livez HTTP/1.1\r\n" + b"X: y\r\n" * 100_000, 431),
        (b"GET /" + b"x" * MiB, 431),
        (
            b"POST /filter HTTP/1.1\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
            + b"1\r\n \r\n" * 200_000,
            413,
        ),
        (
            b"POST /filter HTTP/1.1\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
            b"1;x=" + b"x" * 2 * MiB,
            413,
        ),
    ],
    ids=["header", "headers", "path", "chunks", "extension"],
)
async def test_what_is_not_the_body_is_limited(sent: bytes, status: int) -> None:
    async with serve(body_limit_bytes=MiB // 2) as server:
        peer = await server.peer()
        sending = asyncio.create_task(peer.send(sent))
        rest = await peer.rest()
        assert not rest or rest.startswith((b"HTTP/1.1 %d " % status, b"HTTP/1.1 400 "))
        closed = [await server.metric("closed_connections_total", reason=each) for each in ("large_head", "large_body")]
        assert sum(closed) == 1 or rest.startswith(b"HTTP/1.1 4")
        await asyncio.gather(sending, return_exceptions=True)
        assert await server.probe() == b"ok"


SERVER = """
import asyncio, resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (1024, 1024))
import uvloop
from tests.support.api.serving import serve
from tests.support.turns import until_async
async def main():
    async with serve() as server:
        print(f"port {server.port}", flush=True)
        await asyncio.to_thread(sys.stdin.read)
with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
    runner.run(main())
"""


async def test_a_process_with_1024_files_answers_probes_beside_1100_idle_connections() -> None:
    """A connection that is in use goes on, new ones are taken, and nothing runs out of files."""
    process = subprocess.Popen(  # noqa: ASYNC220 - it returns at once
        [sys.executable, "-c", SERVER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=Path(__file__).parent.parent.parent,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    idle: list[Peer] = []
    try:
        while not (line := await asyncio.to_thread(process.stdout.readline)).startswith(b"port "):
            assert line
        port = int(line.split()[1])

        async def peer() -> Peer:
            async with asyncio.timeout(120):
                return Peer(*await asyncio.open_connection("127.0.0.1", port))

        idle.append(scheduler := await peer())
        for number in range(1100):
            idle.append(await peer())
            if number % 100 == 99:
                await scheduler.send(HEAD % len(ECHO) + ECHO)
                assert await scheduler.answer() == (200, b'{"NodeNames":["a"]}')
        for path in (b"/livez", b"/readyz", b"/metrics"):
            probe = await peer()
            await probe.send(b"GET %b HTTP/1.1\r\nHost: x\r\n\r\n" % path)
            assert (await probe.answer())[0] == 200
            probe.close()
        await scheduler.send(HEAD % len(ECHO) + ECHO)
        assert await scheduler.answer() == (200, b'{"NodeNames":["a"]}')
        assert process.poll() is None
    finally:
        for each in idle:
            each.close()
        process.stdin.close()
        process.wait(timeout=30)
        process.stdout.close()


@dataclass(eq=False)
class Fake:
    """A connection that only keeps account."""

    book: Connections
    host: str = "a"
    held_bytes: int = 0
    busy: bool = False
    idle_since: float = field(default_factory=count(1).__next__)
    probes_only: bool = False
    gone: str = ""

    def refuse(self, status: int, reason: str, sentence: str) -> None:
        self.gone = reason
        self.book.remove(self)

    def abort(self) -> None:
        self.refuse(0, "replaced", "")


def book(connections: int = 4, in_flight: int = 100) -> Connections:
    return Connections(ConnectionLimits(connections, 10, in_flight, 1.0), Metrics())


def opened(of: Connections, host: str, number: int = 1) -> list[Fake]:
    made = [Fake(of, host) for _ in range(number)]
    for each in made:
        of.add(each)
    return made


def test_the_host_with_most_connections_loses_the_one_that_has_waited_longest() -> None:
    of = book(8)
    few, many = opened(of, "few", 2), opened(of, "many", 6)
    opened(of, "few", 1)
    opened(of, "other", 2)
    assert [each.gone for each in few] == [""] * 2
    assert [each.gone for each in many] == ["replaced"] * 3 + [""] * 3
    assert len(of) == 8


def test_one_that_was_answered_before_goes_after_those_that_were_not() -> None:
    of = book(4)
    (kept,) = opened(of, "a")
    of.mark_busy(kept)
    of.mark_idle(kept)
    opened(of, "a", 20)
    assert not kept.gone


def test_a_connection_that_is_being_answered_stays_and_probes_get_through_all_the_same() -> None:
    of = book(4)
    busy = opened(of, "a", 4)
    for each in busy:
        of.mark_busy(each)
    for _ in range(PROBES):
        (probe,) = opened(of, "a")
        assert probe.probes_only
        of.mark_busy(probe)
    (refused,) = opened(of, "a")
    assert (refused.gone, len(of)) == ("busy", 4 + PROBES)
    assert not any(each.gone for each in busy)


def test_a_burst_closes_nothing_that_has_had_no_time_to_be_read() -> None:
    of = book(4)
    made = [Fake(of, idle_since=1.0) for _ in range(4 + PROBES)]
    for each in made:
        of.add(each)
    assert not any(each.gone for each in made)
    assert [each.probes_only for each in made] == [False] * 4 + [True] * PROBES
    of.add(Fake(of, idle_since=2.0))
    assert [each.gone for each in made[:2]] == ["replaced", ""]


def test_memory_is_taken_from_the_host_that_holds_most() -> None:
    of = book(in_flight=100)
    (victim,), attackers = opened(of, "victim"), opened(of, "attacker", 3)
    of.hold(victim, 30)
    for each in attackers:
        of.hold(each, 30)
    assert [each.gone for each in (victim, *attackers)] == ["", "memory", "", ""]
    of.hold(victim, 40)
    assert of.in_flight == 100
    assert not victim.gone
