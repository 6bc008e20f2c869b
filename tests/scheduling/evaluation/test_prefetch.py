"""Prefetching between two calls: when it begins, goes on and begins again."""

import asyncio
import socket
from typing import Any

import uvloop
from dra_extender.ledger.hold_book import Hold
from dra_extender.ledger.ledger import Ledger
from dra_extender.model.allocation import AllocationResult, ClaimPlacement, DeviceHolding
from dra_extender.runtime.clock import SystemClock
from dra_extender.scheduling.evaluation.evaluator import Prefetch


class Evaluator:
    """Stands for NodeEvaluator: records the demands that are evaluated, each in so many steps."""

    def __init__(self, steps: int = 1) -> None:
        self.demands: list[str] = []
        self._steps = steps

    def prefetch(self, demand: Any, count: int, max_feasible: int, out_of_time: Any) -> bool:
        self.demands.append(demand)
        self._steps -= 1
        return self._steps > 0


def prefetch_with(evaluator: Any, ledger: Ledger) -> Any:
    return Prefetch(evaluator, ledger, SystemClock(), 8, rates_nodes=False)


async def pause() -> None:
    for _ in range(100):
        await asyncio.sleep(0)


async def test_it_begins_when_the_call_is_over_and_goes_on_until_nothing_is_left() -> None:
    evaluator = Evaluator(steps=3)
    prefetch_with(evaluator, Ledger()).start("first")
    assert evaluator.demands == []
    await pause()
    assert evaluator.demands == ["first"] * 3


async def test_only_the_last_question_counts() -> None:
    evaluator = Evaluator()
    prefetch = prefetch_with(evaluator, Ledger())
    prefetch.start("first")
    prefetch.start("second")
    await pause()
    assert evaluator.demands == ["second"]


async def test_a_question_that_takes_too_long_is_given_up() -> None:
    evaluator = Evaluator(steps=1_000)
    prefetch_with(evaluator, Ledger()).start("long")
    await pause()
    assert 1 < len(evaluator.demands) < 100


def test_a_call_that_arrives_during_a_step_is_answered_before_the_next_step() -> None:
    caller, service = socket.socketpair()
    order: list[str] = []

    class Called(Evaluator):
        def prefetch(self, *_: Any) -> bool:
            order.append("step")
            caller.send(b"a call")
            return order.count("step") < 4

    async def answer() -> None:
        order.append("answer")

    async def prefetch() -> None:
        loop = asyncio.get_running_loop()
        tasks: list[asyncio.Task[None]] = []

        def read() -> None:
            service.recv(64)
            tasks.append(loop.create_task(answer()))

        loop.add_reader(service, read)
        prefetch_with(Called(), Ledger()).start("first")
        await pause()
        loop.remove_reader(service)

    with caller, service, asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(prefetch())
    assert order == ["step", "answer"] * 4


async def test_it_begins_again_whenever_a_hold_ends() -> None:
    evaluator, ledger = Evaluator(), Ledger()
    prefetch_with(evaluator, ledger).start("first")
    await pause()
    for expected in (2, 3):
        holding = DeviceHolding(driver="gpu.example.com", pool="n1", device="d0")
        placement = ClaimPlacement(allocation=AllocationResult(), holdings=(holding,))
        ledger.hold_book.place(Hold("c1", {"n1": placement}, {"n1": 0}, 1.0, {"p1"}))
        await pause()
        assert len(evaluator.demands) == expected - 1
        ledger.hold_book.end("c1")
        await pause()
        assert evaluator.demands == ["first"] * expected
