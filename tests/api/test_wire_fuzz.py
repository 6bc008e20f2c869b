"""Random callers on raw sockets: each is answered in the terms of HTTP or not at all, and everybody else is served meanwhile."""

import asyncio
import contextlib
import json
import logging
import re
from collections.abc import Callable
from random import Random
from typing import Any, Final

import pytest

from tests.support.api.serving import HEAD, PROBE, Peer, Server, serve

CALLERS: Final = 250
SEEDS: Final = (0, *(pytest.param(seed, marks=pytest.mark.nightly) for seed in range(1, 30)))
PATIENCE: Final = 1.0
"""Seconds that the server waits for a request, and callers for the end of an answer."""
AT_ONCE: Final = 50
IN_FLIGHT: Final = 2_000_000
BODY: Final = 200_000
ALLOWED: Final = {200, 400, 404, 405, 408, 413, 415, 431, 503}
ECHO: Final = json.dumps({"Pod": {}, "NodeNames": ["a"]}).encode()
STATUS: Final = re.compile(rb"HTTP/1\.1 (\d{3}) ")
PATHS: Final = (
    b"/filter",
    b"/prioritize",
    b"/bind",
    b"/preempt",
    b"/livez",
    b"/readyz",
    b"/version",
    b"/x",
    b"*",
    b"http://x/filter",
    b"/%00",
    b"/\xff",
    b"//",
    b"/filter?x=%zz",
)
METHODS: Final = (b"GET", b"POST", b"HEAD", b"PUT", b"OPTIONS", b"CONNECT", b"PRI", b"get", b"")

Part = bytes | float
"""What is sent, or how many seconds nothing is."""
Caller = Callable[[Random], list[Part]]


def honest(random: Random) -> list[Part]:
    return [(HEAD % len(ECHO) + ECHO) * random.randint(1, 3)]


def sent_ahead(random: Random) -> list[Part]:
    return [b"".join(random.choice((PROBE, HEAD % len(ECHO) + ECHO)) for _ in range(random.randint(2, 400)))]


def noise(random: Random) -> list[Part]:
    return [random.randbytes(random.randint(1, 2000)) for _ in range(random.randint(1, 4))]


def mutated(random: Random) -> list[Part]:
    request = bytearray(HEAD % len(ECHO) + ECHO)
    for _ in range(random.randint(1, 6)):
        place = random.randrange(len(request))
        match random.randrange(3):
            case 0:
                request[place] = random.randrange(256)
            case 1:
                del request[place]
            case _:
                request[place:place] = random.choice((b"\r\n", b"\x00", b":", b" " * 500, random.randbytes(3)))
    return [bytes(request)]


def odd_line(random: Random) -> list[Part]:
    version = random.choice((b"HTTP/1.1", b"HTTP/1.0", b"HTTP/2.0", b"HTTP/9", b""))
    head = (
        random.choice(METHODS)
        + b" "
        + random.choice(PATHS)
        + b" "
        + version
        + b"\r\nHost: x\r\nContent-Type: application/json\r\n"
    )
    extra = random.choice(
        (
            b"",
            b"Connection: close\r\n",
            b"Expect: 100-continue\r\n",
            b"Connection: upgrade\r\nUpgrade: h2c\r\n",
            b"Connection: Upgrade\r\nUpgrade: websocket\r\n",
        )
    )
    return [head + extra + b"Content-Length: %d\r\n\r\n" % len(ECHO) + ECHO]


def large_head(random: Random) -> list[Part]:
    line = random.choice(
        (
            b"X: " + b"x" * 5000,
            b"X" * 5000 + b": y",
            b"Cookie: a=b",
            b"Content-Type: a/b",
            b"Transfer-Encoding: identity",
        )
    )
    return [
        b"POST /filter HTTP/1.1\r\n",
        *[(line + b"\r\n") * random.randint(1, 40) for _ in range(random.randint(1, 20))],
        b"\r\n",
    ]


def chunked(random: Random) -> list[Part]:
    parts: list[Part] = [
        b"POST /filter HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
    ]
    rest = ECHO + b" " * random.choice((0, 100, 20_000, 300_000))
    while rest:
        size = random.choice((1, 1, 7, 1000, 65_536))
        piece, rest = rest[:size], rest[size:]
        extension = random.choice((b"", b"", b";a=b", b';a="' + b"x" * 300 + b'"'))
        parts.append(b"%x%b\r\n%b\r\n" % (len(piece), extension, piece))
        if len(parts) > 300:
            break
    ends = (
        b"0\r\n\r\n",
        b"0\r\nTrailer: x\r\n\r\n",
        b"0\r\n" + b"T: x\r\n" * 20_000 + b"\r\n",
        b"-1\r\n",
        b"fffffffffffffffff\r\n",
        b"",
    )
    return [*parts, random.choice(ends)]


