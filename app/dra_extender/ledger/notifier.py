import asyncio
from collections.abc import Collection
from functools import partial


class Notifier:
    """Lets coroutines wait until something happens next; what happened is read elsewhere.  Who waits longest goes on first."""

    __slots__ = ("_waiters",)

    def __init__(self) -> None:
        self._waiters: dict[asyncio.Future[bool], None] = {}

    def fire(self) -> None:
        waiters, self._waiters = self._waiters, {}
        for waiter in waiters:
            _end(waiter, fired=True)

    async def wait(self, seconds: float | None = None) -> bool:
        """Wait for the next `fire`; False if `seconds` pass before."""
        return await wait_for_any((self,), seconds)

    def join(self, waiter: asyncio.Future[bool]) -> None:
        self._waiters[waiter] = None

    def leave(self, waiter: asyncio.Future[bool]) -> None:
        self._waiters.pop(waiter, None)


async def wait_for_any(signals: Collection[Notifier], seconds: float | None = None) -> bool:
    """Wait for the next `fire` of one of these; False if `seconds` pass before."""
    loop = asyncio.get_running_loop()
    waiter: asyncio.Future[bool] = loop.create_future()
    for signal in signals:
        signal.join(waiter)
    # `asyncio.timeout` takes three times as long, for each of thousands of waiters.
    timer = None if seconds is None else loop.call_later(seconds, partial(_end, waiter, fired=False))
    try:
        return await waiter
    finally:
        if timer is not None:
            timer.cancel()
        for signal in signals:
            signal.leave(waiter)


def _end(waiter: asyncio.Future[bool], *, fired: bool) -> None:
    if not waiter.done():
        waiter.set_result(fired)
