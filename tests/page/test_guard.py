"""Who may open the page, and what a browser may load for it."""

from pathlib import Path

import httpx
import pytest

from tests.page.conftest import TOKEN, Open
from tests.support.inspection.made_cluster import MadeCluster


@pytest.mark.parametrize("host", ["127.0.0.1:8000", "127.0.0.1", "localhost:9", "LOCALHOST:9", "[::1]:8000", "[::1]"])
async def test_page_is_served_to_loopback_names_on_any_port_as_a_tunnel_has_them(
    open_page: Open, made: MadeCluster, host: str
) -> None:
    assert (await open_page(made).get("map", headers={"host": host})).status_code == 200


@pytest.mark.parametrize(
    "host", ["attacker.example", "attacker.example:8000", "127.0.0.1.attacker.example", "127.0.0.2", "", "localhost:x"]
)
async def test_name_that_an_attacker_may_have_made_resolve_to_loopback_is_refused(
    open_page: Open, made: MadeCluster, host: str
) -> None:
    refused = await open_page(made).get("map", headers={"host": host})
    assert (refused.status_code, "train" in refused.text) == (400, False)


@pytest.mark.parametrize(
    "path", ["/", "/map", "/wrong/map", f"/{TOKEN}x/map", f"/{TOKEN[:-1]}/map", f"//{TOKEN}/map", "/%00/map", "/é/map"]
)
async def test_path_without_the_token_is_refused(open_page: Open, made: MadeCluster, path: str) -> None:
    client = open_page(made)
    refused = await client.get(f"http://127.0.0.1:8000{path}")
    assert (refused.status_code, TOKEN in refused.text) == (403, False)


@pytest.mark.parametrize("path", ["map", "none", "static/page.js", "static/none", "events/x", ""])
async def test_every_response_forbids_scripts_in_the_page_frames_caches_and_what_lies_elsewhere(
    open_page: Open, made: MadeCluster, path: str
) -> None:
    headers = (await open_page(made).get(path)).headers
    policy = dict(each.strip().split(" ", 1) for each in headers["content-security-policy"].split(";"))
    assert policy["default-src"] == "'none'"
    assert {policy[each] for each in ("script-src", "style-src", "img-src", "connect-src")} == {"'self'"}
    assert policy["frame-ancestors"] == "'none'"
    assert headers["cache-control"] == "no-store"
    assert headers["referrer-policy"] == "no-referrer"
    assert headers["x-content-type-options"] == "nosniff"


async def test_refusals_have_these_headers_too(open_page: Open, made: MadeCluster) -> None:
    refused = await open_page(made).get("http://127.0.0.1:8000/wrong/")
    assert refused.headers["cache-control"] == "no-store"


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "TRACE"])
async def test_page_is_read_only(open_page: Open, made: MadeCluster, method: str) -> None:
    assert (await open_page(made).request(method, "map")).status_code == 405


async def test_two_hosts_are_refused(open_page: Open, made: MadeCluster) -> None:
    headers = httpx.Headers([("host", "127.0.0.1"), ("host", "attacker.example")])
    assert (await open_page(made).get("map", headers=headers)).status_code == 400


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"origin": "http://attacker.example"}, 403),
        ({"origin": "http://127.0.0.1:3000"}, 403),
        ({"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors", "sec-fetch-dest": "script"}, 403),
        ({"origin": "http://127.0.0.1:8000", "sec-fetch-site": "same-origin"}, 200),
        ({"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}, 200),
    ],
)
async def test_page_is_shown_to_who_opens_it_and_not_to_pages_of_other_origins(
    open_page: Open, made: MadeCluster, headers: dict[str, str], status: int
) -> None:
    assert (await open_page(made).get("map", headers=headers)).status_code == status


@pytest.mark.parametrize("path", ["pending?pod=ml%2Flate", "node?name=n1", "map?nodes=n"])
async def test_link_of_another_dashboard_leads_to_a_view(open_page: Open, made: MadeCluster, path: str) -> None:
    section = (Path(__file__).parents[2] / "docs" / "tasks" / "web-ui.md").read_text().partition("## Links from")[2]
    assert f"`{path.partition('=')[0]}=" in section
    headers = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}
    assert (await open_page(made).get(path, headers=headers)).status_code == 200
