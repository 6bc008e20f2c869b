"""Who may open the page: a browser that has its token, under a loopback name; and what a browser may load for it.

Other users of the machine can reach a loopback port, and any web site can send a browser there.  Both lack the token, which is a
part of the path: a cookie would go to every port of the same host.  A site that makes its own name resolve to loopback (DNS
rebinding), or has a browser send requests here, is refused as everywhere (`request_guard`).
"""

import secrets
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from starlette.datastructures import MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dra_extender.api.request_guard import RequestGuard

_TOKEN_BYTES: Final = 24
_HEADERS: Final = RequestGuard(loopback=True)
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
    """A token that nobody can guess, of characters that need no escape in a path."""
    return secrets.token_urlsafe(_TOKEN_BYTES)


class PageGuard:
    """An ASGI application before another, which sees requests alone that may be answered, below the path of the token."""

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
        # Of what the page answers nothing has content.
        refused = _HEADERS.refusal(method.encode() if method in _METHODS else b"GET", scope["headers"])
        if refused is not None:
            return PlainTextResponse(f"This page is not shown: {refused.sentence}.\n", refused.status)
        first = scope["path"].split("/", 2)[1:2]
        if not first or not secrets.compare_digest(first[0].encode("utf-8", "surrogatepass"), self._token):
            return PlainTextResponse(_WRONG_TOKEN, 403)
        if method not in _METHODS:
            return PlainTextResponse(_WRONG_METHOD, 405, {"allow": "GET, HEAD"})
        return None
