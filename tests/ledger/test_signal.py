import asyncio

import pytest

from app.ledger.signal import Signal, wait_for_any


async def test_a_wait_ends_with_the_signal_and_without_it_after_its_time() -> None:
    signal = Signal()
    waiting = asyncio.create_task(signal.wait(30.0))
    await asyncio.sleep(0)
    signal.fire()
    assert await waiting
    assert not await wait_for_any((signal, Signal()), 0.001)


async def test_a_cancellation_that_comes_together_with_the_signal_counts() -> None:
    """Whoever is told to end would otherwise go on."""
    signal = Signal()
    waiting = asyncio.create_task(signal.wait(30.0))
    await asyncio.sleep(0)
    signal.fire()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
