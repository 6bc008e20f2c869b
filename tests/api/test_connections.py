import asyncio
import json

import httpx
import pytest

from tests.api.conftest import Serve
from tests.support.api.sites import BODY_LIMIT, Site

ECHO = {"Pod": {}, "NodeNames": ["a", "b"]}


async def test_answers_carry_content_length_and_keep_the_connection(site: Site, serve: Serve) -> None:
    """Go throws a connection away after a chunked answer."""
    body = json.dumps(ECHO).encode()
    async with serve(site.app) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        async with asyncio.timeout(120):
            for _ in range(3):
                writer.write(
                    b"POST /filter HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
                    % len(body)
                    + body
                )
                head = (await reader.readuntil(b"\r\n\r\n")).lower()
                assert b"transfer-encoding" not in head
                assert b"connection: close" not in head
                length = int(head.split(b"content-length: ")[1].split(b"\r\n")[0])
                assert json.loads(await reader.readexactly(length)) == {"NodeNames": ["a", "b"]}
        writer.close()


@pytest.mark.parametrize("verb", ["filter", "prioritize", "bind", "preempt"])
async def test_a_closed_gate_answers_in_words_and_ends_the_connection(
    client: httpx.AsyncClient, site: Site, verb: str
) -> None:
    """Kept-alive connections outlive the endpoints of a Service, so a service that stops has to end them."""
    site.gate.close("the extender is stopping")
    answer = await client.post(f"/{verb}", json=ECHO)
    assert answer.status_code == (200 if verb in ("filter", "bind") else 503)
    assert answer.json() == {"Error": f"{verb}: the extender is stopping"}
    assert answer.headers["connection"] == "close"
    assert site.verbs.filtered == []


@pytest.mark.parametrize("verb", ["filter", "prioritize", "bind", "preempt"])
async def test_the_wrong_method_is_refused_with_the_right_one(client: httpx.AsyncClient, verb: str) -> None:
    answer = await client.get(f"/{verb}")
    assert answer.status_code == 405
    assert answer.headers["allow"] == "POST"
    assert answer.json() == {"Error": f"/{verb}: expected method POST, got GET"}


@pytest.mark.parametrize("path", ["/", "/nothing", "/filter/", "/FILTER", "/filter/x"])
async def test_an_unknown_path_is_refused_in_json(client: httpx.AsyncClient, path: str) -> None:
    answer = await client.post(path, json=ECHO)
    assert answer.status_code == 404
    expected = f"{path} does not exist; the verbs are /filter, /prioritize, /bind and /preempt"
    assert answer.json() == {"Error": expected}


async def test_the_document_describes_the_verbs_completely(client: httpx.AsyncClient) -> None:
    """Every reference in the OpenAPI document leads somewhere."""
    text = (await client.get("/openapi.json")).text
    document = json.loads(text)
    assert {"/filter", "/prioritize", "/bind", "/preempt", "/readyz", "/livez", "/metrics", "/version"} <= set(
        document["paths"]
    )
    schemas = document["components"]["schemas"]
    references = {part.split('"')[0] for part in text.split('"#/components/schemas/')[1:]}
    assert references <= set(schemas)
    assert {"ExtenderFilterResult", "MetaVictims"} <= references
    requests = [document["paths"][path]["post"]["requestBody"] for path in ("/filter", "/bind", "/preempt")]
    titles = [request["content"]["application/json"]["schema"]["title"] for request in requests]
    assert titles == ["FilterArguments", "BindingArguments", "PreemptionArguments"]
    assert (await client.get("/docs")).status_code == 404


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
