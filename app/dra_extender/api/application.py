from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Final

from fastapi import FastAPI, Request
from fastapi.openapi.utils import get_openapi
from starlette.exceptions import HTTPException
from starlette.responses import Response

from dra_extender.api import openapi as docs
from dra_extender.api.dispatch import (
    JSON,
    DirectVerb,
    VerbDispatcher,
    VerbHandler,
    VerbsFirst,
    as_response,
    failure,
)
from dra_extender.api.docs_page import add_docs
from dra_extender.api.handlers import Verbs, verb_handlers
from dra_extender.api.health import Health, ReadinessGate
from dra_extender.api.operations import ScrapedMetrics, add_health, add_metrics, add_version
from dra_extender.api.scrape_access import ScrapeAccess
from dra_extender.config.service_settings import ServerSettings
from dra_extender.telemetry.metrics import build_version

_ERRORS_IN_BODY: Final = frozenset({"filter", "bind"})


def create_app(
    verbs: Verbs,
    health: Health,
    metrics: ScrapedMetrics,
    settings: ServerSettings,
    gate: ReadinessGate | None = None,
) -> FastAPI:
    """The HTTP side: the verbs of the extender protocol, health, metrics and version.

    `gate` decides whether the verbs are answered; None means always.
    """
    gate = gate or ReadinessGate(None)
    app = VerbsFirst(
        title="dra-extender",
        summary="Dynamic Resource Allocation beside an unmodified kube-scheduler",
        version=build_version(),
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    _add_verbs(app, verb_handlers(verbs), VerbDispatcher(gate, metrics, settings.body_limit_bytes))
    add_health(app, health)
    add_metrics(app, metrics)
    add_version(app)
    add_docs(app, lambda: _document(app))
    app.add_exception_handler(HTTPException, _http_error)
    app.openapi = lambda: _document(app)  # type: ignore[method-assign]  # FastAPI's documented way to extend the document
    return app


def create_probe_app(health: Health, metrics: ScrapedMetrics | None, access: ScrapeAccess | None = None) -> FastAPI:
    """What answers on a listener of its own: probes, and metrics if there are any here.

    `access` decides who may read metrics; None means all.
    """
    app = FastAPI(openapi_url=None, redirect_slashes=False)
    add_health(app, health)
    if metrics is not None:
        add_metrics(app, metrics, access)
    app.add_exception_handler(HTTPException, _http_error)
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


async def _http_error(request: Request, problem: Exception) -> Response:
    """404 and 405 as sentences in JSON."""
    status = problem.status_code if isinstance(problem, HTTPException) else HTTPStatus.NOT_FOUND
    headers = dict(problem.headers or {}) if isinstance(problem, HTTPException) else {}
    path = request.url.path
    if status == HTTPStatus.METHOD_NOT_ALLOWED:
        sentence = f"{path}: expected method {headers.get('Allow', 'another')}, got {request.method}"
    elif status == HTTPStatus.NOT_FOUND:
        verbs = "the verbs are /filter, /prioritize, /bind and /preempt"
        sentence = f"{path} does not exist; {verbs if isinstance(request.app, VerbsFirst) else 'the verbs are served elsewhere'}"
    else:
        sentence = f"{path}: {problem}"
    return Response(failure(sentence, status).body, status, headers, JSON)


def _document(app: FastAPI) -> dict[str, Any]:
    if app.openapi_schema is None:
        app.openapi_schema = docs.with_requests(
            get_openapi(title=app.title, version=app.version, summary=app.summary, routes=app.routes)
        )
    return app.openapi_schema
