import json
from collections.abc import Mapping
from typing import Any

import httpx
import msgspec
import pytest
from dra_extender.api.protocol import encode, encode_texts
from dra_extender.scheduling.ports.errors import RetryableError
from dra_extender.scheduling.ports.filter_response import FilterResponse, OneText
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from tests.support.api.sites import Site

POD: dict[str, Any] = {
    "metadata": {"name": "p", "namespace": "ns", "uid": "u1"},
    "spec": {"resourceClaims": [{"name": "gpu", "resourceClaimName": "c"}]},
}


def node(name: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "labels": {"a": "ü"}}, "status": {"capacity": {"cpu": "1.50"}}}


def request(**changes: Any) -> dict[str, Any]:
    return {"Pod": POD, "Nodes": None, "NodeNames": ["a", "b"], **changes}


async def test_names_that_fit_are_echoed_and_nothing_else_is_said(client: httpx.AsyncClient) -> None:
    """A pass-through answer must name the nodes: an answer without names would reject them all."""
    answer = await client.post("/filter", json=request())
    assert answer.status_code == 200
    assert answer.json() == {"NodeNames": ["a", "b"]}


async def test_the_use_case_gets_pod_and_names(client: httpx.AsyncClient, site: Site) -> None:
    await client.post("/filter", json=request())
    ((pod, nodes),) = site.verbs.filtered
    assert (pod.key, pod.uid, pod.claims[0].resource_claim_name) == ("ns/p", "u1", "c")
    assert list(nodes) == ["a", "b"]


async def test_no_rejected_node_is_left_to_preemption(client: httpx.AsyncClient, site: Site) -> None:
    site.verbs.answer = FilterResponse(["a"], {"b": "busy"})
    answer = await client.post("/filter", json=request(NodeNames=["a", "b"]))
    assert answer.json() == {"NodeNames": ["a"], "FailedAndUnresolvableNodes": {"b": "busy"}}


async def test_no_fitting_node_is_an_empty_list_not_null(client: httpx.AsyncClient, site: Site) -> None:
    """Null NodeNames would make kube-scheduler look at Nodes."""
    site.verbs.answer = FilterResponse([], {"a": "no", "b": "no"})
    answer = await client.post("/filter", json=request())
    assert answer.json()["NodeNames"] == []


MANY = [f"gpu-pool-a-{index:05}" for index in range(1_500)]


@pytest.mark.parametrize("keys", ["Pod NodeNames", "pod nodeNames"])
async def test_long_lists_of_names_are_read_as_short_ones_are(client: httpx.AsyncClient, site: Site, keys: str) -> None:
    pod, names = keys.split()
    content = msgspec.json.encode({pod: POD, names: MANY})
    answer = await client.post("/filter", content=content)
    assert answer.json() == {"NodeNames": MANY}
    site.verbs.answer = FilterResponse([MANY[7]], {MANY[8]: "no"})
    answer = await client.post("/filter", content=content)
    assert answer.json() == {"NodeNames": [MANY[7]], "FailedAndUnresolvableNodes": {MANY[8]: "no"}}
    assert [list(nodes) for _, nodes in site.verbs.filtered] == [MANY, MANY]


async def test_long_list_with_something_that_is_no_name_is_malformed(client: httpx.AsyncClient) -> None:
    content = msgspec.json.encode({"Pod": POD, "NodeNames": [*MANY, 5, "a"]})
    answer = await client.post("/filter", content=content)
    assert answer.json() == {"Error": f"filter: NodeNames[{len(MANY)}]: expected a string, got an integer"}


async def test_whole_nodes_are_answered_with_whole_nodes(client: httpx.AsyncClient, site: Site) -> None:
    """With nodeCacheCapable: false the fitting items come back exactly as they were sent."""
    site.verbs.answer = FilterResponse(["b"], {"a": "no"})
    body = request(NodeNames=None, Nodes={"metadata": {}, "items": [node("a"), node("b")]})
    answer = await client.post("/filter", json=body)
    assert answer.json() == {
        "Nodes": {"metadata": {}, "items": [node("b")]},
        "FailedAndUnresolvableNodes": {"a": "no"},
    }
    assert list(site.verbs.filtered[0][1]) == ["a", "b"]


async def test_the_raw_text_of_a_node_is_kept(client: httpx.AsyncClient) -> None:
    raw = '{"metadata":{"name":"a"},"x":1.50,"y":12345678901234567890123}'
    content = f'{{"Pod":{json.dumps(POD)},"Nodes":{{"items":[{raw}]}},"NodeNames":null}}'
    answer = await client.post("/filter", content=content)
    assert raw in answer.text


