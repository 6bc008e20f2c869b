from typing import Any

import httpx
import pytest
from dra_extender.scheduling.ports.errors import RetryableError

from tests.support.api.sites import Site

POD: dict[str, Any] = {"metadata": {"name": "p", "namespace": "ns", "uid": "u1"}}


def meta(*uids: str, violations: int = 0) -> dict[str, Any]:
    return {"Pods": [{"UID": uid} for uid in uids], "NumPDBViolations": violations}


def request(**nodes: Any) -> dict[str, Any]:
    return {"Pod": POD, "NodeNameToVictims": None, "NodeNameToMetaVictims": nodes}


async def test_an_accepted_proposal_comes_back_as_it_was(client: httpx.AsyncClient) -> None:
    proposal = {"n1": meta("b", "a", violations=2), "n2": meta("c")}
    answer = await client.post("/preempt", json=request(**proposal))
    assert (answer.status_code, answer.json()) == (200, {"NodeNameToMetaVictims": proposal})


async def test_whole_pods_are_answered_with_uids(client: httpx.AsyncClient, site: Site) -> None:
    """The answer has one shape in both modes."""
    pods = [{"metadata": {"uid": "b", "name": "x"}, "spec": {"priority": 5}}, {"metadata": {"uid": "a"}}]
    body = {
        "Pod": POD,
        "NodeNameToMetaVictims": None,
        "NodeNameToVictims": {"n1": {"Pods": pods, "NumPDBViolations": 1}},
    }
    answer = await client.post("/preempt", json=body)
    assert answer.json() == {"NodeNameToMetaVictims": {"n1": meta("b", "a", violations=1)}}
    assert site.verbs.proposed == [{"n1": ["b", "a"]}]


async def test_victims_keep_the_order_of_the_proposal(client: httpx.AsyncClient, site: Site) -> None:
    """kube-scheduler takes the first victim for the one of highest priority."""
    site.verbs.victims = {"n1": ["new", "a", "c"]}
    answer = await client.post("/preempt", json=request(n1=meta("c", "b", "a")))
    assert answer.json() == {"NodeNameToMetaVictims": {"n1": meta("c", "a", "new")}}


async def test_a_node_without_victims_is_left_out(client: httpx.AsyncClient, site: Site) -> None:
    """An empty list of victims would fail the whole preemption."""
    site.verbs.victims = {"n1": [], "n2": ["c"]}
    answer = await client.post("/preempt", json=request(n1=meta("a"), n2=meta("c")))
    assert list(answer.json()["NodeNameToMetaVictims"]) == ["n2"]


async def test_null_pods_are_no_victims(client: httpx.AsyncClient, site: Site) -> None:
    """Go writes an empty slice as null."""
    await client.post("/preempt", json=request(n1={"Pods": None, "NumPDBViolations": 0}))
    assert site.verbs.proposed == [{"n1": []}]


async def test_preempt_can_only_fail_by_its_status(client: httpx.AsyncClient, site: Site) -> None:
    site.verbs.raises = RetryableError("not now")
    answer = await client.post("/preempt", json=request(n1=meta("a")))
    assert (answer.status_code, answer.json()) == (500, {"Error": "not now"})


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({}, "preempt: body: object missing required field Pod"),
        ({"Pod": POD}, "preempt: NodeNameToMetaVictims or NodeNameToVictims: expected one of them"),
        (request(n1={"Pods": [{}]}), "preempt: NodeNameToMetaVictims[...].Pods[0]: object missing required field UID"),
        (request(n1=7), "preempt: NodeNameToMetaVictims[...]: expected an object, got an integer"),
    ],
)
async def test_what_is_wrong_with_a_proposal_is_said(client: httpx.AsyncClient, body: Any, expected: str) -> None:
    answer = await client.post("/preempt", json=body)
    assert answer.status_code == 400
    assert answer.json()["Error"].startswith(expected)
