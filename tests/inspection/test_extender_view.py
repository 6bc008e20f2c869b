"""What the running extender holds is counted in answers as the extender counts it, and named as held."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from dra_extender.api.protocol import encode
from dra_extender.inspection.cluster_view import ClusterView
from dra_extender.inspection.running_cluster import ExtenderView, read_report, read_view
from dra_extender.inspection.text.why import tree
from dra_extender.inspection.why.why import why
from dra_extender.kube.client.settings import KubeSettings
from dra_extender.model.api_json import ModelError
from dra_extender.model.metadata import Moment, decoded_moment
from dra_extender.scheduling.hold_report import FORMAT, HoldReport, PlannedMember, ReportedPlan
from dra_extender.scheduling.recent_decisions import FORMAT as DECISIONS_FORMAT
from dra_extender.scheduling.recent_decisions import DecisionReport

from tests.controlplane.objects import DRIVER, device, request
from tests.support.inspection.made_cluster import NAMESPACE, NOW, MadeCluster, held_for, one_gpu, with_holds


def view(cluster: MadeCluster, report: HoldReport | None) -> ClusterView:
    return ClusterView(with_holds(cluster, report))


def test_pod_does_not_get_what_is_held_for_another_and_is_told_until_when() -> None:
    cluster = one_gpu()
    answer = why(view(cluster, held_for(cluster, "first")), NAMESPACE, "second")
    assert (answer.nodes, answer.fitting) == (1, 0)
    assert "held by ml/first (held until 09:47:05Z)" in tree(answer)
    without = why(view(cluster, None), NAMESPACE, "second")
    assert without.fitting == 1


def test_pod_is_told_to_wait_for_the_end_of_a_hold_before_it_is_told_to_end_a_pod() -> None:
    cluster = one_gpu()
    cluster.gpus("n2", device("gpu-0"))
    cluster.nodes("n2")
    cluster.running("old", "n2", "gpu-0", request("gpu", "gpu"))
    answer = why(view(cluster, held_for(cluster, "first")), NAMESPACE, "second")
    wait = "wait until 09:47:05Z: the extender holds devices for ml/first until then"
    assert [step.text for step in answer.next] == [wait, "end ml/old"]


def test_pod_itself_gets_what_is_held_for_it() -> None:
    cluster = one_gpu()
    answer = why(view(cluster, held_for(cluster, "first")), NAMESPACE, "first")
    assert answer.fitting == 1
    assert "note: devices for claim claim-first are held on n1 until 09:47:05Z" in tree(answer)


@pytest.mark.parametrize("gone", ["bound", "deleted", "allocated", "expired"])
def test_hold_that_is_over_counts_no_more(gone: str) -> None:
    cluster = one_gpu()
    report = held_for(cluster, "first")
    if gone == "bound":
        cluster.objects["pods"][0]["spec"]["nodeName"] = "n1"
    elif gone == "deleted":
        del cluster.objects["pods"][0]
    elif gone == "expired":
        report = msgspec.structs.replace(report, taken_at=Moment(NOW) + 25)
    else:
        result = {"request": "gpu", "driver": DRIVER, "pool": "n2", "device": "gpu-9"}
        cluster.objects["resourceclaims"][0]["status"] = {"allocation": {"devices": {"results": [result]}}}
    assert why(view(cluster, report), NAMESPACE, "second").fitting == 1


def test_plan_of_a_gang_is_told_to_its_members() -> None:
    cluster = one_gpu()
    cluster.objects["pods"][0]["spec"]["schedulingGroup"] = {"podGroupName": "train"}
    plan = ReportedPlan(
        pod_group="ml/train",
        phase="announced",
        needed=8,
        waiting=3,
        members=(PlannedMember(pod="ml/first", node="n1", announced=True),),
    )
    report = HoldReport(format=FORMAT, taken_at=Moment(NOW), plans=(plan,))
    said = " ".join(" ".join(why(view(cluster, report), NAMESPACE, "first").notes).split())
    assert "the plan of PodGroup ml/train has 1 members, 8 are needed, 3 wait for the others" in said
    assert "its node for this pod is n1" in said


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"<html>", "holds:"),
        (b"{}", "format"),
        (encode(HoldReport(format="dra-extender.io/holds/v9", taken_at=Moment(0))), "holds/v9"),
        (b'{"format": "dra-extender.io/holds/v1", "taken_at": "2026-11-25T09:46:40Z", "holds": [1]}', "holds"),
    ],
)
def test_answer_that_is_no_report_is_refused_with_a_sentence(data: bytes, said: str) -> None:
    with pytest.raises(ModelError, match=said):
        read_report(data, msgspec.json.Decoder(HoldReport, dec_hook=decoded_moment), FORMAT)


@asynccontextmanager
async def answering(bodies: dict[str, bytes]) -> AsyncIterator[str]:
    """An extender at the address that this gives."""

    async def answer(request: web.Request) -> web.Response:
        body = bodies.get(request.path)
        return web.Response(status=404, text="no such path") if body is None else web.Response(body=body)

    server = TestServer(web.Application())
    server.app.router.add_get("/{path:.*}", answer)
    async with server:
        yield str(server.make_url(""))


HELD_NOTHING = encode(HoldReport(format=FORMAT, taken_at=Moment(NOW)))
DECIDED = DecisionReport(format=DECISIONS_FORMAT, taken_at=Moment(NOW), replica="dra-extender-0")


async def test_decisions_of_the_extender_are_read_where_they_are_asked_for() -> None:
    bodies = {"/debug/holds": HELD_NOTHING, "/debug/decisions": encode(DECIDED)}
    async with answering(bodies) as url:
        assert (await read_view(KubeSettings(), (), url)).decisions is None
        found = await read_view(KubeSettings(), (), url, decisions=True)
    assert (found.decisions, found.decisions_problem) == (DECIDED, "")


@pytest.mark.parametrize(
    ("body", "said"),
    [(None, "404 Not Found"), (b"[]", "decisions"), (b'{"format": "x", "taken_at": "2026-11-25T09:46:40Z"}', "'x'")],
)
async def test_extender_that_tells_no_decisions_is_said_and_its_holds_count(body: bytes | None, said: str) -> None:
    bodies = {"/debug/holds": HELD_NOTHING} | ({} if body is None else {"/debug/decisions": body})
    async with answering(bodies) as url:
        found = await read_view(KubeSettings(), (), url, decisions=True)
    assert found.report is not None
    assert found.decisions is None
    assert said in found.decisions_problem


async def test_address_where_nothing_answers_is_said_and_costs_the_answer_nothing() -> None:
    found = await read_view(KubeSettings(), (), "http://127.0.0.1:1")
    assert found.report is None
    assert found.summary.startswith("not read: get http://127.0.0.1:1/debug/holds: no answer")


async def test_without_an_extender_there_is_nothing_to_say() -> None:
    cluster = one_gpu()
    assert await read_view(KubeSettings(), cluster.cluster().of_kind("pods")) == ExtenderView(None)
