"""Waiting in a test's event loop: for a condition, or for whatever can happen without the passing of time."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

_TURNS: Final = 300
_POLL_SECONDS: Final = 0.002
_LIMIT_SECONDS: Final = 120.0


async def turns() -> None:
    """Let the event loop turn so often that whatever needs no time has happened."""
    for _ in range(_TURNS):
        await asyncio.sleep(0)


async def until(condition: Callable[[], object], meanwhile: Callable[[], object] = lambda: None) -> None:
    """Return when the condition holds; before each look `meanwhile` is called. TimeoutError after two minutes."""

    async def holds() -> object:
        return condition()

    await until_async(holds, meanwhile)


async def until_async(
    condition: Callable[[], Awaitable[object]], meanwhile: Callable[[], object] = lambda: None
) -> None:
    async with asyncio.timeout(_LIMIT_SECONDS):
        while True:
            meanwhile()
            if await condition():
                return
            await asyncio.sleep(_POLL_SECONDS)
