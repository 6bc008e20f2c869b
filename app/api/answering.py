from time import perf_counter
from typing import Final, Protocol
from uuid import uuid4

import structlog
from starlette.requests import Request
from starlette.responses import Response

from app.api.body import HungUp, TooLarge, read_body
from app.api.decoding import Malformed
from app.api.gate import Gate
from app.api.protocol import Failure, encode
from app.scheduling.answers import TryAgain

JSON: Final = "application/json"
OK: Final = 200
BAD_REQUEST: Final = 400
TOO_LARGE: Final = 413
INTERNAL: Final = 500
UNAVAILABLE: Final = 503

_CLOSE: Final = {"Connection": "close"}
_LOG = structlog.get_logger(__name__)


class RequestMetrics(Protocol):
    """Counts calls; times in seconds."""

    def request(self, verb: str, outcome: str, seconds: float) -> None:
        """A call was answered."""
        ...


class Verb(Protocol):
    """One verb: reads the body, asks the use case, writes the answer."""

    async def __call__(self, body: bytes, request: Request) -> bytes:
        """The JSON of the answer.  Raises Malformed, TryAgain."""
        ...


class Answering:
    """Turns a verb into a handler that always answers in the protocol's terms: JSON, and words instead of tracebacks.

    kube-scheduler does not read the body of an answer other than 200.  So where the protocol has an `Error` field, failures are
    answered with 200; the other verbs can only fail by their status.
    """

    def __init__(self, gate: Gate, metrics: RequestMetrics, body_limit: int) -> None:
        self._gate = gate
        self._metrics = metrics
        self._limit = body_limit

    async def answer(self, name: str, verb: Verb, request: Request, *, in_words: bool) -> Response:
        """The answer to one call; `in_words`: the protocol has an `Error` field for this verb."""
        began = perf_counter()
        outcome, response = await self._outcome(name, verb, request, in_words=in_words)
        self._metrics.request(name, outcome, perf_counter() - began)
        return response

    async def _outcome(self, name: str, verb: Verb, request: Request, *, in_words: bool) -> tuple[str, Response]:
        try:
            if self._gate.reason is not None:
                return "closed", failure(f"{name}: {self._gate.reason}", OK if in_words else UNAVAILABLE, _CLOSE)
            body = await read_body(request, self._limit)
            return "ok", Response(await verb(body, request), media_type=JSON)
        except TryAgain as reason:
            _LOG.info("not now", verb=name, reason=str(reason))
            closing = _CLOSE if self._gate.reason is not None else None
            return "again", failure(str(reason), OK if in_words else INTERNAL, closing)
        except Malformed as problem:
            _LOG.warning("malformed request", verb=name, problem=str(problem))
            return "malformed", failure(str(problem), OK if in_words else BAD_REQUEST)
        except TooLarge as problem:
            _LOG.warning("request refused", verb=name, problem=str(problem))
            return "too_large", failure(f"{name}: {problem}", TOO_LARGE, _CLOSE if problem.endless else None)
        except HungUp:
            return "gone", failure(f"{name}: the caller hung up", BAD_REQUEST)
        except Exception:  # noqa: BLE001 - whatever happens, kube-scheduler gets an answer it can read
            number = uuid4().hex[:12]
            _LOG.exception("internal error", verb=name, id=number)
            return "internal", failure(f"internal error, see the log (id {number})", OK if in_words else INTERNAL)


def failure(sentence: str, status: int, headers: dict[str, str] | None = None) -> Response:
    """An answer that is only a reason; text that is no valid Unicode is made so."""
    text = sentence.encode(errors="replace").decode()
    return Response(encode(Failure(error=text)), status, headers, JSON)
