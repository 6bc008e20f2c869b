"""Virtual time skips idle time alone, and never what callbacks, threads or sockets have to do."""

import asyncio
import socket
import subprocess
import sys
import threading

import pytest
from dra_extender.simulator.virtual_time import VirtualClock, VirtualClockLoop, running_virtual_loop


def test_an_idle_day_passes_at_once_and_timers_fire_in_their_order() -> None:
    fired: list[tuple[str, float]] = []

    async def wait(name: str, seconds: float) -> None:
        loop, due = asyncio.get_running_loop(), asyncio.Event()
        loop.call_later(seconds, due.set)
        await due.wait()
        fired.append((name, loop.time()))

    async def day() -> None:
        await asyncio.gather(wait("day", 86400.0), wait("hour", 3600.0), wait("second", 1.0))

    with asyncio.Runner(loop_factory=VirtualClockLoop) as runner:
        runner.run(day())
    assert fired == [("second", 1.0), ("hour", 3600.0), ("day", 86400.0)]


def test_no_time_passes_while_bytes_are_under_way_or_a_thread_works() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            writer.write(line)
        writer.close()

    async def ask() -> float:
        loop = running_virtual_loop()
        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        for _ in range(50):
            writer.write(b"?" * 1000 + b"\n")
            async with asyncio.timeout(0.001):
                await reader.readline()
        writer.close()
        await server.start_serving()
        server.close()
        began = threading.Event()
        loop.call_later(0.5, began.set)
        async with asyncio.timeout(0.001):
            await asyncio.to_thread(began.wait, 0.05)
        return loop.time()

    with asyncio.Runner(loop_factory=VirtualClockLoop) as runner:
        assert runner.run(ask()) == 0.0


def test_bytes_that_arrive_during_the_question_are_read_before_time_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bytes are under way when the loop looks for events, and have arrived when it asks how many are."""
    sender, receiver = socket.socketpair()
    receiver.setblocking(False)

    class Deliveries:
        """Delivers the bytes of the sender when a socket is asked for bytes under way, of which none are left then."""

        def ioctl(self, _fd: int, _request: int, _number: object) -> None:
            sender.send(b"x")

    async def receive() -> float:
        loop = running_virtual_loop()
        async with asyncio.timeout(0.001):
            await loop.sock_recv(receiver, 1)
        return loop.time()

    monkeypatch.setattr("dra_extender.simulator.virtual_time._FCNTL", Deliveries())
    with sender, receiver, asyncio.Runner(loop_factory=VirtualClockLoop) as runner:
        assert runner.run(receive()) == 0.0


def test_bytes_that_nobody_reads_delay_time_and_do_not_stop_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dra_extender.simulator.virtual_time._MOST_STEPS", 3)
    sender, receiver = socket.socketpair()

    async def wait() -> float:
        loop = running_virtual_loop()
        sender.setblocking(False)
        await loop.sock_sendall(sender, b"unread")
        loop.add_reader(sender, sender.recv, 1)
        due = asyncio.Event()
        loop.call_later(60, due.set)
        await due.wait()
        loop.remove_reader(sender)
        return loop.time()

    with sender, receiver, asyncio.Runner(loop_factory=VirtualClockLoop) as runner:
        assert runner.run(wait()) == 60.0


def test_a_search_that_reads_the_clock_until_its_time_is_up_ends() -> None:
    async def search() -> int:
        clock, readings = VirtualClock(running_virtual_loop()), 0
        end = clock.monotonic() + 4.0
        while clock.monotonic() < end:
            readings += 1
        return readings

    readings = []
    for _ in range(2):
        with asyncio.Runner(loop_factory=VirtualClockLoop) as runner:
            readings.append(runner.run(search()))
    assert readings[0] == readings[1] > 0


WITHOUT_TERMINALS = """
import asyncio, sys
sys.modules["fcntl"] = sys.modules["termios"] = None
from dra_extender.simulator.virtual_time import VirtualClockLoop, running_virtual_loop

async def echo(reader, writer):
    writer.write(await reader.readline())
    writer.close()

async def ask():
    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    writer.write(b"?" * 1000 + b"\\n")
    async with asyncio.timeout(0.001):
        await reader.readline()
    writer.close()
    server.close()
    await asyncio.sleep(3600)
    return running_virtual_loop().time()

with asyncio.Runner(loop_factory=VirtualClockLoop) as runner:
    print(runner.run(ask()))
"""
"""A program on a system that does not tell how many bytes of a socket are under way, such as Windows."""


def test_time_waits_for_bytes_where_the_system_does_not_tell_of_them() -> None:
    ended = subprocess.run([sys.executable, "-c", WITHOUT_TERMINALS], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout) == (0, "3600.0\n"), ended.stderr


async def test_clock_refuses_a_loop_with_real_time() -> None:
    with pytest.raises(TypeError, match="expected the event loop to be a VirtualClockLoop"):
        running_virtual_loop()
