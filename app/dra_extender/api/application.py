import asyncio
import platform
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

from fastapi import FastAPI, Request
from fastapi.openapi.utils import get_openapi
from starlette.exceptions import HTTPException
from starlette.responses import PlainTextResponse, Response

from dra_extender.api import openapi as docs
from dra_extender.api.dispatch import (
    JSON,
    UNAVAILABLE,
    DirectVerb,
    RequestMetrics,
    VerbDispatcher,
    VerbHandler,
    VerbsFirst,
    as_response,
    failure,
)
from dra_extender.api.handlers import Verbs, verb_handlers
from dra_extender.api.health import Health, HealthReport, ReadinessGate
from dra_extender.api.protocol import encode
from dra_extender.config.service_settings import ServerSettings
from dra_extender.telemetry.metrics import CONTENT_TYPE, build_version

_ERRORS_IN_BODY: Final = frozenset({"filter", "bind"})
_NOT_FOUND = 404
_METHOD = 405


class ScrapedMetrics(RequestMetrics, Protocol):
    """Counts calls and can be scraped."""

    async def render(self) -> bytes:
        """The exposition in Prometheus' text format 0.0.4."""
        ...


def create_app(
    verbs: Verbs,
    health: Health,
    metrics: ScrapedMetrics,
    settings: ServerSettings,
    gate: ReadinessGate | None = None,
    *,
    around: Callable[[str, VerbHandler], VerbHandler] = lambda _, handler: handler,
) -> FastAPI:
    """The HTTP side: the verbs of the extender protocol, health, metrics and version.

    `gate` decides whether the verbs are answered; None means always.  `around` puts something around the handler of a verb.
    """
    gate = gate or ReadinessGate(None)
    app = VerbsFirst(
        title="dra-extender",
        summary="Dynamic Resource Allocation beside an unmodified kube-scheduler",
        version=build_version(),
        redoc_url=None,
        redirect_slashes=False,
    )
    handlers = {verb: around(verb, handler) for verb, handler in verb_handlers(verbs).items()}
    _add_verbs(app, handlers, VerbDispatcher(gate, metrics, settings.body_limit_bytes))
    _add_operations(app, health, metrics)
    app.add_exception_handler(HTTPException, _http_error)
    app.openapi = lambda: _document(app)  # type: ignore[method-assign]  # FastAPI's documented way to extend the document
    return app


def _add_verbs(app: VerbsFirst, handlers: Mapping[str, VerbHandler], dispatcher: VerbDispatcher) -> None:
    async def respond(verb: DirectVerb, request: Request) -> Response:
        response = dispatcher.dispatch(
            verb.name, verb.handler, request.scope, request.receive, errors_in_body=verb.errors_in_body
        )
        return as_response(await response)

    direct = {
        f"/{verb}": DirectVerb(verb, handler, errors_in_body=verb in _ERRORS_IN_BODY)
        for verb, handler in handlers.items()
    }
    app.dispatch_first(direct, dispatcher)

    @app.post(
        "/filter",
        tags=["extender"],
        responses={200: {"model": docs.ExtenderFilterResult}, **docs.failures(errors_in_body=True)},
        openapi_extra=docs.request_body(docs.FilterArguments),
    )
    async def filter_nodes(request: Request) -> Response:
        """Which nodes can give the pod its devices, and why the others cannot."""
        return await respond(direct["/filter"], request)

    @app.post(
        "/prioritize",
        tags=["extender"],
        responses={200: {"model": list[docs.HostPriority]}, **docs.failures(errors_in_body=False)},
        openapi_extra=docs.request_body(docs.FilterArguments),
    )
    async def prioritize(request: Request) -> Response:
        """Which nodes are better, from 0 to 10."""
        return await respond(direct["/prioritize"], request)

    @app.post(
        "/bind",
        tags=["extender"],
        responses={200: {"model": docs.BindingResult}, **docs.failures(errors_in_body=True)},
        openapi_extra=docs.request_body(docs.BindingArguments),
    )
    async def bind(request: Request) -> Response:
        """Allocate the pod's devices, wait until they are ready, and bind the pod."""
        return await respond(direct["/bind"], request)

    @app.post(
        "/preempt",
        tags=["extender"],
        responses={200: {"model": docs.PreemptionResult}, **docs.failures(errors_in_body=False)},
        openapi_extra=docs.request_body(docs.PreemptionArguments),
    )
    async def preempt(request: Request) -> Response:
        """On which nodes evicting the proposed victims would help the pod."""
        return await respond(direct["/preempt"], request)


def _add_operations(app: FastAPI, health: Health, metrics: ScrapedMetrics) -> None:
    version = encode(
        {
            "version": build_version(),
            "python": platform.python_version(),
            "implementation": platform.python_implementation(),
            "platform": f"{platform.system().lower()}/{platform.machine()}",
        }
    )

    @app.get("/livez", tags=["operations"], response_class=PlainTextResponse)
    async def livez(request: Request) -> Response:
        """Whether the process works; `?verbose` lists the checks."""
        return _health_response(health.live(), request)

    @app.get(
        "/readyz",
        tags=["operations"],
        response_class=PlainTextResponse,
        responses={503: {"description": "A check failed; the text says which"}},
    )
    async def readyz(request: Request) -> Response:
        """Whether calls of kube-scheduler are answered.

        `?verbose` lists the checks and what else is worth knowing; `?exclude=leader` leaves a check out: a replica that stands by
        is healthy then.
        """
        return _health_response(health.ready(request.query_params.getlist("exclude")), request)

    @app.get("/metrics", tags=["operations"], response_class=PlainTextResponse)
    async def scrape() -> Response:
        """Metrics in Prometheus' text format."""
        # Calls that have just been answered are counted first.
        await asyncio.sleep(0)
        return Response(await metrics.render(), headers={"Content-Type": CONTENT_TYPE})

    @app.get("/version", tags=["operations"], responses={200: {"model": docs.VersionInfo}})
    async def show_version() -> Response:
        """What is running."""
        return Response(version, media_type=JSON)


def _health_response(report: HealthReport, request: Request) -> Response:
    if not report.ok:
        return PlainTextResponse(report.verbose + "\n", UNAVAILABLE)
    return PlainTextResponse(report.verbose + "\n" if "verbose" in request.query_params else report.short)


async def _http_error(request: Request, problem: Exception) -> Response:
    """404 and 405 as sentences in JSON."""
    status = problem.status_code if isinstance(problem, HTTPException) else _NOT_FOUND
    headers = dict(problem.headers or {}) if isinstance(problem, HTTPException) else {}
    path = request.url.path
    if status == _METHOD:
        sentence = f"{path}: expected method {headers.get('Allow', 'another')}, got {request.method}"
    elif status == _NOT_FOUND:
        sentence = f"{path} does not exist; the verbs are /filter, /prioritize, /bind and /preempt"
    else:
        sentence = f"{path}: {problem}"
    return Response(failure(sentence, status).body, status, headers, JSON)


def _document(app: FastAPI) -> dict[str, Any]:
    if app.openapi_schema is None:
        app.openapi_schema = docs.with_requests(
            get_openapi(title=app.title, version=app.version, summary=app.summary, routes=app.routes)
        )
    return app.openapi_schema
