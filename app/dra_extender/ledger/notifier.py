import asyncio
from collections.abc import Collection


class Notifier:
    """Lets coroutines wait until something happens next; what happened is read elsewhere.  Who waits longest goes on first."""

    __slots__ = ("_waiters",)

    def __init__(self) -> None:
        self._waiters: dict[asyncio.Future[None], None] = {}

    def fire(self) -> None:
        waiters, self._waiters = self._waiters, {}
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    async def wait(self, seconds: float | None = None) -> bool:
        """Wait for the next `fire`; False if `seconds` pass before."""
        return await wait_for_any((self,), seconds)

    def join(self, waiter: asyncio.Future[None]) -> None:
        self._waiters[waiter] = None

    def leave(self, waiter: asyncio.Future[None]) -> None:
        self._waiters.pop(waiter, None)


async def wait_for_any(signals: Collection[Notifier], seconds: float | None = None) -> bool:
    """Wait for the next `fire` of one of these; False if `seconds` pass before."""
    waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    for signal in signals:
        signal.join(waiter)
    try:
        # Not `wait_for`, which loses a cancellation that comes together with the signal.
        async with asyncio.timeout(seconds):
            await waiter
    except TimeoutError:
        return False
    finally:
        for signal in signals:
            signal.leave(waiter)
    return True
