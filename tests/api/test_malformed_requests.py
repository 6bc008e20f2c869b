import asyncio
import json
from collections.abc import Sequence
from functools import cache
from typing import Any

import httpx
import msgspec
import pytest
from dra_extender.model.api_json import ModelError
from dra_extender.model.pod import RequestPod
from dra_extender.scheduling.ports.filter_response import FilterResponse
from hypothesis import given
from hypothesis import strategies as st

from tests.support.api.sites import Site, make_site
from tests.support.examples import examples

VERBS = ["filter", "prioritize", "bind", "preempt"]
POD: dict[str, Any] = {"metadata": {"name": "p", "namespace": "ns", "uid": "u1"}}


def expected_status(verb: str) -> int:
    return 200 if verb in ("filter", "bind") else 400


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "body: expected JSON: input data was truncated"),
        (b"{", "body: expected JSON: input data was truncated"),
        (b"not json", "body: expected JSON"),
        (b"[]", "body: expected an object, got a list"),
        (b"null", "body: expected an object, got null"),
        (b'"x"', "body: expected an object, got a string"),
        (b"\xff\xfe", "body: expected JSON"),
        (b'{"Pod":"\xff"}', ""),
        (b'{"x":' * 100_0 + b"1" + b"}" * 100_0, ""),
        (b"[" * 50_000, ""),
    ],
    ids=["empty", "cut", "text", "list", "null", "string", "utf16", "latin1", "nested", "deep"],
)
async def test_garbage_is_answered_with_verb_and_place(
    client: httpx.AsyncClient, verb: str, content: bytes, said: str
) -> None:
    answer = await client.post(f"/{verb}", content=content)
    assert answer.status_code == expected_status(verb)
    error = answer.json()["Error"]
    assert error.startswith(f"{verb}: {said}")
    assert "`" not in error
    assert "$" not in error


@pytest.mark.parametrize("verb", ["filter", "prioritize"])
@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({}, "body: object missing required field Pod"),
        ({"Pod": None, "NodeNames": []}, "Pod: expected an object, got null"),
        ({"Pod": POD}, "NodeNames or Nodes: expected one of them, both are missing or null"),
        ({"Pod": POD, "NodeNames": None, "Nodes": None}, "NodeNames or Nodes: expected one of them"),
        ({"Pod": POD, "NodeNames": "a"}, "NodeNames: expected a list or null, got a string"),
        ({"Pod": POD, "NodeNames": ["a", 1]}, "NodeNames[1]: expected a string, got an integer"),
        ({"Pod": {"metadata": {"uid": 7}}, "NodeNames": []}, "Pod.metadata.uid: expected a string, got an integer"),
        ({"Pod": POD, "Nodes": []}, "Nodes: expected an object or null, got a list"),
        ({"Pod": POD, "Nodes": {"items": [7]}}, "Nodes.items[0]: expected an object, got an integer"),
        (
            {"Pod": POD, "Nodes": {"items": [{"metadata": {"name": "a"}}, {"metadata": {}}]}},
            "Nodes.items[1].metadata: object missing required field name",
        ),
        ({"Pod": {"spec": {"resourceClaims": 3}}, "NodeNames": []}, "Pod.spec.resourceClaims: expected a list or null"),
    ],
)
async def test_a_wrong_field_is_named(client: httpx.AsyncClient, verb: str, body: Any, said: str) -> None:
    answer = await client.post(f"/{verb}", json=body)
    assert answer.status_code == expected_status(verb)
    assert answer.json()["Error"].startswith(f"{verb}: {said}")


@pytest.mark.parametrize(
    ("problem", "said"),
    [
        (ModelError("metadata: expected an object"), "filter: Pod"),
        (msgspec.DecodeError("cut"), "internal error"),
        (UnicodeDecodeError("utf-8", b"x", 0, 1, "cut"), "internal error"),
        (RecursionError("deep"), "internal error"),
    ],
    ids=lambda value: type(value).__name__,
)
async def test_a_use_case_that_cannot_decode_something_runs_once(
    client: httpx.AsyncClient, site: Site, monkeypatch: pytest.MonkeyPatch, problem: Exception, said: str
) -> None:
    calls: list[Sequence[str]] = []

    async def filter_nodes(_pod: RequestPod, nodes: Sequence[str]) -> FilterResponse:
        calls.append(nodes)
        raise problem

    monkeypatch.setattr(site.verbs, "filter", filter_nodes)
    answer = await client.post("/filter", json={"Pod": POD, "NodeNames": ["a", "b"]})
    assert answer.json()["Error"].startswith(said)
    assert len(calls) == 1


async def test_a_wrong_name_found_by_the_use_case_is_named_and_the_use_case_runs_once(
    client: httpx.AsyncClient, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The fast path decodes names as they are read."""
    calls: list[Sequence[str]] = []

    async def filter_nodes(_pod: RequestPod, nodes: Sequence[str]) -> FilterResponse:
        calls.append(nodes)
        return FilterResponse(list(nodes))

    monkeypatch.setattr(site.verbs, "filter", filter_nodes)
    answer = await client.post("/filter", json={"Pod": POD, "NodeNames": ["a", 1, "b"]})
    assert answer.json() == {"Error": "filter: NodeNames[1]: expected a string, got an integer"}
    assert len(calls) == 1


_REQUESTS = ("Pod", "NodeNames", "Nodes", "PodName", "PodNamespace", "PodUID", "Node")
_PREEMPT = ("NodeNameToMetaVictims", "NodeNameToVictims", "Pods", "UID", "NumPDBViolations")
_OBJECTS = ("items", "metadata", "name", "uid", "spec", "containers", "resources", "requests", "priority")
PROTOCOL_KEYS = st.sampled_from((*_REQUESTS, *_PREEMPT, *_OBJECTS))
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(PROTOCOL_KEYS | st.text(max_size=4), inner, max_size=5),
    max_leaves=12,
)
BODIES = st.binary(max_size=200) | JSON.map(lambda value: json.dumps(value).encode())


@cache
def _site() -> Site:
    return make_site()


async def _post(verb: str, content: bytes) -> httpx.Response:
    transport = httpx.ASGITransport(_site().app)
    async with httpx.AsyncClient(transport=transport, base_url="http://extender", timeout=120) as client:
        return await client.post(f"/{verb}", content=content)


@examples(300)
@given(verb=st.sampled_from(VERBS), content=BODIES)
def test_any_bytes_get_a_json_answer(verb: str, content: bytes) -> None:
    """Never a traceback, never an internal error; filter and bind always answer 200."""
    answer = asyncio.run(_post(verb, content))
    assert answer.status_code in ((200,) if verb in ("filter", "bind") else (200, 400))
    told = answer.json()
    assert "internal error" not in json.dumps(told)