async def test_keys_are_read_whatever_their_capitalisation(client: httpx.AsyncClient) -> None:
    answer = await client.post("/filter", json={"pod": POD, "nodenames": ["a"]})
    assert answer.json() == {"NodeNames": ["a"]}
    answer = await client.post("/filter", json={"Pod": POD, "nodeNames": ["a"]})
    assert answer.json() == {"NodeNames": ["a"]}


async def test_try_again_becomes_the_error_of_the_protocol(client: httpx.AsyncClient, site: Site) -> None:
    site.verbs.raises = RetryableError("caches are not synced yet")
    answer = await client.post("/filter", json=request())
    assert (answer.status_code, answer.json()) == (200, {"Error": "caches are not synced yet"})


@pytest.mark.parametrize("verb", ["filter", "prioritize", "bind", "preempt"])
async def test_an_unexpected_failure_is_logged_and_answered_without_details(
    client: httpx.AsyncClient, site: Site, verb: str
) -> None:
    site.verbs.raises = ZeroDivisionError("secret")
    bodies = {
        "bind": {"PodName": "p", "PodNamespace": "ns", "PodUID": "u", "Node": "a"},
        "preempt": {"Pod": POD, "NodeNameToMetaVictims": {"a": {"Pods": [{"UID": "v"}]}}},
    }
    with capture_logs() as logs:
        answer = await client.post(f"/{verb}", json=bodies.get(verb, request()))
    assert answer.status_code == (200 if verb in ("filter", "bind") else 500)
    error = answer.json()["Error"]
    (line,) = logs
    assert error == f"internal error, see the log (id {line['id']})"
    assert (line["log_level"], line["verb"], line["exc_info"]) == ("error", verb, True)
    assert "secret" not in answer.text
    assert "Traceback" not in answer.text


async def test_prioritize_answers_a_bare_array_of_integers(client: httpx.AsyncClient, site: Site) -> None:
    site.verbs.scores = {"b": 10}
    answer = await client.post("/prioritize", json=request())
    assert answer.json() == [{"Host": "a", "Score": 0}, {"Host": "b", "Score": 10}]
    assert '"Score":10}' in answer.text


async def test_prioritize_reads_whole_nodes_too(client: httpx.AsyncClient) -> None:
    answer = await client.post("/prioritize", json=request(NodeNames=None, Nodes={"items": [node("a")]}))
    assert answer.json() == [{"Host": "a", "Score": 0}]


async def test_prioritize_can_only_fail_by_its_status(client: httpx.AsyncClient, site: Site) -> None:
    site.verbs.raises = RetryableError("not now")
    answer = await client.post("/prioritize", json=request())
    assert (answer.status_code, answer.json()) == (500, {"Error": "not now"})


PLAIN = st.text(st.characters(exclude_categories=("Cs", "Cc"), exclude_characters='"\\'), max_size=20)
REASON = 'node(s): claim "gpu", request "gpu": matching devices are in use'


@given(st.dictionaries(PLAIN, st.just(REASON) | st.text(max_size=9), max_size=40))
def test_texts_are_read_back_whatever_they_are(by_node: dict[str, str]) -> None:
    for plain in (True, False):
        written = encode(encode_texts(by_node, plain=plain))
        assert (msgspec.json.decode(written) or {}) == by_node


@given(st.lists(PLAIN, min_size=1, max_size=40, unique=True), st.text(max_size=9))
def test_one_text_for_all_nodes_is_read_back(names: list[str], text: str) -> None:
    for plain in (True, False):
        written = encode(encode_texts(OneText(names, text), plain=plain))
        assert msgspec.json.decode(written) == dict.fromkeys(names, text)


@pytest.mark.parametrize(
    "texts", [OneText(["a", "b"], REASON), {"a": REASON, "b": REASON}, {"a": REASON, "b": "node(s): further reasons"}]
)
@pytest.mark.parametrize("spaces", ["", " "])
async def test_texts_with_quotes_arrive_as_they_are(
    client: httpx.AsyncClient, site: Site, texts: Mapping[str, str], spaces: str
) -> None:
    site.verbs.answer = FilterResponse((), texts)
    pod = '{"metadata":{"name":"p","namespace":"ns","uid":"u"}}'
    content = f'{{"Pod":{pod},"NodeNames":["a",{spaces}"b"]}}'
    answer = (await client.post("/filter", content=content)).json()
    assert answer == {"NodeNames": [], "FailedAndUnresolvableNodes": texts}
