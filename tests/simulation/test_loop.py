import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import Any

from tests.simulation.environment import simulated
from tests.simulation.loop import Process, SimulationLoop
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
