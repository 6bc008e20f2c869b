"""What the service has in memory alone, for those who can connect from inside its pod, as `kubectl port-forward` does.

The listener may serve a whole network, so the route looks at the connection: the peer's address must be a loopback address, the
host that the request names as well (see `request_guard`), and no proxy may stand between.
"""

from collections.abc import Callable
from http import HTTPStatus
from time import monotonic
from typing import Final

from fastapi import FastAPI, Request
from starlette.responses import Response

from dra_extender.api.dispatch import JSON, as_response, failure
from dra_extender.api.protocol import encode
from dra_extender.api.request_guard import RequestGuard
from dra_extender.config.listener_settings import is_loopback
from dra_extender.model.api_json import Value
from dra_extender.runtime.token_bucket import TokenBucket
from dra_extender.scheduling.hold_report import HoldReport
from dra_extender.scheduling.recent_decisions import DecisionReport

HOLDS: Final = "/debug/holds"
DECISIONS: Final = "/debug/decisions"
RATE: Final = 1.0
"""Answers per second that each path gives in the long run."""
BURST: Final = 5.0
_GUARD: Final = RequestGuard(loopback=True)
_OF_PROXIES: Final = ("forwarded", "x-forwarded-for", "x-forwarded-host", "via")


def add_debug(
    app: FastAPI,
    holds: Callable[[], HoldReport],
    decisions: Callable[[], DecisionReport],
    clock: Callable[[], float] = monotonic,
) -> None:
    """Serve GET /debug/holds and /debug/decisions."""
    of_holds = _Limited(HOLDS, holds, clock)
    of_decisions = _Limited(DECISIONS, decisions, clock)

    @app.get(HOLDS, tags=["operations"], include_in_schema=False)
    async def held(request: Request) -> Response:
        """What is held for pods that wait, and the plans of gangs."""
        return of_holds.answer(request)

    @app.get(DECISIONS, tags=["operations"], include_in_schema=False)
    async def decided(request: Request) -> Response:
        """The latest decisions, and what else the replica says of itself."""
        return of_decisions.answer(request)


class _Limited:
    """Answers with a report, to callers on the loopback address, as often as RATE allows."""

    def __init__(self, path: str, source: Callable[[], Value], clock: Callable[[], float]) -> None:
        self._path = path
        self._source = source
        self._clock = clock
        self._bucket = TokenBucket(RATE, BURST, clock())

    def answer(self, request: Request) -> Response:
        refusal = _refusal(request)
        if refusal:
            return as_response(failure(f"{self._path}: {refusal}", HTTPStatus.FORBIDDEN))
        now = self._clock()
        if not self._bucket.take(now):
            response = as_response(
                failure(f"{self._path}: at most {RATE:g} answer a second", HTTPStatus.TOO_MANY_REQUESTS)
            )
            response.headers["Retry-After"] = str(max(1, round(self._bucket.wait(now))))
            return response
        return Response(encode(self._source()), media_type=JSON, headers={"Cache-Control": "no-store"})


def _refusal(request: Request) -> str:
    """Why the request is not answered; empty if it is."""
    if request.client is None or not is_loopback(request.client.host):
        return "is answered on the loopback address of the pod alone, e.g. through kubectl port-forward"
    if any(name in request.headers for name in _OF_PROXIES):
        return "is not answered through a proxy"
    refusal = _GUARD.refusal(request.method.encode(), request.headers.raw)
    return refusal.sentence if refusal is not None else ""
