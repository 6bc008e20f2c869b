from collections.abc import Mapping
from typing import NamedTuple

from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from app.api.answering import Answering, Verb


class DirectVerb(NamedTuple):
    """A verb, its handler, and whether its failures are answered in words (`Error` with status 200)."""

    name: str
    handler: Verb
    in_words: bool


class DirectVerbs:
    """Answers the verbs before routing: kube-scheduler's loop stands still meanwhile, and it never asks for more than a path.

    An ASGI middleware.  Anything but a POST to a known path goes on to the application, which has the same handlers as documented
    routes.
    """

    def __init__(self, app: ASGIApp, verbs: Mapping[str, DirectVerb], answering: Answering) -> None:
        self._app = app
        self._verbs = verbs
        self._answering = answering

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """See ASGI."""
        verb = self._verbs.get(scope["path"]) if scope["type"] == "http" and scope["method"] == "POST" else None
        if verb is None:
            await self._app(scope, receive, send)
            return
        request = Request(scope, receive, send)
        response = await self._answering.answer(verb.name, verb.handler, request, in_words=verb.in_words)
        await response(scope, receive, send)
