import asyncio
from collections.abc import Mapping
from time import perf_counter
from typing import Final, NamedTuple, Protocol
from uuid import uuid4

import structlog
from fastapi import FastAPI
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from dra_extender.api.decoding import Malformed
from dra_extender.api.health import ReadinessGate
from dra_extender.api.protocol import ErrorResult, encode
from dra_extender.api.receive import BodyTooLargeError, ClientDisconnectedError, read_body
from dra_extender.scheduling.ports.errors import RetryableError

OK: Final = 200
BAD_REQUEST: Final = 400
TOO_LARGE: Final = 413
INTERNAL: Final = 500
UNAVAILABLE: Final = 503

_LOG = structlog.get_logger(__name__)


class RequestMetrics(Protocol):
    """Counts calls; times in seconds."""

    def request(self, verb: str, outcome: str, seconds: float) -> None:
        """A call was answered."""
        ...


class VerbHandler(Protocol):
    """One verb: reads the body, asks the use case, writes the answer."""

    async def __call__(self, body: bytes, receive: Receive) -> bytes:
        """The JSON of the answer; `receive` tells when the caller hangs up.  Raises Malformed, TryAgain."""
        ...


class JsonResponse(NamedTuple):
    """What is answered, in JSON; `closing` asks the caller to connect anew."""

    status: int
    body: bytes
    closing: bool = False


class VerbDispatcher:
    """Turns a verb into a handler that always answers in the protocol's terms: JSON, and words instead of tracebacks.

    kube-scheduler does not read the body of an answer other than 200.  So where the protocol has an `Error` field, failures are
    answered with 200; the other verbs can only fail by their status.
    """

    def __init__(self, gate: ReadinessGate, metrics: RequestMetrics, body_limit: int) -> None:
        self._gate = gate
        self._metrics = metrics
        self._limit = body_limit

    async def answer(
        self, name: str, verb: VerbHandler, scope: Scope, receive: Receive, *, in_words: bool
    ) -> JsonResponse:
        """The answer to one call; `in_words`: the protocol has an `Error` field for this verb."""
        began = perf_counter()
        outcome, answer = await self._outcome(name, verb, scope, receive, in_words=in_words)
        # Counted when the answer is out.
        asyncio.get_running_loop().call_soon(self._metrics.request, name, outcome, perf_counter() - began)
        return answer

    async def _outcome(
        self, name: str, verb: VerbHandler, scope: Scope, receive: Receive, *, in_words: bool
    ) -> tuple[str, JsonResponse]:
        try:
            if self._gate.reason is not None:
                return "closed", failure(f"{name}: {self._gate.reason}", OK if in_words else UNAVAILABLE, closing=True)
            body = await read_body(scope, receive, self._limit)
            return "ok", JsonResponse(OK, await verb(body, receive))
        except RetryableError as reason:
            _LOG.info("not now", verb=name, reason=str(reason))
            return "again", failure(str(reason), OK if in_words else INTERNAL, closing=self._gate.reason is not None)
        except Malformed as problem:
            _LOG.warning("malformed request", verb=name, problem=str(problem))
            return "malformed", failure(str(problem), OK if in_words else BAD_REQUEST)
        except BodyTooLargeError as problem:
            _LOG.warning("request refused", verb=name, problem=str(problem))
            return "too_large", failure(f"{name}: {problem}", TOO_LARGE, closing=problem.endless)
        except ClientDisconnectedError:
            return "gone", failure(f"{name}: the caller hung up", BAD_REQUEST)
        except Exception:  # noqa: BLE001 - whatever happens, kube-scheduler gets an answer it can read
            number = uuid4().hex[:12]
            _LOG.exception("internal error", verb=name, id=number)
            return "internal", failure(f"internal error, see the log (id {number})", OK if in_words else INTERNAL)


def failure(sentence: str, status: int, *, closing: bool = False) -> JsonResponse:
    """An answer that is only a reason; text that is no valid Unicode is made so."""
    text = sentence.encode(errors="replace").decode()
    return JsonResponse(status, encode(ErrorResult(error=text)), closing)


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
