import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.requests import Request


@asynccontextmanager
async def watched(request: Request) -> AsyncIterator[asyncio.Event]:
    """An event that is set when the caller's connection is gone.  The body must have been read."""
    hung_up = asyncio.Event()
    watcher = asyncio.create_task(_watch(request, hung_up))
    try:
        yield hung_up
    finally:
        watcher.cancel()


async def _watch(request: Request, hung_up: asyncio.Event) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
    hung_up.set()
