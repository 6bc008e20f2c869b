from collections.abc import Mapping
from typing import Final, NamedTuple

from fastapi import FastAPI
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from dra_extender.api.dispatch import JsonResponse, VerbDispatcher, VerbHandler

JSON: Final = "application/json"
ANSWER: Final = "dra_extender.answer"
"""The extension of ASGI by which the server takes a whole answer in one call: (status, media type, body) -> whether it did."""
_TYPE: Final = (b"content-type", JSON.encode())


class DirectVerb(NamedTuple):
    """A verb, its handler, and whether its failures are answered in words (`Error` with status 200)."""

    name: str
    handler: VerbHandler
    in_words: bool


class VerbsFirst(FastAPI):
    """Answers the verbs before anything else: kube-scheduler's loop stands still meanwhile, and it never asks for more than a path.

    Anything but a POST to a known path goes on to the application, which has the same handlers as documented routes.
    """

    def answer_first(self, verbs: Mapping[str, DirectVerb], answering: VerbDispatcher) -> None:
        """Answer these paths directly."""
        self._verbs = verbs
        self._answering = answering

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """See ASGI."""
        verb = self._verbs.get(scope["path"]) if scope["type"] == "http" and scope["method"] == "POST" else None
        if verb is None:
            await super().__call__(scope, receive, send)
            return
        answer = await self._answering.answer(verb.name, verb.handler, scope, receive, in_words=verb.in_words)
        at_once = scope.get("extensions", {}).get(ANSWER)
        if at_once and not answer.closing and at_once[ANSWER](answer.status, _TYPE[1], answer.body):
            return
        headers = [_TYPE, (b"content-length", b"%d" % len(answer.body))]
        if answer.closing:
            headers.append((b"connection", b"close"))
        await send({"type": "http.response.start", "status": answer.status, "headers": headers})
        await send({"type": "http.response.body", "body": answer.body})


def as_response(answer: JsonResponse) -> Response:
    """The answer, for the documented routes."""
    return Response(answer.body, answer.status, {"Connection": "close"} if answer.closing else None, JSON)
