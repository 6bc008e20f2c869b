import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Self

import aiohttp
from aiohttp import web

from tests.support.serving import serving


class Held:
    """Calls of one verb that are kept from the extender.  `waiting` counts those that have come."""

    def __init__(self) -> None:
        self.waiting = 0
        self.answers: list[str] = []
        self._go = asyncio.Event()

    async def arrived(self, count: int = 1) -> bool:
        """Whether so many calls wait (for `wait_for`)."""
        return self.waiting >= count

    def release(self) -> None:
        """Deliver them now, however late."""
        self._go.set()

    async def wait(self) -> None:
        """Until `release`."""
        self.waiting += 1
        await self._go.wait()


class Relay:
    """Stands between kube-scheduler and the extender, unnoticed, until a test holds the calls of a verb."""

    def __init__(self, target: str) -> None:
        self.url = ""
        self._target = target
        self._held: dict[str, Held] = {}
        self._stack = AsyncExitStack()
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=None))
        self._session = await self._stack.enter_async_context(session)
        application = web.Application()
        application.router.add_post("/{verb}", self._forward)
        self.url = await self._stack.enter_async_context(serving(application))
        return self

    async def __aexit__(self, *_: object) -> None:
        for held in self._held.values():
            held.release()
        await self._stack.aclose()

    @asynccontextmanager
    async def holding(self, verb: str) -> AsyncIterator[Held]:
        """Calls of this verb that come inside the block wait until they are let go; at the latest at its end."""
        held = self._held[verb] = Held()
        try:
            yield held
        finally:
            self._held.pop(verb, None)
            held.release()

    async def where(self) -> str:
        """URL of the extender that is called now."""
        return self._target

    async def call(self, verb: str, body: dict[str, Any]) -> dict[str, Any]:
        """Calls the extender as kube-scheduler would."""
        assert self._session is not None
        async with self._session.post(f"{await self.where()}/{verb}", json=body) as answer:
            decoded: dict[str, Any] = await answer.json()
            return decoded

    async def _forward(self, request: web.Request) -> web.Response:
        verb, body = request.match_info["verb"], await request.read()
        held = self._held.get(verb)
        if held is not None:
            await held.wait()
        assert self._session is not None
        headers = {"Content-Type": "application/json"}
        async with self._session.post(f"{await self.where()}/{verb}", data=body, headers=headers) as answer:
            text = await answer.read()
            if held is not None:
                held.answers.append(text.decode())
            return web.Response(body=text, status=answer.status, content_type="application/json")
