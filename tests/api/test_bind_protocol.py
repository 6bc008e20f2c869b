import asyncio
import contextlib
import json
from typing import Any

import httpx
import pytest
from dra_extender.scheduling.ports.errors import RetryableError

from tests.api.conftest import Serve
from tests.support.api.sites import Site
from tests.support.turns import until

ARGS = {"PodName": "p", "PodNamespace": "ns", "PodUID": "u1", "Node": "n1"}


def raw_request(path: str, body: Any) -> bytes:
    data = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n"
    return head.encode() + data


async def test_a_bound_pod_is_an_empty_error(client: httpx.AsyncClient, site: Site) -> None:
    answer = await client.post("/bind", json=ARGS)
    assert (answer.status_code, answer.json()) == (200, {"Error": ""})
    assert site.verbs.bound == [("ns", "p", "u1", "n1")]


async def test_keys_of_bind_are_read_whatever_their_capitalisation(client: httpx.AsyncClient, site: Site) -> None:
    await client.post("/bind", json={key.lower(): value for key, value in ARGS.items()})
    assert site.verbs.bound == [("ns", "p", "u1", "n1")]


async def test_a_failed_bind_says_why(client: httpx.AsyncClient, site: Site) -> None:
    site.verbs.raises = RetryableError("claim ns/c: devices are taken")
    answer = await client.post("/bind", json=ARGS)
    assert (answer.status_code, answer.json()) == (200, {"Error": "claim ns/c: devices are taken"})


@pytest.mark.parametrize("key", sorted(ARGS))
@pytest.mark.parametrize("how", ["missing", "empty", "null", "number"])
async def test_a_bind_without_one_of_its_names_is_refused(
    client: httpx.AsyncClient, site: Site, key: str, how: str
) -> None:
    """Nothing is bound, and the sentence names verb and field."""
    bad: dict[str, Any] = dict(ARGS)
    if how == "missing":
        del bad[key]
    else:
        bad[key] = {"empty": "", "null": None, "number": 7}[how]
    answer = await client.post("/bind", json=bad)
    assert answer.status_code == 200
    error = answer.json()["Error"]
    assert error.startswith("bind: ")
    assert key in error
    assert site.verbs.bound == []


async def test_a_caller_that_stays_has_not_hung_up(site: Site, serve: Serve) -> None:
    async with serve(site.app) as port, httpx.AsyncClient(timeout=120) as client:
        answer = await client.post(f"http://127.0.0.1:{port}/bind", json=ARGS)
    assert answer.json() == {"Error": ""}
    assert site.verbs.hung_up is not None
    assert not site.verbs.hung_up.is_set()


async def test_a_caller_that_goes_away_has_hung_up_and_the_bind_goes_on(site: Site, serve: Serve) -> None:
    """The use case learns of the closed connection and is not cancelled by it."""
    site.verbs.park = True
    async with serve(site.app) as port:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(raw_request("/bind", ARGS))
        async with asyncio.timeout(120):
            await site.verbs.entered.wait()
            assert site.verbs.hung_up is not None
            assert not site.verbs.hung_up.is_set()
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()
            await site.verbs.finished.wait()
    assert site.verbs.hung_up.is_set()


async def test_parked_binds_do_not_keep_filter_waiting(site: Site, serve: Serve) -> None:
    site.verbs.park = True
    async with serve(site.app) as port, httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=120) as client:
        writers = []
        for _ in range(100):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(raw_request("/bind", ARGS))
            writers.append(writer)
        await until(lambda: len(site.verbs.bound) == 100)
        answer = await client.post("/filter", json={"Pod": {}, "NodeNames": ["a"]})
        assert answer.json() == {"NodeNames": ["a"]}
        for writer in writers:
            writer.close()
