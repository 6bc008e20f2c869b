import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web


@asynccontextmanager
async def serving(
    application: web.Application, context: ssl.SSLContext | None = None, *, cancels: bool = False
) -> AsyncIterator[str]:
    """Serve on a loopback port: gives the URL.  With `cancels`, a handler ends when its caller has gone."""
    runner = web.AppRunner(application, access_log=None, shutdown_timeout=1.0, handler_cancellation=cancels)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
        yield f"{'https' if context else 'http'}://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()
