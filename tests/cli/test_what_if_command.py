"""`what-if` over a snapshot: the table that people read, and the same as JSON."""

import json
from pathlib import Path

import pytest
from dra_extender.cli.app import app
from dra_extender.inspection.snapshot_file import write_snapshot
from typer.testing import CliRunner

from tests.controlplane.objects import device, device_class, request, resource_claim_template
from tests.support.inspection.made_cluster import NAMESPACE, MadeCluster


@pytest.fixture
def snapshot(tmp_path: Path) -> str:
    made = MadeCluster()
    made.nodes("n1", "n2")
    made.add(device_class("gpu"))
    for node in ("n1", "n2"):
        made.gpus(node, device("gpu-0"), device("gpu-1"))
    made.running("old", "n1", "gpu-0", request("gpu", "gpu"))
    made.pod("train", request("gpu", "gpu", count=2))
    made.pod("wide", request("gpu", "gpu", count=2))
    made.add(resource_claim_template("one", NAMESPACE, request("gpu", "gpu", allocationMode="ExactCount")))
    file = tmp_path / "cluster.tar.gz"
    write_snapshot(made.cluster(), file)
    return str(file)


def run(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, ("what-if", *arguments))
    return result.exit_code, result.output


def test_table_shows_where_pods_stand_before_and_after(snapshot: str) -> None:
    status, text = run("--snapshot", snapshot, "-n", NAMESPACE, "--without", "old", "--fill", "ml/one")
    assert status == 0
    assert text.splitlines()[:7] == [
        "with the changes 2 pods land and 0 wait; without them 1 pod lands and 1 waits",
        "  pod ml/old ended",
        "",
        "POD       BEFORE                      AFTER",
        "ml/old    on n1 (gpu-0)               ended",
        "ml/train  lands on n2 (gpu-0, gpu-1)  lands on n1 (gpu-0, gpu-1)",
        "ml/wide   waits                       lands on n2 (gpu-0, gpu-1)",
    ]
    assert "fill with a pod with a claim from template ml/one: 0 copies more fit" in text


def test_json_has_a_versioned_format_and_all_pods(snapshot: str) -> None:
    status, text = run("--snapshot", snapshot, "-n", NAMESPACE, "--drain", "n1", "-o", "json")
    report = json.loads(text)
    assert (status, report["format"]) == (0, "dra-extender.io/what-if/v1")
    assert [(each["pod"], each["after"]["kind"]) for each in report["pods"]] == [
        ("ml/old", "waits"),
        ("ml/train", "lands"),
        ("ml/wide", "waits"),
    ]


def test_manifest_is_applied(snapshot: str, tmp_path: Path) -> None:
    file = tmp_path / "more.yaml"
    file.write_text(
        "apiVersion: v1\nkind: Node\nmetadata: {name: n3}\n"
        "status: {allocatable: {cpu: 8, memory: 8Gi, pods: 10}}\n---\n"
        "apiVersion: resource.k8s.io/v1\nkind: ResourceSlice\nmetadata: {name: s3}\n"
        "spec: {nodeName: n3, driver: gpu.example.com, pool: {name: n3, generation: 1, resourceSliceCount: 1},\n"
        "  devices: [{name: gpu-0}, {name: gpu-1}]}\n"
    )
    status, text = run("--snapshot", snapshot, "-f", str(file))
    assert status == 0
    assert "  Node n3 created\n  ResourceSlice s3 created\n" in text
    assert "lands on n3 (gpu-0, gpu-1)" in text


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (("--without", "nobody"), 1, "--without: pod default/nobody does not exist"),
        (("--without", "train"), 1, "; there is ml/train"),
        (("--drain", "n9"), 1, "--drain: node n9 does not exist"),
        (("--fill", "ml/none"), 1, "--fill: expected a pod or a ResourceClaimTemplate ml/none"),
        (("--fill", "one"), 1, "has neither; there is ml/one"),
        (("--add-nodes", "n9=1"), 1, "--add-nodes: node n9 does not exist"),
        (("--add-nodes", "n1"), 2, "--add-nodes: expected NODE=COUNT with a count from 1, got 'n1'"),
        (("--add-nodes", "n1=0"), 2, "--add-nodes: expected NODE=COUNT"),
        (("--gate", "Nothing=on"), 2, "--gate: expected NAME=on or NAME=off"),
        (("--drain", "ml/n1"), 2, "expected NAME or node/NAME, got 'ml/n1'"),
        (("-f", "no-such-file.yaml"), 2, "no-such-file.yaml: cannot be read"),
        (("-f", "-", "-f", "-"), 2, "standard input: expected Kubernetes objects, found none"),
    ],
)
def test_change_that_cannot_be_made_ends_with_a_sentence(
    snapshot: str, arguments: tuple[str, ...], status: int, said: str
) -> None:
    found, text = run("--snapshot", snapshot, *arguments)
    assert (found, "Traceback" in text) == (status, False)
    assert text.startswith("error: ")
    assert said in text


def test_changes_are_read_from_standard_input_and_folders(snapshot: str, tmp_path: Path) -> None:
    node = (
        "apiVersion: v1\nkind: Node\nmetadata: {name: NAME}\nstatus: {allocatable: {cpu: 8, memory: 8Gi, pods: 10}}\n"
    )
    folder = tmp_path / "changes"
    folder.mkdir()
    for name in ("n3", "n4"):
        (folder / f"{name}.yaml").write_text(node.replace("NAME", name))
    done = CliRunner().invoke(
        app, ("what-if", "--snapshot", snapshot, "-f", "-", "-f", str(folder)), input=node.replace("NAME", "n5")
    )
    assert (done.exit_code, done.stdout.count(" created\n")) == (0, 3)
