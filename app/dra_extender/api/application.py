"""The routes: the verbs of the extender protocol; probes, metrics and the version for kubelet, Prometheus and people.

FastAPI takes a millisecond to make a route.  So the routes are made once, and an endpoint finds in the state of its application
who answers.
"""

import asyncio
import platform
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from http import HTTPStatus
from typing import Any, Final

from fastapi import APIRouter, FastAPI, Request
from fastapi.routing import APIRoute
from fastapi.telemetry import TelemetryConfig
from starlette.exceptions import HTTPException
from starlette.responses import PlainTextResponse, Response
from starlette.routing import request_response

from dra_extender.api import openapi as docs
from dra_extender.api.calls import JSON, VerbCalls, VerbGate, failure
from dra_extender.api.health import Health, HealthReport
from dra_extender.api.protocol import encode
from dra_extender.api.scrape_access import ScrapeAccess
from dra_extender.api.verbs import Verbs, verb_handlers
from dra_extender.config.service_settings import ServerSettings
from dra_extender.runtime.installation import build_version
from dra_extender.telemetry.metrics import CONTENT_TYPE, Metrics


class CallRoute(APIRoute):
    """Gives the request to its endpoint, which takes nothing else, as a route of Starlette does.

    FastAPI would spend some 40 us on looking for arguments and on stacks for their contexts.
    """

    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        super().__init__(path, endpoint, **options)
        self.app = request_response(endpoint)


_HEALTH: Final = APIRouter(route_class=CallRoute, tags=["operations"])
_METRICS: Final = APIRouter(route_class=CallRoute, tags=["operations"])
_VERSION: Final = APIRouter(route_class=CallRoute, tags=["operations"])
_VERBS: Final = APIRouter(route_class=CallRoute, tags=["extender"])


@_HEALTH.get("/livez", response_class=PlainTextResponse)
async def livez(request: Request) -> Response:
    """Tell whether the process works; `?verbose` lists the checks."""
    health: Health = request.app.state.health
    return _health_response(health.livez(), request)


@_HEALTH.get(
    "/readyz",
    response_class=PlainTextResponse,
    responses={503: {"description": "A check failed; the text says which"}},
)
async def readyz(request: Request) -> Response:
    """Tell whether calls of kube-scheduler are answered.

    `?verbose` lists the checks and what else is worth knowing; `?exclude=leader` leaves a check out: a replica that stands by
    is healthy then.
    """
    health: Health = request.app.state.health
    return _health_response(health.readyz(request.query_params.getlist("exclude")), request)


@_METRICS.get("/metrics", response_class=PlainTextResponse)
async def scrape(request: Request) -> Response:
    """Metrics in Prometheus' text format."""
    metrics: Metrics = request.app.state.metrics
    access: ScrapeAccess | None = request.app.state.access
    if access is not None:
        client = request.client.host if request.client is not None else ""
        refusal = await access.refusal(request.headers.get("authorization", ""), client)
        if refusal is not None:
            return Response(encode({"Error": refusal.sentence}), refusal.status, refusal.headers, JSON)
    # Calls that have just been answered are counted first.
    await asyncio.sleep(0)
    return Response(await metrics.render(), headers={"Content-Type": CONTENT_TYPE})


@_VERSION.get("/version", responses={200: {"model": docs.VersionInfo}})
async def show_version(_: Request) -> Response:
    """Tell what is running."""
    facts = {
        "version": build_version(),
        "python": platform.python_version(),
        "implementation": platform.python_implementation(),
        "platform": f"{platform.system().lower()}/{platform.machine()}",
    }
    return Response(encode(facts), media_type=JSON)


@_VERBS.post(
    "/filter",
    responses={200: {"model": docs.ExtenderFilterResult}, **docs.failures(errors_in_body=True)},
    openapi_extra=docs.request_body(docs.FilterArguments),
)
async def filter_nodes(request: Request) -> Response:
    """Find the nodes that can give the pod its devices, and say why the others cannot."""
    return await _answer(request, "filter")


@_VERBS.post(
    "/prioritize",
    responses={200: {"model": list[docs.HostPriority]}, **docs.failures(errors_in_body=False)},
    openapi_extra=docs.request_body(docs.FilterArguments),
)
async def prioritize(request: Request) -> Response:
    """Score the nodes from 0 to 10."""
    return await _answer(request, "prioritize")


