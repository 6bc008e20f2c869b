"""The end of a loop that must not be cancelled in the middle of a piece of work."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager


class StoppableWork:
    """A loop that ends between two pieces of work; `stop` waits for the piece in progress."""

    def __init__(self) -> None:
        self._stopping = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()

    @property
    def is_stopping(self) -> bool:
        return self._stopping.is_set()

    def begin(self) -> None:
        """Let the loop run, also again after a `stop`."""
        self._stopping.clear()

    @contextmanager
    def piece(self) -> Iterator[None]:
        """Do a piece of work, to whose end `stop` waits."""
        self._idle.clear()
        try:
            yield
        finally:
            self._idle.set()

    async def stop(self) -> None:
        """End the loop; return when the piece in progress has ended."""
        self._stopping.set()
        await self._idle.wait()

    async def stopped_within(self, seconds: float) -> bool:
        """Wait for this time or the stop; return whether it was the stop."""
        try:
            # Not `wait_for`, which loses a cancellation that comes together with the stop.
            async with asyncio.timeout(seconds):
                await self._stopping.wait()
        except TimeoutError:
            return False
        return True
