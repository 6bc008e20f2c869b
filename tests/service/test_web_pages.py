"""What a web page could make a browser send to a forwarded port is refused by every listener, on every path."""

import asyncio
import json
from typing import Final

import pytest
from dra_extender.config.settings import Settings
from dra_extender.service.server import listen
from dra_extender.service.wiring import assemble
from dra_extender.telemetry.metrics import Metrics

from tests.service.test_listeners import VERBS, running
from tests.service.test_service import WatchedMemory
from tests.support.api.serving import answer_to, serve
from tests.support.turns import until_async

JSON: Final = "Content-Type: application/json"
BODY: Final = b'{"Pod":{"metadata":{"name":"p"}},"NodeNames":[]}'
PATHS: Final = ("/livez", "/readyz", "/metrics", "/debug/holds", "/debug/decisions", "/none")
REFUSED: Final = {
    "another name": (400, ["Host: attacker.example"]),
    "two hosts": (400, ["Host: localhost", "Host: localhost"]),
    "two hosts in two cases": (400, ["Host: localhost", "hOST: attacker.example"]),
    "another origin": (403, ["Host: localhost", "Origin: https://attacker.example"]),
    "no origin to tell": (403, ["Host: localhost", "Origin: null"]),
    "another port": (403, ["Host: localhost", "Origin: http://localhost:3000"]),
    "another site": (403, ["Host: localhost", "Sec-Fetch-Site: cross-site"]),
}


@pytest.mark.parametrize(("status", "headers"), REFUSED.values(), ids=REFUSED)
async def test_every_listener_refuses_what_a_page_of_another_site_makes_a_browser_send(
    status: int, headers: list[str]
) -> None:
    async with running() as both:
        for client in (both.verbs, both.probes):
            port = client.base_url.port or 0
            for path in PATHS:
                assert (await answer_to(port, "GET", path, headers))[0] == status, path
            for path in VERBS:
                assert (await answer_to(port, "POST", path, [*headers, JSON], BODY))[0] == status, path
            assert (await answer_to(port, "OPTIONS", "/filter", [*headers, JSON]))[0] == status


@pytest.mark.parametrize("content_type", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""])
async def test_verbs_refuse_what_a_form_can_send(content_type: str) -> None:
    headers = ["Host: localhost", *([f"Content-Type: {content_type}"] if content_type else [])]
    async with serve() as server:
        for path in VERBS:
            status, body = await answer_to(server.port, "POST", path, headers, BODY)
            assert status == 415
            assert json.loads(body)["Error"].startswith("expected Content-Type application/json, got ")
        assert (server.site.verbs.filtered, server.site.verbs.bound, server.site.verbs.proposed) == ([], [], [])
        assert await server.metric("closed_connections_total", reason="content_type") == len(VERBS)


@pytest.mark.parametrize(
    "host", ["127.0.0.1:8080", "localhost:40123", "[::1]:8080", "dra-extender", "dra-extender.dra-extender.svc:8080"]
)
async def test_kube_scheduler_kubelet_prometheus_and_port_forward_are_answered(host: str) -> None:
    async with running() as both:
        verbs, probes = both.verbs.base_url.port or 0, both.probes.base_url.port or 0
        scheduler = [f"Host: {host}", "User-Agent: Go-http-client/1.1", JSON, "Accept-Encoding: gzip"]
        assert (await answer_to(verbs, "POST", "/filter", scheduler, BODY))[0] == 200
        for path in ("/livez", "/readyz", "/metrics"):
            assert (await answer_to(probes, "GET", path, [f"Host: {host}", "User-Agent: kube-probe/1.37"]))[0] == 200


async def test_further_names_are_those_of_the_setting_and_a_refusal_is_told_and_counted() -> None:
    settings = Settings.model_validate({"server": {"allowed_hosts": ["extender.example.com"]}})
    cluster, stop, metrics = WatchedMemory(), asyncio.Event(), Metrics()
    cluster.complete.set()
    service = assemble(settings, cluster, metrics)
    with listen("127.0.0.1", 0) as listener:
        port = listener.getsockname()[1]
        task = asyncio.create_task(service.serve(stop, listener))

        async def is_ready() -> bool:
            return (await answer_to(port, "GET", "/readyz", ["Host: extender.example.com:8443"]))[0] == 200

        await until_async(is_ready)
        status, body = await answer_to(port, "POST", "/filter", ["Host: other.example.com", JSON], BODY)
        assert (status, json.loads(body)["Error"]) == (
            400,
            (
                "expected an address, or a name of this cluster, as host, got 'other.example.com'; other names are accepted"
                " if the setting server.allowed_hosts has them"
            ),
        )
        await metrics.render()
        assert metrics.registry.get_sample_value("dra_extender_closed_connections_total", {"reason": "host"}) == 1
        stop.set()
        await task
