"""Asks `why` about a pod that waits, through a kubeconfig as the command does, and compares the answer with what is expected."""

import asyncio
from typing import Any, Final

import msgspec
from dra_extender.allocator.state.rejection import Code, Rejection
from dra_extender.cli.app import app
from typer.testing import CliRunner

from tests.support.e2e.namespace_fixture import SECONDS, NamespaceFixture
from tests.support.e2e.reasons.case import WAITING, Reason

Json = dict[str, Any]
_OF_SERVICE: Final = frozenset({"DEVICES", "CLAIMS", "POD_GROUP"})


async def run(*arguments: str) -> tuple[int, str, str]:
    """Exit status and output of the command line, here: a process for each question would mostly be starting."""
    async with asyncio.timeout(SECONDS):
        done = await asyncio.to_thread(CliRunner().invoke, app, arguments)
    return done.exit_code, done.stdout, done.stderr


async def ask_why(scene: NamespaceFixture, *options: str) -> Json:
    """The answer to `why` about the pod WAITING as JSON, with these further options."""
    kubeconfig = str(scene.world.cluster.admin_kubeconfig)
    status, out, err = await run("why", WAITING, "-n", scene.name, "-o", "json", "--kubeconfig", kubeconfig, *options)
    assert (status, err) == (0, "")
    found: Json = msgspec.json.decode(out)
    return found


def expected_text(scene: NamespaceFixture, text: str) -> str:
    """The text with the names of the scene in it."""
    return text.replace("{ns}", scene.name).replace("{driver}", scene.driver).replace("{node}", f"{scene.name}-a")


def check_report(scene: NamespaceFixture, reason: Reason, report: Json) -> None:
    """The hand-written expectation holds for the answer."""
    assert report["cause"] == reason.cause.value, report
    found = sorted((each["code"], each["nodes"]) for branch in report.get("branches", ()) for each in branch["reasons"])
    if reason.reasons:
        assert found == sorted(reason.reasons), report
    everything = str(report)
    for text in reason.tells:
        assert expected_text(scene, text) in everything, report
    steps = [each["text"] for each in report.get("next", ())]
    if reason.next:
        assert any(expected_text(scene, each) in steps for each in reason.next.split(" | ")), report


def message_of(report: Json) -> str:
    """What kube-scheduler says where `why` says the truth about the service's refusals; the end of the message is left out."""
    nodes = sum(each["nodes"] for branch in report.get("branches", ()) for each in branch["reasons"])
    texts = [
        f"{each['nodes']} {_rejection(branch, each).summary}"
        for branch in report.get("branches", ())
        for each in branch["reasons"]
    ]
    return f"0/{nodes} nodes are available: {', '.join(sorted(texts))}."


def _rejection(branch: Json, reason: Json) -> Rejection:
    return Rejection(code=Code[reason["code"]], claim=branch.get("claim", ""), request=branch.get("request", ""))
