import asyncio
from collections.abc import Mapping
from http import HTTPStatus
from time import perf_counter
from typing import Final, NamedTuple, Protocol
from uuid import uuid4

import structlog
from fastapi import FastAPI
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from dra_extender.api.decoding import MalformedRequestError
from dra_extender.api.health import ReadinessGate
from dra_extender.api.protocol import ErrorResult, encode
from dra_extender.api.receive import BodyTooLargeError, ClientDisconnectedError, read_body
from dra_extender.scheduling.ports.errors import RetryableError

_LOG = structlog.get_logger(__name__)


class RequestMetrics(Protocol):
    """Counts calls; times in seconds."""

    def request(self, verb: str, outcome: str, seconds: float) -> None:
        """A call was answered."""
        ...


class VerbHandler(Protocol):
    """One verb: decodes the body, runs the use case, encodes the response."""

    async def handle(self, body: bytes, receive: Receive) -> bytes:
        """The JSON of the response; `receive` reports a disconnect.  Raises MalformedRequestError, RetryableError."""
        ...


class JsonResponse(NamedTuple):
    """A JSON response; `closing` asks the caller to open a new connection."""

    status: int
    body: bytes
    closing: bool = False


class VerbDispatcher:
    """Runs the handler of a verb; every failure becomes a response of the extender protocol, in JSON and without traceback.

    kube-scheduler reads the body of a response only if its status is 200.  Where the protocol has an `Error` field, failures
    therefore have status 200; the other verbs can only fail by their status.
    """

    def __init__(self, gate: ReadinessGate, metrics: RequestMetrics, body_limit: int) -> None:
        self._gate = gate
        self._metrics = metrics
        self._limit = body_limit

    async def dispatch(
        self, name: str, verb: VerbHandler, scope: Scope, receive: Receive, *, errors_in_body: bool
    ) -> JsonResponse:
        """The response to one call; `errors_in_body`: the protocol has an `Error` field for this verb."""
        began = perf_counter()
        outcome, answer = await self._outcome(name, verb, scope, receive, errors_in_body=errors_in_body)
        # Counted after the response is sent.
        asyncio.get_running_loop().call_soon(self._metrics.request, name, outcome, perf_counter() - began)
        return answer

    async def _outcome(
        self, name: str, verb: VerbHandler, scope: Scope, receive: Receive, *, errors_in_body: bool
    ) -> tuple[str, JsonResponse]:
        try:
            if self._gate.reason is not None:
                return "closed", failure(
                    f"{name}: {self._gate.reason}",
                    HTTPStatus.OK if errors_in_body else HTTPStatus.SERVICE_UNAVAILABLE,
                    closing=True,
                )
            body = await read_body(scope, receive, self._limit)
            return "ok", JsonResponse(HTTPStatus.OK, await verb.handle(body, receive))
        except RetryableError as reason:
            _LOG.info("retry requested", verb=name, reason=str(reason))
            return "again", failure(
                str(reason),
                HTTPStatus.OK if errors_in_body else HTTPStatus.INTERNAL_SERVER_ERROR,
                closing=self._gate.reason is not None,
            )
        except MalformedRequestError as problem:
            _LOG.warning("malformed request", verb=name, problem=str(problem))
            return "malformed", failure(str(problem), HTTPStatus.OK if errors_in_body else HTTPStatus.BAD_REQUEST)
        except BodyTooLargeError as problem:
            _LOG.warning("request too large", verb=name, problem=str(problem))
            return "too_large", failure(
                f"{name}: {problem}", HTTPStatus.REQUEST_ENTITY_TOO_LARGE, closing=problem.endless
            )
        except ClientDisconnectedError:
            return "gone", failure(f"{name}: the caller hung up", HTTPStatus.BAD_REQUEST)
        except Exception:  # noqa: BLE001 - whatever happens, kube-scheduler gets an answer it can read
            number = uuid4().hex[:12]
            _LOG.exception("internal error", verb=name, id=number)
            return "internal", failure(
                f"internal error, see the log (id {number})",
                HTTPStatus.OK if errors_in_body else HTTPStatus.INTERNAL_SERVER_ERROR,
            )


def failure(sentence: str, status: int, *, closing: bool = False) -> JsonResponse:
    """A response that has nothing but a reason; invalid Unicode in it is replaced."""
    text = sentence.encode(errors="replace").decode()
    return JsonResponse(status, encode(ErrorResult(error=text)), closing)


JSON: Final = "application/json"
ANSWER: Final = "dra_extender.answer"
"""The extension of ASGI by which the server takes a whole answer in one call: (status, media type, body) -> whether it did."""
_TYPE: Final = (b"content-type", JSON.encode())


class DirectVerb(NamedTuple):
    """A verb, its handler, and whether its failures are in the body (`Error` with status 200)."""

    name: str
    handler: VerbHandler
    errors_in_body: bool


class VerbsFirst(FastAPI):
    """Serves the verbs without routing: kube-scheduler's loop waits for them, and their paths are fixed.

    Any other request than a POST to a known path is handled by the application, which has the same handlers as documented routes.
    """

    def dispatch_first(self, verbs: Mapping[str, DirectVerb], dispatcher: VerbDispatcher) -> None:
        """Answer these paths directly."""
        self._verbs = verbs
        self._dispatcher = dispatcher

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """See ASGI."""
        verb = self._verbs.get(scope["path"]) if scope["type"] == "http" and scope["method"] == "POST" else None
        if verb is None:
            await super().__call__(scope, receive, send)
            return
        answer = await self._dispatcher.dispatch(
            verb.name, verb.handler, scope, receive, errors_in_body=verb.errors_in_body
        )
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
