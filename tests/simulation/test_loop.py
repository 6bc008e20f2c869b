import asyncio
import os
import random
import signal
import time
import uuid
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from tests.simulation.environment import START, simulated
from tests.simulation.loop import NothingLeftError, Process, SimulationLoop
from tests.simulation.network import NetworkedLoop


def run(loop: SimulationLoop, work: Coroutine[Any, Any, Any]) -> Any:
    """Run in the main process; what is left is abandoned."""
    try:
        return loop.run_until_complete(loop.main.start(work))
    finally:
        loop.abandon()


def ticking(loop: SimulationLoop, ticks: list[str], seconds: float = 1.0) -> Callable[[Process], None]:
    """Have a process note its name every second."""

    async def tick() -> None:
        while True:
            await asyncio.sleep(seconds)
            ticks.append(f"{loop.current.name} {loop.time():g}")

    return lambda process: (process.start(tick()), None)[1]


def test_time_passes_only_while_nothing_is_ready() -> None:
    loop = SimulationLoop(1)

    async def work() -> float:
        for _ in range(1000):
            await asyncio.sleep(0)
        assert loop.time() == 0
        await asyncio.sleep(3600)
        return loop.time()

    assert run(loop, work()) == 3600


def test_callbacks_of_one_process_run_in_their_order_whatever_the_seed() -> None:
    for seed in range(20):
        loop, seen = SimulationLoop(seed), list[int]()

        async def work(loop: SimulationLoop = loop, seen: list[int] = seen) -> None:
            for number in range(10):
                loop.call_soon(seen.append, number)
                loop.call_later(1, seen.append, number + 10)
            await asyncio.sleep(2)

        run(loop, work())
        assert seen == list(range(20))


def test_the_seed_decides_which_of_two_processes_is_first() -> None:
    def order(seed: int) -> tuple[str, ...]:
        loop, ticks = SimulationLoop(seed), list[str]()
        for name in "ab":
            ticking(loop, ticks)(loop.process(name, name))
        run(loop, asyncio.sleep(8.5))
        return tuple(ticks)

    orders = {order(seed) for seed in range(10)}
    assert len(orders) > 1
    assert order(3) == order(3)


def test_a_killed_process_runs_nothing_any_more() -> None:
    loop, ticks = SimulationLoop(1), list[str]()
    process = loop.process("a", "a")
    ticking(loop, ticks)(process)

    async def work() -> None:
        await asyncio.sleep(2.5)
        process.kill()
        await asyncio.sleep(5)

    run(loop, work())
    assert ticks == ["a 1", "a 2"]


def test_a_paused_process_goes_on_later_and_its_clock_has_gone_on_meanwhile() -> None:
    loop, ticks = SimulationLoop(1), list[str]()
    process = loop.process("a", "a")
    ticking(loop, ticks)(process)

    async def work() -> None:
        await asyncio.sleep(1.5)
        process.paused = True
        await asyncio.sleep(20)
        process.paused = False
        await asyncio.sleep(1.2)

    run(loop, work())
    assert ticks == ["a 1", "a 21.5", "a 22.5"]


def test_a_process_can_be_paused_before_any_of_its_callbacks() -> None:
    """So that a fault meets every await."""
    ends = set[int]()
    for steps in range(12):
        loop, done = SimulationLoop(1), list[int]()
        process = loop.process("a", "a")

        async def work(done: list[int] = done) -> None:
            for number in range(10):
                await asyncio.sleep(0)
                done.append(number)

        process.start(work())
        process.at_step(steps, process.kill)
        run(loop, asyncio.sleep(1))
        ends.add(len(done))
    assert ends == set(range(11))


def test_threads_are_callbacks_that_end_in_any_order() -> None:
    def order(seed: int) -> tuple[int, ...]:
        loop, seen = SimulationLoop(seed), list[int]()

        async def work() -> None:
            await asyncio.gather(*(asyncio.to_thread(seen.append, number) for number in range(3)))

        run(loop, work())
        return tuple(seen)

    assert len({order(seed) for seed in range(20)}) > 1


def test_a_thread_that_fails_fails_who_waits_for_it() -> None:
    with pytest.raises(ValueError, match="invalid literal"):
        run(SimulationLoop(1), asyncio.to_thread(int, "x"))


def test_waiting_for_what_never_comes_is_an_error() -> None:
    loop = SimulationLoop(1)
    with pytest.raises(NothingLeftError):
        run(loop, asyncio.Event().wait())


def test_cancelled_timers_do_not_pile_up() -> None:
    loop = SimulationLoop(1)

    async def work() -> int:
        for _ in range(5000):
            loop.call_later(3600, print).cancel()
        return loop.timers

    assert run(loop, work()) < 1000


def test_each_process_handles_its_own_signals() -> None:
    loop, seen = SimulationLoop(1), list[str]()
    one, other = loop.process("one", "1"), loop.process("other", "2")

    async def listen() -> None:
        loop.add_signal_handler(signal.SIGTERM, lambda: seen.append(loop.current.name))
        await asyncio.sleep(100)

    async def work() -> None:
        one.start(listen())
        await asyncio.sleep(1)
        one.signal(signal.SIGTERM)
        other.signal(signal.SIGTERM)
        await asyncio.sleep(1)

    run(loop, work())
    assert seen == ["one"]
    assert one.alive
    assert not other.alive


def steady(clock: Callable[[], float] = time.monotonic) -> float:
    """A function that was there before the simulation, and has a clock of the machine as a default."""
    return clock()


def test_the_machine_is_simulated_and_comes_from_the_seed() -> None:
    def asked(seed: int) -> tuple[object, ...]:
        loop = NetworkedLoop(seed)

        async def work() -> tuple[object, ...]:
            await asyncio.sleep(10)
            assert steady() == time.monotonic()
            return time.time(), steady(), uuid.uuid4(), os.urandom(4), random.random(), id_of_host()

        with simulated(loop, seed):
            return tuple(run(loop, work()))

    assert asked(1) == asked(1)
    assert asked(1)[0] == START + 10
    assert asked(1)[2:5] != asked(2)[2:5]
    assert abs(time.time() - START) > 3600


def id_of_host() -> str:
    import socket  # noqa: PLC0415 - as it is inside the simulation

    return socket.gethostname()


def test_clocks_of_processes_can_be_set_and_their_machines_can_sleep() -> None:
    loop = NetworkedLoop(1)
    process = loop.process("a", "a")
    process.wall_offset = -3600.0

    async def read() -> tuple[float, float, float]:
        return time.time(), time.monotonic(), time.clock_gettime(time.CLOCK_BOOTTIME)

    async def work() -> None:
        process.pause(machine=True)
        await asyncio.sleep(30)
        process.resume()
        here, there = await read(), await process.start(read())
        assert there[0] - here[0] == -3600
        assert here[1] - there[1] == 30
        assert there[2] == here[2]

    with simulated(loop, 1):
        run(loop, work())


def test_work_that_reads_the_clock_until_its_time_is_up_comes_to_an_end() -> None:
    loop = NetworkedLoop(1)

    async def work() -> None:
        end = time.monotonic() + 0.1
        while time.monotonic() < end:
            pass

    with simulated(loop, 1):
        run(loop, work())
    assert loop.time() == 0
