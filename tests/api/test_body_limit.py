import asyncio
import json

import httpx
import pytest

from tests.api.conftest import Serve
from tests.support.api.sites import BODY_LIMIT, Site


@pytest.mark.parametrize("verb", ["filter", "prioritize", "bind", "preempt"])
async def test_an_announced_body_over_the_limit_is_refused_unread(
    client: httpx.AsyncClient, site: Site, verb: str
) -> None:
    answer = await client.post(f"/{verb}", content=b" " * (BODY_LIMIT + 1))
    assert answer.status_code == 413
    assert answer.json() == {"Error": f"{verb}: the body has {BODY_LIMIT + 1} bytes, at most {BODY_LIMIT} are accepted"}
    assert site.verbs.filtered == []


async def test_a_body_of_exactly_the_limit_is_read(client: httpx.AsyncClient) -> None:
    body = json.dumps({"Pod": {}, "NodeNames": ["a"]}).encode()
    answer = await client.post("/filter", content=body + b" " * (BODY_LIMIT - len(body)))
    assert answer.json() == {"NodeNames": ["a"]}


async def test_an_endless_body_is_cut_off(site: Site, serve: Serve) -> None:
    """Without Content-Length the size is counted while reading, and the connection ends with the answer."""
    async with serve(site.app) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(
            b"POST /filter HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
        )
        chunk = b"2000\r\n" + b" " * 0x2000 + b"\r\n"
        async with asyncio.timeout(120):
            for _ in range(BODY_LIMIT // 0x2000 + 1):
                writer.write(chunk)
                await writer.drain()
            head = await reader.readuntil(b"\r\n\r\n")
            rest = await reader.read()
        writer.close()
    assert head.startswith(b"HTTP/1.1 413 ")
    assert b"connection: close" in head.lower()
    assert json.loads(rest) == {"Error": f"filter: the body has more than {BODY_LIMIT} bytes"}


async def test_a_refused_body_leaves_the_connection_usable(site: Site, serve: Serve) -> None:
    async with serve(site.app) as port, httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=120) as client:
        refused = await client.post("/filter", content=b" " * (BODY_LIMIT + 1))
        accepted = await client.post("/filter", json={"Pod": {}, "NodeNames": ["a"]})
    assert (refused.status_code, accepted.status_code) == (413, 200)
