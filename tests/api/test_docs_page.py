import re

import httpx


async def test_the_page_of_the_operations_needs_nothing_from_elsewhere(client: httpx.AsyncClient) -> None:
    answer = await client.get("/docs")
    assert answer.status_code == 200
    assert answer.headers["Content-Security-Policy"].startswith("default-src 'none'")
    assert not re.search(r"<script|<link|<img|https?://|@import|url\(", answer.text)
    assert re.findall(r"href='([^#][^']*)'", answer.text) == ["openapi.json"]


async def test_it_has_every_operation_with_its_messages(client: httpx.AsyncClient) -> None:
    page = (await client.get("/docs")).text
    document = (await client.get("/openapi.json")).json()
    for path, methods in document["paths"].items():
        for method in methods:
            assert f"<code>{method.upper()} {path}</code>" in page
    for name in document["components"]["schemas"]:
        assert f"id='{name}'" in page
    assert "Request: <a href='#FilterArguments'>FilterArguments</a>" in page
    assert "list of <a href='#HostPriority'>HostPriority</a>" in page
    assert set(re.findall(r"href='#(\w+)'", page)) <= set(re.findall(r"id='(\w+)'", page))