@_VERBS.post(
    "/bind",
    responses={200: {"model": docs.BindingResult}, **docs.failures(errors_in_body=True)},
    openapi_extra=docs.request_body(docs.BindingArguments),
)
async def bind(request: Request) -> Response:
    """Allocate the pod's devices, wait until they are ready, and bind the pod."""
    return await _answer(request, "bind")


@_VERBS.post(
    "/preempt",
    responses={200: {"model": docs.PreemptionResult}, **docs.failures(errors_in_body=False)},
    openapi_extra=docs.request_body(docs.PreemptionArguments),
)
async def preempt(request: Request) -> Response:
    """Find the nodes on which evicting the proposed victims would help the pod."""
    return await _answer(request, "preempt")


async def _answer(request: Request, verb: str) -> Response:
    answers: Mapping[str, Callable[[Request], Awaitable[Response]]] = request.app.state.answers
    return await answers[verb](request)


def _health_response(report: HealthReport, request: Request) -> Response:
    if not report.ok:
        return PlainTextResponse(report.verbose + "\n", HTTPStatus.SERVICE_UNAVAILABLE)
    return PlainTextResponse(report.verbose + "\n" if "verbose" in request.query_params else "ok")


_NO_TELEMETRY: Final[TelemetryConfig] = {"tracing": False, "metrics": False, "logs": False}
"""FastAPI's own spans and metrics, beside those of the service (docs/reference/traces.md), would cost each call some 10 us."""
_VERB_PATHS: Final = "the verbs are /filter, /prioritize, /bind and /preempt"


def create_app(
    verbs: Verbs,
    health: Health,
    metrics: Metrics,
    settings: ServerSettings,
    gate: VerbGate | None = None,
) -> FastAPI:
    """Return the HTTP side: the verbs of the extender protocol, health, metrics, version and the OpenAPI document.

    `gate` decides whether the verbs are answered; None means always.
    """
    app = FastAPI(
        title="dra-extender",
        summary="Dynamic Resource Allocation beside an unmodified kube-scheduler",
        version=build_version(),
        # FastAPI's page runs scripts of another site in the origin of the verbs.
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        telemetry=_NO_TELEMETRY,
    )
    calls = VerbCalls(gate or VerbGate(None), metrics, settings.body_limit_bytes)
    app.state.answers = {
        verb: partial(calls.answer, verb=verb, handle=handle) for verb, handle in verb_handlers(verbs).items()
    }
    app.state.health, app.state.metrics, app.state.access = health, metrics, None
    # kube-scheduler waits for the verbs: their routes are looked at first.
    app.router.routes[:0] = [route for router in (_VERBS, _HEALTH, _METRICS, _VERSION) for route in router.routes]
    _add_errors(app, _VERB_PATHS)
    return app


def create_probe_app(health: Health, metrics: Metrics | None, access: ScrapeAccess | None = None) -> FastAPI:
    """Return what answers on a listener of its own: probes, and metrics if there are any here.

    `access` decides who may read metrics; None means all.
    """
    app = FastAPI(openapi_url=None, redirect_slashes=False, telemetry=_NO_TELEMETRY)
    app.state.health, app.state.metrics, app.state.access = health, metrics, access
    app.router.routes.extend(_HEALTH.routes)
    if metrics is not None:
        app.router.routes.extend(_METRICS.routes)
    _add_errors(app, "the verbs are served elsewhere")
    return app


def _add_errors(app: FastAPI, paths: str) -> None:
    """Answer 404 and 405 with sentences in JSON; `paths` says what is where."""

    async def answer(request: Request, problem: Exception) -> Response:
        status = problem.status_code if isinstance(problem, HTTPException) else HTTPStatus.NOT_FOUND
        headers = dict(problem.headers or {}) if isinstance(problem, HTTPException) else {}
        path = request.url.path
        if status == HTTPStatus.METHOD_NOT_ALLOWED:
            sentence = f"{path}: expected method {headers.get('Allow', 'another')}, got {request.method}"
        elif status == HTTPStatus.NOT_FOUND:
            sentence = f"{path} does not exist; {paths}"
        else:
            sentence = f"{path}: {problem}"
        response = failure(sentence, status)
        response.headers.update(headers)
        return response

    app.add_exception_handler(HTTPException, answer)
