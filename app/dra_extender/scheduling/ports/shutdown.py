import asyncio
from typing import Final

STOPPING: Final = "the extender is stopping"


class Shutdown:
    """Whether the work ends, and why in words: the process stops, or this replica leads no more."""

    def __init__(self) -> None:
        self.reason: str | None = None
        self._begun = asyncio.Event()

    def begin(self, reason: str) -> None:
        """From now on nothing new is begun."""
        self.reason = reason
        self._begun.set()

    def over(self) -> None:
        """Work goes on again: a new term."""
        self.reason = None
        self._begun.clear()

    async def wait(self) -> None:
        """Returns when it has begun."""
        await self._begun.wait()
