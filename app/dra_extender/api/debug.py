"""What the service has only in memory, for whoever can connect from inside its pod, as `kubectl port-forward` does.

The listener may serve a whole network, so the route looks at the connection: the peer's address must be a loopback address, the
host that the request names as well (see `browser_guard`), and no proxy may stand between.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from time import monotonic
from typing import Final

from fastapi import APIRouter, FastAPI, Request
from starlette.responses import Response

from dra_extender.api.application import CallRoute
from dra_extender.api.browser_guard import BrowserGuard
from dra_extender.api.calls import JSON, failure
from dra_extender.api.protocol import encode
from dra_extender.config.service_settings import is_loopback
from dra_extender.model.api_json import Value
from dra_extender.runtime.token_bucket import TokenBucket
from dra_extender.scheduling.hold_report import HOLDS_PATH, HoldReport
from dra_extender.scheduling.recent_decisions import DECISIONS_PATH, DecisionReport

RATE: Final = 1.0
"""Answers per second that each path gives in the long run."""
BURST: Final = 5.0
_GUARD: Final = BrowserGuard(loopback=True)
_OF_PROXIES: Final = ("forwarded", "x-forwarded-for", "x-forwarded-host", "via")


@dataclass(frozen=True)
class _Report:
    make: Callable[[], Value]
    clock: Callable[[], float]
    bucket: TokenBucket


def add_debug(
    app: FastAPI,
    holds: Callable[[], HoldReport],
    decisions: Callable[[], DecisionReport],
    clock: Callable[[], float] = monotonic,
) -> None:
    """Serve what is held for pods that wait at /debug/holds, and the latest decisions at /debug/decisions."""
    makers: Mapping[str, Callable[[], Value]] = {HOLDS_PATH: holds, DECISIONS_PATH: decisions}
    app.state.reports = {path: _Report(make, clock, TokenBucket(RATE, BURST, clock())) for path, make in makers.items()}
    app.router.routes.extend(_ROUTER.routes)


_ROUTER: Final = APIRouter(route_class=CallRoute, include_in_schema=False)


@_ROUTER.get(DECISIONS_PATH)
@_ROUTER.get(HOLDS_PATH)
async def _answer(request: Request) -> Response:
    path = request.url.path
    report: _Report = request.app.state.reports[path]
    refusal = _refusal(request)
    if refusal:
        return failure(f"{path}: {refusal}", HTTPStatus.FORBIDDEN)
    now = report.clock()
    if not report.bucket.take(now):
        response = failure(f"{path}: at most {RATE:g} answer a second", HTTPStatus.TOO_MANY_REQUESTS)
        response.headers["Retry-After"] = str(max(1, round(report.bucket.wait(now))))
        return response
    return Response(encode(report.make()), media_type=JSON, headers={"Cache-Control": "no-store"})


def _refusal(request: Request) -> str:
    """Return why the request is not answered; empty if it is."""
    if request.client is None or not is_loopback(request.client.host):
        return "is answered only on the loopback address of the pod, for example through kubectl port-forward"
    if any(name in request.headers for name in _OF_PROXIES):
        return "is not answered through a proxy"
    refusal = _GUARD.refusal(request.method.encode(), request.headers.raw)
    return refusal.sentence if refusal is not None else ""
