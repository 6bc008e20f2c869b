"""Answers the calls of kube-scheduler: one body in, one body out, and every failure as a sentence in JSON."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from http import HTTPStatus
from time import perf_counter
from typing import Final
from uuid import uuid4

import structlog
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope

from dra_extender.api.decoding import MalformedRequestError
from dra_extender.api.protocol import ErrorResult, encode
from dra_extender.scheduling.ports.errors import RetryableError
from dra_extender.telemetry.metrics import Metrics

_LONGEST_LENGTH: Final = 18
"""Digits of a Content-Length that is read as a number."""


class BodyTooLargeError(Exception):
    """The body exceeds the limit; the message is a sentence for the caller.

    `endless`: the request had no Content-Length, so the connection must be closed.
    """

    def __init__(self, message: str, *, endless: bool) -> None:
        super().__init__(message)
        self.endless = endless


class ClientDisconnectedError(Exception):
    """The caller's connection is gone."""


async def read_body(scope: Scope, receive: Receive, limit: int) -> bytes:
    """Read the whole body, at most `limit` bytes; a body whose Content-Length is larger is not read.

    Raises:
        BodyTooLargeError: it is longer.
        ClientDisconnectedError: the caller disconnected while sending.
    """
    for name, value in scope["headers"]:
        if name == b"content-length" and value.isdigit() and (len(value) > _LONGEST_LENGTH or int(value) > limit):
            announced = value[:_LONGEST_LENGTH].decode()
            raise BodyTooLargeError(f"the body has {announced} bytes, at most {limit} are accepted", endless=False)
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnectedError
        part: bytes = message.get("body", b"")
        more = message.get("more_body", False)
        if len(body) + len(part) > limit:
            raise BodyTooLargeError(f"the body has more than {limit} bytes", endless=True)
        if not more:
            # Most bodies arrive in one piece.
            return bytes(body + part) if body else part
        body += part


JSON: Final = "application/json"
_ERRORS_IN_BODY: Final = frozenset({"filter", "bind"})
"""The verbs whose answer has an `Error`: kube-scheduler reads a body only if the status is 200.  Others fail by their status."""
_LOG = structlog.get_logger(__name__)

VerbHandler = Callable[[bytes, Receive], Awaitable[bytes]]
"""Decodes a body, runs the use case, and encodes its answer.  Raises MalformedRequestError, RetryableError."""


class VerbGate:
    """The state of the verbs: open, or closed with a reason.

    Closed while the service starts or stops and while another replica leads.  Keep-alive connections outlive a Service's endpoints,
    so the verbs then respond with the reason and ask the caller to open a new connection.
    """

    __slots__ = ("_find_reason",)

    def __init__(self, reason: str | None = "the extender is starting") -> None:
        self._find_reason: Callable[[], str | None] = lambda: reason

    @property
    def reason(self) -> str | None:
        """Return why the gate is closed; None when it is open."""
        return self._find_reason()

    def open(self, closed_because: Callable[[], str | None] | None = None) -> None:
        """Admit calls.  `closed_because` runs at every call: while it returns a reason, the gate is closed."""
        self._find_reason = closed_because or (lambda: None)

    def close(self, reason: str | Callable[[], str]) -> None:
        self._find_reason = reason if callable(reason) else lambda: reason


class VerbCalls:
    """Answers the verbs while `gate` is open, whatever a handler raises."""

    def __init__(self, gate: VerbGate, metrics: Metrics, body_limit: int) -> None:
        self._gate = gate
        self._metrics = metrics
        self._limit = body_limit

    async def answer(self, request: Request, verb: str, handle: VerbHandler) -> Response:
        began = perf_counter()
        outcome, response = await self._outcome(request, verb, handle)
        # Counted after the response is sent.
        asyncio.get_running_loop().call_soon(self._metrics.request, verb, outcome, perf_counter() - began)
        return response

    async def _outcome(self, request: Request, verb: str, handle: VerbHandler) -> tuple[str, Response]:
        def failed(sentence: str, status: int, *, closing: bool = False) -> Response:
            return failure(sentence, HTTPStatus.OK if verb in _ERRORS_IN_BODY else status, closing=closing)

        try:
            if self._gate.reason is not None:
                sentence = f"{verb}: {self._gate.reason}"
                return "closed", failed(sentence, HTTPStatus.SERVICE_UNAVAILABLE, closing=True)
            body = await read_body(request.scope, request.receive, self._limit)
            return "ok", Response(await handle(body, request.receive), media_type=JSON)
        except RetryableError as reason:
            _LOG.info("retry requested", verb=verb, reason=str(reason))
            closing = self._gate.reason is not None
            return "again", failed(str(reason), HTTPStatus.INTERNAL_SERVER_ERROR, closing=closing)
        except MalformedRequestError as problem:
            _LOG.warning("malformed request", verb=verb, problem=str(problem))
            return "malformed", failed(str(problem), HTTPStatus.BAD_REQUEST)
        except BodyTooLargeError as problem:
            _LOG.warning("request too large", verb=verb, problem=str(problem))
            too_large = HTTPStatus.REQUEST_ENTITY_TOO_LARGE
            return "too_large", failure(f"{verb}: {problem}", too_large, closing=problem.endless)
        except ClientDisconnectedError:
            return "gone", failure(f"{verb}: the caller hung up", HTTPStatus.BAD_REQUEST)
        except Exception:  # noqa: BLE001 - whatever happens, kube-scheduler gets an answer it can read
            number = uuid4().hex[:12]
            _LOG.exception("internal error", verb=verb, id=number)
            sentence = f"internal error, see the log (id {number})"
            return "internal", failed(sentence, HTTPStatus.INTERNAL_SERVER_ERROR)


def failure(sentence: str, status: int, *, closing: bool = False) -> Response:
    """Return a response that has only a reason; invalid Unicode in it is replaced.  `closing` ends the connection."""
    text = sentence.encode(errors="replace").decode()
    return Response(encode(ErrorResult(error=text)), status, {"Connection": "close"} if closing else None, JSON)


@asynccontextmanager
async def disconnection(receive: Receive) -> AsyncIterator[asyncio.Event]:
    """Yield an event that is set when the caller's connection is gone.  The body must have been read."""
    disconnected = asyncio.Event()

    async def watch() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        disconnected.set()

    watcher = asyncio.create_task(watch())
    try:
        yield disconnected
    finally:
        watcher.cancel()
