"""What kubelet and Prometheus ask: probes, metrics and the version."""

import asyncio
import platform
from http import HTTPStatus
from typing import Protocol

from fastapi import FastAPI, Request
from starlette.responses import PlainTextResponse, Response

from dra_extender.api import openapi as docs
from dra_extender.api.calls import JSON, RequestMetrics
from dra_extender.api.health import Health, HealthReport
from dra_extender.api.protocol import encode
from dra_extender.api.scrape_access import ScrapeAccess
from dra_extender.telemetry.metrics import CONTENT_TYPE, build_version


class ScrapedMetrics(RequestMetrics, Protocol):
    """Counts calls and can be scraped."""

    async def render(self) -> bytes:
        """Return the exposition in Prometheus' text format 0.0.4."""
        ...


def add_health(app: FastAPI, health: Health) -> None:
    """Serve /livez and /readyz."""

    @app.get("/livez", tags=["operations"], response_class=PlainTextResponse)
    async def livez(request: Request) -> Response:
        """Tell whether the process works; `?verbose` lists the checks."""
        return _health_response(health.live(), request)

    @app.get(
        "/readyz",
        tags=["operations"],
        response_class=PlainTextResponse,
        responses={503: {"description": "A check failed; the text says which"}},
    )
    async def readyz(request: Request) -> Response:
        """Tell whether calls of kube-scheduler are answered.

        `?verbose` lists the checks and what else is worth knowing; `?exclude=leader` leaves a check out: a replica that stands by
        is healthy then.
        """
        return _health_response(health.ready(request.query_params.getlist("exclude")), request)


def add_metrics(app: FastAPI, metrics: ScrapedMetrics, access: ScrapeAccess | None = None) -> None:
    """Serve /metrics to the callers that `access` admits; None: to all."""

    @app.get("/metrics", tags=["operations"], response_class=PlainTextResponse)
    async def scrape(request: Request) -> Response:
        """Metrics in Prometheus' text format."""
        if access is not None:
            client = request.client.host if request.client is not None else ""
            refusal = await access.refusal(request.headers.get("authorization", ""), client)
            if refusal is not None:
                return Response(encode({"Error": refusal.sentence}), refusal.status, refusal.headers, JSON)
        # Calls that have just been answered are counted first.
        await asyncio.sleep(0)
        return Response(await metrics.render(), headers={"Content-Type": CONTENT_TYPE})


def add_version(app: FastAPI) -> None:
    """Serve /version."""
    version = encode(
        {
            "version": build_version(),
            "python": platform.python_version(),
            "implementation": platform.python_implementation(),
            "platform": f"{platform.system().lower()}/{platform.machine()}",
        }
    )

    @app.get("/version", tags=["operations"], responses={200: {"model": docs.VersionInfo}})
    async def show_version() -> Response:
        """Tell what is running."""
        return Response(version, media_type=JSON)


def _health_response(report: HealthReport, request: Request) -> Response:
    if not report.ok:
        return PlainTextResponse(report.verbose + "\n", HTTPStatus.SERVICE_UNAVAILABLE)
    return PlainTextResponse(report.verbose + "\n" if "verbose" in request.query_params else report.short)
