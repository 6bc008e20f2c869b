from collections.abc import Mapping

import httpx
from dra_extender.api.health import Health

from tests.support.api.sites import Site


async def test_ready_is_short_unless_asked(client: httpx.AsyncClient, site: Site) -> None:
    site.health.add_checks("source", lambda: {"ledger": None})
    answer = await client.get("/readyz")
    assert (answer.status_code, answer.text) == (200, "ok")


async def test_verbose_lists_checks_and_notes_like_kubernetes_does(client: httpx.AsyncClient, site: Site) -> None:
    site.health.add_checks("source", lambda: {"ledger": None})
    site.health.add_notes("source", lambda: {"compatibility-groups": "not served\nby this API server"})
    answer = await client.get("/readyz?verbose")
    assert answer.text == (
        "[+]ping ok\n[+]ledger ok\n[i]compatibility-groups: not served by this API server\nreadyz check passed\n"
    )


async def test_one_failed_check_makes_unready_and_is_always_named(client: httpx.AsyncClient, site: Site) -> None:
    checks: dict[str, str | None] = {"watch-pods": "not in contact for 200 s", "watch-nodes": None}
    site.health.add_checks("source", lambda: checks)
    answer = await client.get("/readyz")
    assert answer.status_code == 503
    assert "[-]watch-pods failed: not in contact for 200 s\n[+]watch-nodes ok\nreadyz check failed\n" in answer.text
    checks["watch-pods"] = None
    assert (await client.get("/readyz")).status_code == 200


async def test_a_check_can_be_left_out_as_probes_of_a_standby_do(client: httpx.AsyncClient, site: Site) -> None:
    site.health.add_checks("source", lambda: {"leader": "another replica leads"})
    site.health.add_checks("source", lambda: {"ledger": None})
    assert (await client.get("/readyz")).status_code == 503
    assert (await client.get("/readyz?exclude=leader")).status_code == 200
    assert (
        await client.get("/readyz?exclude=ledger&exclude=leader&verbose")
    ).text == "[+]ping ok\nreadyz check passed\n"


async def test_what_makes_unready_does_not_make_dead(client: httpx.AsyncClient, site: Site) -> None:
    """Restarting the process would not bring the API server back."""
    site.health.add_checks("source", lambda: {"api-server": "gone"})
    answer = await client.get("/livez?verbose")
    assert (answer.status_code, answer.text) == (200, "[+]ping ok\nlivez check passed\n")


def test_a_check_that_breaks_is_a_failed_check_with_its_name() -> None:
    def broken_group() -> Mapping[str, str | None]:
        raise KeyError("x")

    def broken_notes() -> Mapping[str, str]:
        raise KeyError("x")

    health = Health()
    health.add_checks("leader", broken_group)
    health.add_liveness_checks("leader", broken_group)
    health.add_notes("claims", broken_notes)
    report = health.readyz()
    assert not report.ok
    assert "[-]leader failed: cannot be read: KeyError" in report.verbose
    assert "[-]claims failed: cannot be read: KeyError" in report.verbose
    assert health.livez().verbose == "[+]ping ok\n[-]leader failed: cannot be read: KeyError\nlivez check failed"
    assert health.readyz(exclude={"leader", "claims"}).ok


async def test_version_tells_what_runs(client: httpx.AsyncClient) -> None:
    answer = await client.get("/version")
    assert answer.headers["content-type"] == "application/json"
    assert set(answer.json()) == {"version", "python", "implementation", "platform"}


async def test_metrics_count_calls_by_verb_and_outcome(client: httpx.AsyncClient) -> None:
    await client.post("/filter", json={"Pod": {}, "NodeNames": ["a"]})
    await client.post("/bind", content=b"{")
    answer = await client.get("/metrics")
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert 'dra_extender_requests_total{outcome="ok",verb="filter"} 1.0' in answer.text
    assert 'dra_extender_requests_total{outcome="malformed",verb="bind"} 1.0' in answer.text
    assert 'dra_extender_request_duration_seconds_count{verb="filter"} 1.0' in answer.text
