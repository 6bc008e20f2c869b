"""`why --watch` prints again when the answer changes, and only then."""

import asyncio
import json
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest
from dra_extender.cli.answers import AnswerFormat, ChangedAnswers
from dra_extender.cli.app import app
from dra_extender.inspection.objects import Origin
from dra_extender.inspection.why.report import Cause, WhyReport
from dra_extender.model.metadata import Moment
from dra_extender.simulator.apiserver.objects import Key, StoredKind
from typer.testing import CliRunner

from tests.support.inspection.made_cluster import NAMESPACE, MadeCluster, one_gpu_held
from tests.support.inspection.served_cluster import served
from tests.support.turns import until

SECONDS: Final = 60.0


@pytest.fixture
def made() -> MadeCluster:
    return one_gpu_held()


@asynccontextmanager
async def watching(kubeconfig: Path, *options: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """`kubectl-dra why train --watch` in a process of its own.

    It obeys SIGINT.  A shell starts background jobs with SIGINT ignored, and their children inherit that.
    """
    program = Path(sys.executable).parent / "kubectl-dra"
    process = await asyncio.create_subprocess_exec(
        program,
        *("why", "train", "-n", NAMESPACE, "--watch", "--kubeconfig", str(kubeconfig), *options),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def line(process: asyncio.subprocess.Process, begins: str) -> str:
    """The next line that begins like this."""
    assert process.stdout is not None
    async with asyncio.timeout(SECONDS):
        while True:
            found = (await process.stdout.readline()).decode()
            assert found, "the program has ended"
            if found.startswith(begins):
                return found.rstrip()


async def test_answer_is_printed_again_after_a_change_until_the_person_stops_it(
    made: MadeCluster, tmp_path: Path
) -> None:
    async with served(made) as server, watching(server.kubeconfig(tmp_path / "kubeconfig")) as process:
        assert "fits 0 of 1 nodes" in await line(process, "ml/train")
        node = made.objects["nodes"][0]
        node["metadata"]["labels"] = {"seen": "by nobody"}
        server.put(StoredKind.NODE, node)
        pod = made.objects["pods"][-1]
        pod["spec"]["nodeName"] = "n1"
        server.put(StoredKind.POD, pod)
        assert "is bound to node n1" in await line(process, "ml/train")
        process.send_signal(signal.SIGINT)
        out, err = await asyncio.wait_for(process.communicate(), SECONDS)
        assert (process.returncode, err) == (0, b"")
        assert b"ml/train" not in out


async def test_pod_that_is_deleted_ends_the_program_with_status_1(
    made: MadeCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answered = list[object]()
    original = ChangedAnswers.print

    def noted(answers: ChangedAnswers, report: Any, shown: Any) -> None:
        original(answers, report, shown)
        answered.append(report)

    monkeypatch.setattr(ChangedAnswers, "print", noted)
    async with served(made) as server:
        kubeconfig = str(server.kubeconfig(tmp_path / "kubeconfig"))
        asked = ["why", "train", "-n", NAMESPACE, "--watch", "--kubeconfig", kubeconfig]
        running = asyncio.create_task(asyncio.to_thread(CliRunner().invoke, app, asked))
        await until(lambda: answered)
        server.store.delete(Key(StoredKind.POD, NAMESPACE, "train"))
        result = await asyncio.wait_for(running, SECONDS)
    assert result.exit_code == 1
    assert "pod ml/train does not exist" in result.stderr


def test_cluster_that_cannot_be_reached_ends_the_program_with_status_2(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["why", "train", "--watch", "--kubeconfig", str(tmp_path / "none")])
    assert (result.exit_code, result.stdout) == (2, "")
    assert "does not exist" in result.stderr


def test_snapshot_is_not_watched(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["why", "train", "-w", "--snapshot", str(tmp_path / "x")])
    assert result.exit_code == 2
    assert "does not change" in result.output


def report(summary: str, at: float) -> WhyReport:
    origin = Origin(source="a test", taken_at=Moment(at))
    return WhyReport(format="f", pod="ml/train", cause=Cause.DEVICES, summary=summary, origin=origin, age=at)


@pytest.mark.parametrize(("output", "between"), [(AnswerFormat.JSON, "\n"), (AnswerFormat.YAML, "---\n")])
def test_answer_that_says_nothing_new_is_not_printed(
    output: AnswerFormat, between: str, capsys: pytest.CaptureFixture[str]
) -> None:
    answers = ChangedAnswers(output)
    for summary, at in (("a", 1.0), ("a", 2.0), ("b", 3.0)):
        found = report(summary, at)
        answers.print(found, lambda *_: "")
    printed = capsys.readouterr().out
    assert printed.count("ml/train") == 2
    if output is AnswerFormat.JSON:
        first, second = printed.split("\n}\n")[:2]
        assert json.loads(first + "}")["summary"] == "a"
        assert json.loads(second + "}")["summary"] == "b"
    assert between in printed
