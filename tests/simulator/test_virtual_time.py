"""Virtual time skips idle time alone, and never what callbacks, threads or sockets have to do."""

import asyncio
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


async def test_clock_refuses_a_loop_with_real_time() -> None:
    with pytest.raises(TypeError, match="expected the event loop to be a VirtualClockLoop"):
        running_virtual_loop()
