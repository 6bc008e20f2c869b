"""`defrag` over a snapshot: its text, its JSON, its exit status, and the command that plays what it finds."""

import json
import shlex
from pathlib import Path
from typing import Final

import pytest
from dra_extender.cli.app import app
from dra_extender.inspection.snapshot_file import write_snapshot
from typer.testing import CliRunner

from tests.controlplane.objects import device, device_class, request
from tests.support.inspection.made_cluster import NAMESPACE, MadeCluster

LARGE: Final = """has(device.attributes["gpu.example.com"].large) && "$HOME '" != 'x'"""


def scattered(namespace: str = NAMESPACE) -> MadeCluster:
    """Two nodes with two GPUs each, of which a pod has one; another pod waits for two of one node."""
    made = MadeCluster()
    made.nodes("n1", "n2")
    made.add(device_class("gpu"))
    for name, node in (("a", "n1"), ("b", "n2")):
        made.gpus(node, device("gpu-0", attributes={"large": True}), device("gpu-1"))
        made.running(name, node, "gpu-0", request("gpu", "gpu"))
    made.pod("train", request("gpu", "gpu", count=2))
    for each in (*made.objects["pods"], *made.objects["resourceclaims"]):
        each["metadata"]["namespace"] = namespace
    return made


def written(made: MadeCluster, folder: Path) -> str:
    file = folder / "cluster.tar.gz"
    write_snapshot(made.cluster(), file)
    return str(file)


@pytest.fixture
def snapshot(tmp_path: Path) -> str:
    return written(scattered(), tmp_path)


def run(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, arguments)
    return result.exit_code, result.output


def played(text: str) -> str:
    """What the command prints that the text names."""
    command = text.partition("played by\n")[2].partition("\n\n")[0].replace("\\\n", " ")
    program, group, *arguments = shlex.split(command)
    assert (program, group) == ("kubectl", "dra")
    status, answer = run(*arguments)
    assert status == 0, answer
    return answer


def test_text_says_what_to_move_and_the_named_command_plays_it(snapshot: str) -> None:
    status, text = run("defrag", "--pod", "train", "-n", NAMESPACE, "--snapshot", snapshot)
    assert status == 0
    assert text.splitlines()[:8] == [
        "pod ml/train fits after 1 move; no fewer are enough",
        "",
        "POD   FROM           TO",
        "ml/a  on n1 (gpu-0)  lands on n2 (gpu-1)",
        "",
        "ml/train lands on n1 (gpu-0, gpu-1)",
        "",
        "ml/a has no controller: create it again after the end",
    ]
    assert "ml/a      on n1 (gpu-0)  lands on n2 (gpu-1)\nml/train  waits          lands on n1" in played(text)


@pytest.mark.parametrize(
    ("question", "lands"),
    [
        (("--free-device", "gpu.example.com/n1/gpu-0"), "what-if/reserved-1 - lands on n1 (gpu-0)"),
        (("--free-device", LARGE), "what-if/reserved-1 - lands on n1 (gpu-0)"),
        (("--claim", "ml/claim-train"), "ml/train waits lands on n1 (gpu-0, gpu-1)"),
        (("--empty-node", "node/n2"), "ml/b on n2 (gpu-0) lands on n1 (gpu-1)"),
    ],
)
def test_every_goal_is_played_by_the_command_that_is_named(
    snapshot: str, question: tuple[str, ...], lands: str
) -> None:
    status, text = run("defrag", *question, "--snapshot", snapshot)
    assert status == 0, text
    assert lands in " ".join(played(text).split())


def test_json_has_a_versioned_format_and_all_words_of_the_command(snapshot: str) -> None:
    status, text = run("defrag", "--pod", "ml/train", "--snapshot", snapshot, "-o", "json")
    report = json.loads(text)
    assert (status, report["format"], report["finding"]) == (0, "dra-extender.io/defrag/v1", "plan")
    assert report["whatIf"] == ["--evict", "ml/a", "--snapshot", snapshot]
    assert [(each["pod"], each["after"]["node"]) for each in report["moves"]] == [("ml/a", "n2")]


def test_namespace_that_is_called_as_a_kind_is_written_so_that_it_is_read(tmp_path: Path) -> None:
    snapshot = written(scattered("pods"), tmp_path)
    status, text = run("defrag", "--pod", "pod/pods/train", "--snapshot", snapshot)
    assert (status, "--evict pod/pods/a" in text) == (0, True)
    assert "pods/train  waits          lands on n1" in played(text)


def test_nothing_within_the_bounds_is_an_exit_status_and_a_sentence(snapshot: str) -> None:
    status, text = run("defrag", "--pod", "ml/train", "--max-moves", "0", "--snapshot", snapshot)
    assert status == 1
    assert text.splitlines()[0] == ("no moves were found after which pod ml/train fits: 0 moves, which is the limit")
    status, text = run("defrag", "--pod", "ml/train", "--max-priority", "-1", "--snapshot", snapshot, "-o", "json")
    assert (status, json.loads(text)["staying"]) == (1, [{"reason": "priority above -1", "pods": ["ml/a", "ml/b"]}])


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        ((), 2, "expected one of --free-device, --pod, --claim and --empty-node"),
        (("--pod", "train", "--empty-node", "n1"), 2, "expected one of --free-device, --pod, --claim and --empty-node"),
        (("--pod", "a/b/c"), 2, "expected NAME, NAMESPACE/NAME or pod/NAME"),
        (("--pod", "ml/a"), 2, "--pod: expected a pod that waits for a node, ml/a is on node n1"),
        (("--free-device", ""), 2, "expected a DeviceClass, DRIVER/POOL/DEVICE or a CEL expression, got ''"),
        (("--free-device", "ml/claim-a"), 2, "--free-device: expected a DeviceClass, DRIVER/POOL/DEVICE or a CEL"),
        (("--max-moves", "x", "--pod", "train"), 2, "--max-moves"),
        (("--pod", "train"), 1, "--pod: pod default/train does not exist"),
        (("--claim", "ml/none"), 1, "--claim: claim ml/none does not exist"),
        (("--empty-node", "n9"), 1, "--empty-node: node n9 does not exist"),
        (("--free-device", "none"), 1, "DeviceClass none does not exist"),
    ],
)
def test_wrong_question_ends_with_a_sentence(snapshot: str, arguments: tuple[str, ...], status: int, said: str) -> None:
    found, text = run("defrag", *arguments, "--snapshot", snapshot)
    assert (found, "Traceback" in text) == (status, False)
    assert said in " ".join(text.split())
