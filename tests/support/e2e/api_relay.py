"""Faults between the extender and the API server, without a hook in the product: a relay that its kubeconfig points to."""

import asyncio
import re
import ssl
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass
from typing import Final, Self

import aiohttp
import msgspec
from aiohttp import web

from tests.controlplane.kubeconfig import Access
from tests.support.serving import serving

CREATION: Final = "creation of a claim"
CLAIM: Final = "claim"
CLAIM_STATUS: Final = "claim status"
NOMINATION: Final = "nomination"
TOLD: Final = "claim for extended resources told"
BINDING: Final = "binding"
_CREATED: Final = re.compile(r"/namespaces/([^/]+)/resourceclaims$")
_WRITES: Final = (
    (CLAIM, "PATCH", re.compile(r"/namespaces/([^/]+)/resourceclaims/([^/]+)$")),
    (CLAIM_STATUS, "PUT", re.compile(r"/namespaces/([^/]+)/resourceclaims/([^/]+)/status$")),
    (NOMINATION, "PATCH", re.compile(r"/namespaces/([^/]+)/pods/([^/]+)/status$")),
    (BINDING, "POST", re.compile(r"/namespaces/([^/]+)/pods/([^/]+)/binding$")),
)
_PASSED_ON: Final = ("Authorization", "Content-Type", "Accept", "Accept-Encoding", "User-Agent")


@dataclass(frozen=True, slots=True)
class Write:
    """A write of a bind: its step, and the claim or pod it is about."""

    step: str
    namespace: str
    name: str


@dataclass(frozen=True, slots=True)
class Answer:
    """What goes back: HTTP status and JSON body; `lost` closes the connection instead."""

    status: int = 200
    body: bytes = b"{}"
    lost: bool = False


@dataclass(frozen=True, slots=True)
class ApiCall:
    """A request of the extender."""

    method: str
    path: str
    query: str
    body: bytes

    @property
    def write(self) -> Write | None:
        """The step of a bind that this is, if it is one."""
        created = _CREATED.search(self.path)
        if created is not None and self.method == "POST":
            return Write(CREATION, created[1], msgspec.json.decode(self.body)["metadata"]["name"])
        for step, method, pattern in _WRITES:
            found = pattern.search(self.path)
            if found is not None and method == self.method:
                told = step == NOMINATION and b'"extendedResourceClaimStatus"' in self.body
                return Write(TOLD if told else step, *found.groups())
        return None

    @property
    def watch(self) -> bool:
        """Whether the answer is a stream of events."""
        return self.method == "GET" and "watch=" in self.query


Forward = Callable[[], Awaitable[Answer]]
Handler = Callable[[ApiCall, Forward], Awaitable[Answer]]


def refusal(status: int, reason: str, message: str) -> Answer:
    """An error as an API server words it."""
    body = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": status, "reason": reason}
    return Answer(status, msgspec.json.encode({**body, "message": message}))


async def pass_on(call: ApiCall, forward: Forward) -> Answer:
    """No fault at all."""
    return await forward()


class ApiRelay:
    """Stands between the extender and the API server; `handler` decides about every call that is not a watch.

    A call whose caller has gone is not forwarded any more.
    """

    def __init__(self, access: Access) -> None:
        self.url = ""
        self.handler: Handler = pass_on
        self._access = access
        self._streams: set[asyncio.Task[None]] = set()
        self._held: dict[str, asyncio.Event] = {}
        self._stack = AsyncExitStack()
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        trust = ssl.create_default_context(cadata=self._access.authority)
        session = aiohttp.ClientSession(
            base_url=self._access.server,
            connector=aiohttp.TCPConnector(ssl=trust, limit=0),
            timeout=aiohttp.ClientTimeout(total=None),
            auto_decompress=False,
        )
        self._session = await self._stack.enter_async_context(session)
        application = web.Application(client_max_size=64 * 1024 * 1024)
        application.router.add_route("*", "/{path:.*}", self._serve)
        self.url = await self._stack.enter_async_context(serving(application, cancels=True))
        return self

    async def __aexit__(self, *_: object) -> None:
        self.drop_watches()
        await self._stack.aclose()

    @property
    def watches(self) -> int:
        return len(self._streams)

    @contextmanager
    def holding(self, plural: str) -> Iterator[None]:
        """Inside the block, the watch of this kind brings nothing."""
        self._held[plural] = asyncio.Event()
        try:
            yield
        finally:
            self._held.pop(plural).set()

    def drop_watches(self) -> None:
        """Cut every open watch; the extender makes them anew."""
        for each in tuple(self._streams):
            each.cancel()

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        call = ApiCall(request.method, request.path, request.query_string, await request.read())
        headers = {name: request.headers[name] for name in _PASSED_ON if name in request.headers}
        if call.watch:
            return await self._stream(request, call, headers)

        async def forward() -> Answer:
            try:
                async with self._open(call, headers) as answer:
                    return Answer(answer.status, await answer.read())
            except aiohttp.ClientError:
                return Answer(lost=True)

        answer = await self.handler(call, forward)
        if answer.lost:
            if request.transport is not None:
                request.transport.abort()
            return web.Response(status=502)
        return web.Response(status=answer.status, body=answer.body, content_type="application/json")

    def _open(self, call: ApiCall, headers: dict[str, str]) -> "aiohttp.client._RequestContextManager":
        assert self._session is not None
        url = f"{call.path}?{call.query}" if call.query else call.path
        return self._session.request(call.method, url, data=call.body or None, headers=headers)

    async def _stream(self, request: web.Request, call: ApiCall, headers: dict[str, str]) -> web.StreamResponse:
        response = web.StreamResponse()
        stream = asyncio.create_task(self._copy(request, response, call, headers))
        self._streams.add(stream)
        try:
            await asyncio.wait({stream})
            if not stream.cancelled():
                stream.exception()
        finally:
            stream.cancel()
            self._streams.discard(stream)
        if request.transport is not None:
            request.transport.abort()
        return response

    async def _copy(
        self, request: web.Request, response: web.StreamResponse, call: ApiCall, headers: dict[str, str]
    ) -> None:
        async with self._open(call, headers) as answer:
            response.set_status(answer.status)
            response.content_type = "application/json"
            await response.prepare(request)
            async for chunk in answer.content.iter_any():
                held = self._held.get(call.path.rpartition("/")[2])
                if held is not None:
                    await held.wait()
                await response.write(chunk)
        await response.write_eof()
