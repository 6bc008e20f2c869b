"""What answers where: the verbs on their listener, and on the one of the probes nothing but probes and metrics."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from dra_extender.config.settings import Settings
from dra_extender.service.server import ListenError, has_ipv6, listen
from dra_extender.service.wiring import assemble
from dra_extender.telemetry.metrics import Metrics

from tests.service.test_service import WatchedMemory
from tests.support.api.tls import NO_AUTHORITY, caller, issuer
from tests.support.turns import until_async

VERBS = ("/filter", "/prioritize", "/bind", "/preempt")
OTHERS = ("/docs", "/openapi.json", "/version", "/redoc", "/", "/debug/pprof", "/healthz")


class Answers:
    """Reviews tokens: `good` may read metrics, `poor` may not, others are nobody's."""

    async def review(self, token: str) -> tuple[str, bool]:
        return {"good": ("prometheus", True), "poor": ("somebody", False)}.get(token, ("", False))


class Both:
    """A running service with two listeners."""

    def __init__(self, verbs: httpx.AsyncClient, probes: httpx.AsyncClient) -> None:
        self.verbs = verbs
        self.probes = probes


@asynccontextmanager
async def running(tls: Path | None = None, **probes: Any) -> AsyncIterator[Both]:
    groups: dict[str, Any] = {
        "server": {"host": "127.0.0.1", "port": 0},
        "probes": {"host": "127.0.0.1", "port": 0, **probes},
    }
    context = NO_AUTHORITY
    if tls is not None:
        ours = issuer(tls)
        certificate, key = ours.server()
        groups["tls"] = {"cert_file": certificate, "private_key_file": key}
        context = caller(ours.bundle())
    settings = Settings(**groups)
    cluster, stop = WatchedMemory(), asyncio.Event()
    service = assemble(settings, cluster, Metrics(), reviewer=Answers())
    scheme = "http" if tls is None else "https"
    with listen("127.0.0.1", 0) as verbs, listen("127.0.0.1", 0) as others:
        cluster.complete.set()
        task = asyncio.create_task(service.serve(stop, verbs, others))
        async with (
            httpx.AsyncClient(
                base_url=f"http://127.0.0.1:{verbs.getsockname()[1]}", verify=NO_AUTHORITY, timeout=60
            ) as first,
            httpx.AsyncClient(
                base_url=f"{scheme}://localhost:{others.getsockname()[1]}", timeout=60, verify=context
            ) as second,
        ):
            both = Both(first, second)

            async def is_ready() -> bool:
                return (await first.get("/readyz")).status_code == 200

            await until_async(is_ready)
            try:
                yield both
            finally:
                stop.set()
                await task


async def test_the_listener_of_the_probes_answers_probes_and_metrics_and_nothing_else() -> None:
    async with running() as both:
        assert (await both.probes.get("/livez")).text == "ok"
        assert (await both.probes.get("/readyz")).text == "ok"
        assert "dra_extender_leader" in (await both.probes.get("/metrics")).text
        for verb in VERBS:
            for method in ("POST", "GET", "PUT"):
                assert (await both.probes.request(method, verb, json={})).status_code == 404
        for path in OTHERS:
            assert (await both.probes.get(path)).status_code == 404
        assert (await both.verbs.post("/filter", json={"Pod": {"metadata": {"name": "p"}}, "NodeNames": []})).is_success


async def test_metrics_can_be_switched_off_there() -> None:
    async with running(metrics="off") as both:
        assert (await both.probes.get("/metrics")).status_code == 404
        assert (await both.probes.get("/livez")).text == "ok"
        assert (await both.verbs.get("/metrics")).is_success


async def test_metrics_for_authorized_callers_alone_and_probes_for_all(tmp_path: Path) -> None:
    async with running(tls=tmp_path / "tls", metrics="authorized") as both:
        assert (await both.probes.get("/livez")).text == "ok"
        expected = {
            "": 401,
            "Bearer": 401,
            "Basic good": 401,
            "Bearer wrong": 401,
            "Bearer poor": 403,
            "Bearer good": 200,
        }
        for header, status in expected.items():
            answer = await both.probes.get("/metrics", headers={"Authorization": header} if header else {})
            assert answer.status_code == status, header
            assert ("dra_extender_leader" in answer.text) is (status == 200)
        assert (await both.probes.get("/metrics")).headers["WWW-Authenticate"] == "Bearer"
        await both.probes.aclose()


async def test_verbs_and_probes_share_one_listener_if_there_is_no_other() -> None:
    """At a desk."""
    cluster, stop = WatchedMemory(), asyncio.Event()
    service = assemble(Settings(), cluster, Metrics())
    with listen("127.0.0.1", 0) as listener:
        task = asyncio.create_task(service.serve(stop, listener))
        async with httpx.AsyncClient(
            base_url=f"http://127.0.0.1:{listener.getsockname()[1]}", verify=NO_AUTHORITY, timeout=60
        ) as client:
            for path in ("/livez", "/metrics", "/version", "/openapi.json"):
                assert (await client.get(path)).is_success
        stop.set()
        await task


@pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6")
def test_a_star_is_every_address_of_both_families() -> None:
    with listen("*", 0) as listener:
        port = listener.getsockname()[1]
        for address in ("127.0.0.1", "::1"):
            with socket.create_connection((address, port), timeout=10):
                pass


def test_a_star_works_where_ipv6_is_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dra_extender.service.server.has_ipv6", lambda: False)
    with listen("*", 0) as listener:
        assert listener.family == socket.AF_INET


@pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6")
def test_an_ipv6_address_is_that_family_alone() -> None:
    with listen("::1", 0) as listener:
        assert listener.getsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY) == 1


def test_a_taken_port_is_said() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with (
            pytest.raises(ListenError, match=f"cannot listen on 127.0.0.1, port {port}: Address already in use"),
            listen("127.0.0.1", port),
        ):
            pass


def test_an_unknown_address_is_said() -> None:
    with (
        pytest.raises(ListenError, match=r"cannot listen on no\.such\.host\.invalid, port 0: "),
        listen("no.such.host.invalid", 0),
    ):
        pass
