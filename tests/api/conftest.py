from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import httpx
import pytest
import uvicorn
from fastapi import FastAPI

from tests.support.api.sites import Site, make_site


@pytest.fixture
def site() -> Site:
    return make_site()


@pytest.fixture
async def client(site: Site) -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(site.app)
    async with httpx.AsyncClient(transport=transport, base_url="http://extender", timeout=120) as made:
        yield made


Serve = Callable[[FastAPI], AbstractAsyncContextManager[int]]


@pytest.fixture
def serve() -> Serve:
    """Runs the application in a real server on a free port of the loopback interface."""

    @asynccontextmanager
    async def serving(app: FastAPI) -> AsyncIterator[int]:
        config = uvicorn.Config(
            app, host="127.0.0.1", port=0, http="httptools", access_log=False, log_config=None, timeout_keep_alive=120
        )
        server = uvicorn.Server(config)
        config.load()
        server.lifespan = config.lifespan_class(config)
        await server.startup()
        try:
            yield server.servers[0].sockets[0].getsockname()[1]
        finally:
            await server.shutdown()

    return serving
