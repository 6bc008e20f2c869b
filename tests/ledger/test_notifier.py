"""Waiting for the first of several things to happen."""

import asyncio

from dra_extender.ledger.notifier import Notifier, wait_for_any


async def test_the_first_signal_ends_the_wait_and_all_forget_the_waiter() -> None:
    first, second = Notifier(), Notifier()
    wait = asyncio.create_task(wait_for_any((first, second), 10.0))
    await asyncio.sleep(0)
    second.fire()
    assert await wait
    assert not first._waiters
    assert not second._waiters


async def test_nothing_happens_in_time() -> None:
    signal = Notifier()
    assert not await wait_for_any((signal, Notifier()), 0.001)
    assert not signal._waiters


async def test_a_wait_that_is_cancelled_is_forgotten() -> None:
    signal = Notifier()
    wait = asyncio.create_task(signal.wait())
    await asyncio.sleep(0)
    wait.cancel()
    await asyncio.gather(wait, return_exceptions=True)
    assert not signal._waiters
    signal.fire()


async def test_who_waits_longest_goes_on_first() -> None:
    """In whatever order a set would have them, so that a seed of the simulation replays equal in another process."""
    signal, order = Notifier(), list[int]()

    async def wait(number: int) -> None:
        await signal.wait(10.0)
        order.append(number)

    waits = [asyncio.create_task(wait(number)) for number in range(50)]
    await asyncio.sleep(0)
    signal.fire()
    await asyncio.gather(*waits)
    assert order == list(range(50))
