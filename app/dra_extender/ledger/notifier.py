"""Waiting for changes: of anything (`Notifier`), or of one claim (`Deliveries`)."""

import asyncio
from collections.abc import Collection


class Notifier:
    """Lets coroutines wait until something happens next; what happened is read elsewhere.  Who waits longest goes on first."""

    __slots__ = ("_waiters",)

    def __init__(self) -> None:
        self._waiters: dict[asyncio.Future[None], None] = {}

    def fire(self) -> None:
        """Wake all coroutines that wait now."""
        waiters, self._waiters = self._waiters, {}
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    async def wait(self, seconds: float | None = None) -> bool:
        """Wait for the next `fire`; False if `seconds` pass before."""
        return await wait_for_any((self,), seconds)

    def join(self, waiter: asyncio.Future[None]) -> None:
        """Let the next `fire` complete this future, too."""
        self._waiters[waiter] = None

    def leave(self, waiter: asyncio.Future[None]) -> None:
        """Let the next `fire` leave this future alone."""
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


class Deliveries:
    """Who waits for a version of a claim to be delivered by the watch, or for any change of it, by the claim's UID."""

    def __init__(self) -> None:
        self._waiting: dict[str, list[tuple[int, asyncio.Future[bool]]]] = {}
        self._changes: dict[str, Notifier] = {}

    async def wait(self, uid: str, wanted: int, seconds: float) -> bool:
        """Wait until this version or a later one has been delivered; False if the claim is gone.

        Raises:
            TimeoutError: it took longer than `seconds`.
        """
        waiter: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        entry = (wanted, waiter)
        self._waiting.setdefault(uid, []).append(entry)
        try:
            # Not `wait_for`, which loses a cancellation that comes together with the delivery.
            async with asyncio.timeout(seconds):
                return await waiter
        finally:
            waiting = self._waiting.get(uid)
            if waiting is not None and entry in waiting:
                waiting.remove(entry)
                if not waiting:
                    del self._waiting[uid]

    def delivered(self, uid: str, version: int) -> None:
        """Wake who waits for this version, which the watch has brought, or for an earlier one."""
        waiting = self._waiting.get(uid)
        if not waiting:
            return
        left = [(wanted, waiter) for wanted, waiter in waiting if wanted > version]
        for wanted, waiter in waiting:
            if wanted <= version:
                _answer(waiter, delivered=True)
        if left:
            self._waiting[uid] = left
        else:
            del self._waiting[uid]

    def change_of(self, uid: str) -> Notifier:
        """Fires, once, when this claim changes or goes away; ask again for the time after."""
        return self._changes.setdefault(uid, Notifier())

    def changed(self, uid: str) -> None:
        """Wake who waits for any change of the claim."""
        signal = self._changes.pop(uid, None)
        if signal is not None:
            signal.fire()

    def gone(self, uid: str) -> None:
        """Wake all who wait for the claim: it is deleted, and nothing of it is delivered any more."""
        self.changed(uid)
        for _, waiter in self._waiting.pop(uid, ()):
            _answer(waiter, delivered=False)


def _answer(waiter: asyncio.Future[bool], *, delivered: bool) -> None:
    if not waiter.done():
        waiter.set_result(delivered)