def lying(random: Random) -> list[Part]:
    length = random.choice((0, 1, len(ECHO) - 1, len(ECHO) + 1, BODY, BODY + 1, 10**9, 2**63, 2**64, -1))
    more = random.choice((b"", b"Content-Length: 3\r\n", b"Transfer-Encoding: chunked\r\n"))
    return [
        b"POST /filter HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n%b\r\n"
        % (length, more)
        + ECHO,
        b" " * random.choice((0, 1, 100_000, 500_000)),
    ]


def slow(random: Random) -> list[Part]:
    request = HEAD % len(ECHO) + ECHO
    cut = random.randrange(1, len(request))
    return [request[:cut], random.choice((0.01, 0.1, PATIENCE * 0.6)), request[cut:]]


def strange_body(random: Random) -> list[Part]:
    def value(depth: int) -> Any:
        keys = (
            "Pod",
            "NodeNames",
            "Nodes",
            "items",
            "metadata",
            "name",
            "uid",
            "spec",
            "Pods",
            "UID",
            "NodeNameToMetaVictims",
            "PodName",
            "Node",
            "é\x00",
        )
        match random.randrange(8 if depth else 5):
            case 0:
                return random.choice((None, True, 0, -1, 1e300, 10**30))
            case 1 | 2:
                return random.choice(("", "a", "x" * 300, "\ud7ff", "²"))
            case 3 | 4:
                return random.choice(([], {}))
            case 5:
                return [value(depth - 1) for _ in range(random.randint(1, 5))]
            case _:
                return {random.choice(keys): value(depth - 1) for _ in range(random.randint(1, 6))}

    body = json.dumps(
        {"Pod": value(4), random.choice(("NodeNames", "Nodes", "NodeNameToMetaVictims", "PodUID")): value(4)}
    ).encode()
    return [
        b"POST "
        + random.choice(PATHS[:4])
        + b" HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body)
        + body
    ]


CALLS: Final[tuple[Caller, ...]] = (
    honest,
    sent_ahead,
    noise,
    mutated,
    odd_line,
    large_head,
    chunked,
    lying,
    slow,
    strange_body,
)


async def call(server: Server, random: Random) -> tuple[str, bytes]:
    """One caller from its first byte to the end of its connection: who it was, and what it was answered."""
    kind = random.choice(CALLS)
    peer = await server.peer()
    answered = asyncio.create_task(_all_of(peer))
    with contextlib.suppress(OSError):
        for part in kind(random):
            if isinstance(part, float):
                await asyncio.sleep(part)
            else:
                await peer.send(part)
        match random.randrange(3):
            case 0:
                peer.writer.write_eof()
            case 1 if kind is not honest:
                peer.close()
            case _:
                pass
    try:
        async with asyncio.timeout(PATIENCE):
            return kind.__name__, await asyncio.shield(answered)
    except TimeoutError:
        # It is kept alive, or its end is still awaited.
        peer.close()
        return kind.__name__, await answered


async def _all_of(peer: Peer) -> bytes:
    data = b""
    with contextlib.suppress(OSError):
        while piece := await peer.reader.read(65_536):
            data += piece
    return data


@pytest.mark.parametrize("seed", SEEDS)
async def test_random_callers_get_defined_answers_and_disturb_nobody(
    seed: int, caplog: pytest.LogCaptureFixture
) -> None:
    random = Random(seed)
    unexpected: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: unexpected.append(context))
    async with serve(
        receive_seconds=PATIENCE, body_limit_bytes=BODY, in_flight_bytes=IN_FLIGHT, connections=AT_ONCE // 2
    ) as server:
        over = asyncio.Event()

        async def watch() -> int:
            seen = 0
            while not over.is_set():
                # A kubelet has another address than the crowd, of which the server closes idle connections.
                assert await server.probe("127.0.0.2") == b"ok"
                assert await server.metric("in_flight_bytes") <= IN_FLIGHT
                seen += 1
                await asyncio.sleep(0.01)
            return seen

        watching = asyncio.create_task(watch())
        turn = asyncio.Semaphore(AT_ONCE)

        async def one(number: int) -> tuple[str, bytes]:
            async with turn:
                return await call(server, Random(seed * 1_000_000 + number))

        answers = await asyncio.gather(*(one(number) for number in range(CALLERS)))
        over.set()
        assert await watching > 0
        peer = await server.peer()
        await peer.send(HEAD % len(ECHO) + ECHO)
        assert await peer.answer() == (200, b'{"NodeNames":["a"]}')
        random.shuffle(server.peers)
        for each in server.peers:
            each.close()
        await server.until_metric(0, "connections")
        await server.until_metric(0, "in_flight_bytes")
    for kind, answer in answers:
        statuses = {int(each) for each in STATUS.findall(answer)}
        assert statuses <= ALLOWED | {100}, (kind, statuses, answer[:300])
        assert b"internal error" not in answer, (kind, answer[:300])
    assert sum(answer.startswith(b"HTTP/1.1 200") for kind, answer in answers if kind == "honest")
    assert not unexpected
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]
