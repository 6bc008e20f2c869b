"""The page as an ASGI application: who may open it, its views, and the stream that tells a browser of new states."""

import asyncio
import secrets
from collections.abc import AsyncIterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from importlib.resources import files
from types import MappingProxyType
from typing import Final

from starlette.applications import Starlette
from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dra_extender.api.browser_guard import BrowserGuard
from dra_extender.page.states import States
from dra_extender.page.views import CommandLines, Views
from dra_extender.runtime.supervision import cancel

_TOKEN_BYTES: Final = 24
_HEADERS: Final = BrowserGuard(loopback=True)
_METHODS: Final = frozenset({"GET", "HEAD"})
_WRONG_TOKEN: Final = "Open the address that the command printed: it has a token.\n"  # noqa: S105 - a sentence
_WRONG_METHOD: Final = "This page is read only.\n"

_CONTENT_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self';"
    " base-uri 'none'; frame-ancestors 'none'"
)
HEADERS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "content-security-policy": _CONTENT_POLICY,
        "cache-control": "no-store",
        "cross-origin-opener-policy": "same-origin",
        "cross-origin-resource-policy": "same-origin",
        "referrer-policy": "no-referrer",
        "x-content-type-options": "nosniff",
        "x-frame-options": "DENY",
    }
)
"""Headers of every response: nothing inline, nothing from elsewhere, in no frame, kept by no cache, no address given away."""


def new_token() -> str:
    """Return a token that nobody can guess, of characters that need no escape in a path."""
    return secrets.token_urlsafe(_TOKEN_BYTES)


class PageGuard:
    """ASGI middleware: passes on only requests that may be answered and whose path begins with the token."""

    def __init__(self, app: ASGIApp, token: str) -> None:
        self._app = app
        self._token = token.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer 400, 403 or 405 in the place of the application, or let it answer; both with HEADERS."""
        if scope["type"] != "http":
            return

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(raw=message.setdefault("headers", [])).update(HEADERS)
            await send(message)

        refusal = self._refusal(scope)
        if refusal is not None:
            await refusal(scope, receive, send_guarded)
            return
        await self._app({**scope, "root_path": f"/{self._token.decode()}"}, receive, send_guarded)

    def _refusal(self, scope: Scope) -> PlainTextResponse | None:
        method = scope["method"]
        # Other methods are refused below, with 405; the rule about Content-Type must not refuse them first.
        refused = _HEADERS.refusal(method.encode() if method in _METHODS else b"GET", scope["headers"])
        if refused is not None:
            return PlainTextResponse(f"This page is not shown: {refused.sentence}.\n", refused.status)
        first = scope["path"].split("/", 2)[1:2]
        if not first or not secrets.compare_digest(first[0].encode("utf-8", "surrogatepass"), self._token):
            return PlainTextResponse(_WRONG_TOKEN, 403)
        if method not in _METHODS:
            return PlainTextResponse(_WRONG_METHOD, 405, {"allow": "GET, HEAD"})
        return None


_TYPES: Final[Mapping[str, str]] = MappingProxyType(
    {"css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
)
_LANDING: Final = "overview"
_MOST_STREAMS: Final = 32
_ALIVE_SECONDS: Final = 15.0
"""Between two signs of life on a stream, so that a browser notices a page that has ended."""


class PageApplication:
    """The application of one page.  `asgi` answers requests; after `end` the streams are closed."""

    def __init__(self, source: States, commands: CommandLines, token: str) -> None:
        self._source = source
        self._base = f"/{token}"
        self._views = Views(self._base, commands)
        # A state is asked by one thread at a time, even after a request is cancelled.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="page")
        self._streams = 0
        self._ended = asyncio.Event()
        routes = [
            Route("/", self._landing),
            Route("/events", self._events),
            Route("/static/{name}", self._static),
            Route("/{view:path}", self._view),
        ]
        self.asgi: ASGIApp = PageGuard(Starlette(routes=routes), token)

    def prepare(self) -> None:
        """Begin with what the first view shows, before it is asked for."""
        self._thread.submit(lambda: self._source.latest().prepare())

    def end(self) -> None:
        """Close the streams, so that a server that waits for its connections can stop."""
        self._ended.set()
        self._thread.shutdown(wait=False, cancel_futures=True)

    async def _landing(self, _: Request) -> Response:
        return RedirectResponse(f"{self._base}/{_LANDING}", 303)

    async def _view(self, request: Request) -> Response:
        # The last of several values of one name counts, as in most programs.
        query = dict(request.query_params)
        view = request.path_params["view"]
        return await asyncio.get_running_loop().run_in_executor(
            self._thread, lambda: self._views.answer(view, self._source.latest(), query)
        )

    async def _static(self, request: Request) -> Response:
        name = request.path_params["name"]
        content = _STATIC.get(name)
        if content is None:
            return PlainTextResponse("There is no such file.\n", 404)
        return Response(content, media_type=_TYPES[name.rpartition(".")[2]])

    async def _events(self, _: Request) -> Response:
        if self._streams >= _MOST_STREAMS:
            return PlainTextResponse(f"This page serves {_MOST_STREAMS} streams at most.\n", 503)
        return StreamingResponse(self._generations(), media_type="text/event-stream")

    async def _generations(self) -> AsyncIterator[str]:
        """Yield an event with the generation of each new state, the present one first."""
        self._streams += 1
        try:
            generation = self._source.latest().generation
            yield f"retry: 2000\nevent: generation\ndata: {generation}\n\n"
            while not self._ended.is_set():
                later = await self._later_generation(generation)
                if later is None:
                    yield ": alive\n\n"
                else:
                    generation = later
                    yield f"event: generation\ndata: {generation}\n\n"
        finally:
            self._streams -= 1

    async def _later_generation(self, generation: int) -> int | None:
        """Return the generation of the next state; None if there is none for some seconds, or the page ends."""
        later = asyncio.create_task(self._source.later_than(generation))
        ended = asyncio.create_task(self._ended.wait())
        try:
            await asyncio.wait([later, ended], timeout=_ALIVE_SECONDS, return_when=asyncio.FIRST_COMPLETED)
            return later.result().generation if later.done() else None
        finally:
            await cancel(later)
            await cancel(ended)


_STATIC: Final[Mapping[str, bytes]] = MappingProxyType(
    {file.name: file.read_bytes() for file in files("dra_extender.page").joinpath("static").iterdir()}
)
