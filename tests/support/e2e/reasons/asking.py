"""Asks `why` about a pod that waits, through a kubeconfig as the command does, and compares the answer with what is expected."""

import re
from collections import Counter
from typing import Any, Final

import msgspec
from dra_extender.allocator.state.reasons import Code, Rejection

from tests.support.e2e.command import run_here
from tests.support.e2e.namespace_fixture import NamespaceFixture
from tests.support.e2e.reasons.case import WAITING, Reason

Json = dict[str, Any]
OF_OTHER_NODES: Final = frozenset({Code.NO_DEVICES.name, Code.NO_MATCH.name})
"""Of the nodes of other scenes, whose devices are those of other drivers."""


async def ask_why(scene: NamespaceFixture, *options: str) -> Json:
    """The answer to `why` about the pod WAITING as JSON, with these further options; of the cluster unless they name a snapshot."""
    source = () if "--snapshot" in options else ("--kubeconfig", str(scene.world.cluster.admin_kubeconfig))
    status, out, err = await run_here("why", WAITING, "-n", scene.name, "-o", "json", *source, *options)
    assert (status, err) == (0, "")
    found: Json = msgspec.json.decode(out)
    return found


def expected_text(scene: NamespaceFixture, text: str) -> str:
    names = {"ns": scene.name, "driver": scene.driver, "node": f"{scene.name}-a", "scheduler": scene.scheduler}
    return re.sub(r"\{(\w+)\}", lambda found: names[found[1]], text)


def check_report(scene: NamespaceFixture, reason: Reason, report: Json, nodes: int) -> None:
    """The hand-written expectation holds for the answer; `nodes` are those of all scenes."""
    assert report["cause"] == reason.cause.value, report
    if reason.reasons:
        counted, expected = _counted(report), Counter(dict(reason.reasons))
        if reason.everywhere:
            expected = Counter(dict.fromkeys(expected, nodes))
        assert expected <= counted, report
        assert set(counted - expected) <= OF_OTHER_NODES, report
        assert counted.total() == nodes, report
    everything = str(report)
    for text in reason.tells:
        assert expected_text(scene, text) in everything, report
    steps = [each["text"] for each in report.get("next", ())]
    if reason.next:
        assert any(expected_text(scene, each) in steps for each in reason.next.split(" | ")), report


def _first_alternatives(report: Json) -> list[Json]:
    """Return the branches of a report; of the alternatives of one request, each of which has every node, the first."""
    first: dict[tuple[str, str], Json] = {}
    for branch in report.get("branches", ()):
        request, _, alternative = branch.get("request", "").partition("/")
        first.setdefault((branch.get("claim", ""), request if alternative else f"{request}/"), branch)
    return list(first.values())


def _counted(report: Json) -> Counter[str]:
    counted: Counter[str] = Counter()
    for branch in _first_alternatives(report):
        for each in branch["reasons"]:
            counted[each["code"]] += each["nodes"]
    return counted


def texts_of(reason: Reason, report: Json) -> list[str]:
    """What the message of kube-scheduler has of the scene's own nodes where `why` says the truth about the service's refusals."""
    codes = dict(reason.reasons)
    return [
        _rejection(branch, each).summary if number is None else f"{number} {_rejection(branch, each).summary}"
        for branch in _first_alternatives(report)
        for each in branch["reasons"]
        if each["code"] in codes
        for number in [None if reason.everywhere or each["code"] in OF_OTHER_NODES else each["nodes"]]
    ]


def _rejection(branch: Json, reason: Json) -> Rejection:
    return Rejection(code=Code[reason["code"]], claim=branch.get("claim", ""), request=branch.get("request", ""))
