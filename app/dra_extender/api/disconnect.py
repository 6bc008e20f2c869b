import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.types import Receive


@asynccontextmanager
async def watched(receive: Receive) -> AsyncIterator[asyncio.Event]:
    """An event that is set when the caller's connection is gone.  The body must have been read."""
    hung_up = asyncio.Event()
    watcher = asyncio.create_task(_watch(receive, hung_up))
    try:
        yield hung_up
    finally:
        watcher.cancel()


async def _watch(receive: Receive, hung_up: asyncio.Event) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    hung_up.set()
