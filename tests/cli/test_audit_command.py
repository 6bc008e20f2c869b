"""The command `audit` over snapshots: what it prints and how it ends."""

import json
from pathlib import Path

import pytest
from dra_extender.cli.app import app
from dra_extender.inspection.objects import MissingKind
from dra_extender.inspection.snapshot_file import write_snapshot
from typer.testing import CliRunner

from tests.controlplane.objects import request, resource_claim
from tests.support.audit.mutations import class_of_nothing, condition_overdue, finalizer_removed, whole_device_twice
from tests.support.audit.sound_cluster import GPUS, SoundCluster


def run(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["audit", *arguments])
    return result.exit_code, result.output


def snapshot(cluster: SoundCluster, tmp_path: Path) -> str:
    file = tmp_path / "cluster.tar.gz"
    write_snapshot(cluster.made.cluster(), file)
    return str(file)


def test_sound_cluster_ends_with_status_zero(tmp_path: Path) -> None:
    status, text = run("--snapshot", snapshot(SoundCluster(1), tmp_path))
    assert (status, text.splitlines()[0].startswith("sound (")) == (0, True)


def test_findings_end_with_status_one_and_are_printed_by_check_or_as_json(tmp_path: Path) -> None:
    cluster = SoundCluster(1)
    _, device = whole_device_twice(cluster)
    class_of_nothing(cluster)
    file = snapshot(cluster, tmp_path)

    status, text = run("--snapshot", file)
    assert status == 1
    assert text.startswith("1 error, 1 warning (")
    assert f"└ error: double allocation (1)\n  device {device}\n    device in two claims: ml/claim-" in text
    assert "└ warning: class without devices (1)\n  class misspelt\n    matches none of" in text

    status, text = run("--snapshot", file, "-o", "json")
    report = json.loads(text)
    assert (status, report["format"], report["verdict"]) == (1, "dra-extender.io/audit/v1", "unsound")
    assert [(each["check"], each["severity"]) for each in report["findings"]] == [
        ("double_allocation", "error"),
        ("class_without_devices", "warning"),
    ]


def test_kind_that_could_not_be_read_is_named_and_ends_with_status_two(tmp_path: Path) -> None:
    cluster = SoundCluster(1)
    cluster.made.missing = (MissingKind(kind="pods", reason="403 Forbidden"),)
    status, text = run("--snapshot", snapshot(cluster, tmp_path))
    assert status == 2
    assert text.startswith("nothing found, but not everything could be judged")
    assert "the account may not list pods (ClusterRole dra-viewer grants it): 403 Forbidden" in " ".join(text.split())
    assert "pods," not in text.partition(")")[0], "what could not be read is not counted"


def test_object_that_cannot_be_read_is_named_and_ends_with_status_two(tmp_path: Path) -> None:
    cluster = SoundCluster(1)
    cluster.made.objects["deviceclasses"][0]["spec"]["selectors"] = 5
    status, text = run("--snapshot", snapshot(cluster, tmp_path))
    assert status == 2
    assert "left out: DeviceClass: Expected `array`" in text


def test_rules_of_the_policy_file_without_effect_are_found(tmp_path: Path) -> None:
    policy = tmp_path / "policy.yaml"
    policy.write_text("rules:\n- name: nothing\n  driver: absent.example.com\n  compatibilityGroups: [mig]\n")
    status, text = run("--snapshot", snapshot(SoundCluster(1), tmp_path), "--policy", str(policy))
    assert status == 1
    assert "rule nothing has no effect" in text


@pytest.mark.parametrize("content", ["rules: [", "kind: Other"])
def test_policy_file_that_is_wrong_ends_with_status_two(tmp_path: Path, content: str) -> None:
    policy = tmp_path / "policy.yaml"
    policy.write_text(content)
    status, text = run("--snapshot", snapshot(SoundCluster(1), tmp_path), "--policy", str(policy))
    assert (status, "policy.yaml" in text, "Traceback" in text) == (2, True, False)


def test_guard_claims_of_the_service_take_nothing_in_the_namespace_where_it_runs(tmp_path: Path) -> None:
    """Elsewhere anyone may give a claim such a name."""
    cluster = SoundCluster(1)
    taken = cluster.of(GPUS)[0]
    cluster.made.add(resource_claim("dra-extender-guard-0", "gpu-system", request("r", "gpu")))
    guard = cluster.made.objects["resourceclaims"][-1]
    guard["metadata"]["finalizers"] = taken.claim["metadata"]["finalizers"]
    guard["status"] = {"allocation": taken.claim["status"]["allocation"]}
    file = snapshot(cluster, tmp_path)
    assert run("--snapshot", file, "--extender-namespace", "gpu-system")[0] == 0
    status, text = run("--snapshot", file)
    assert (status, f"device {taken.device_id}" in text) == (1, True)


def test_conditions_are_overdue_after_the_timeout_that_the_service_has(tmp_path: Path) -> None:
    cluster = SoundCluster(1)
    condition_overdue(cluster)
    file = snapshot(cluster, tmp_path)
    status, text = run("--snapshot", file)
    assert (status, "FabricAttached; the limit of 600 s has passed" in " ".join(text.split())) == (1, True)
    assert run("--snapshot", file, "--binding-timeout", "3600")[0] == 0


def test_namespace_leaves_out_pods_and_claims_of_others_and_no_device(tmp_path: Path) -> None:
    cluster = SoundCluster(1)
    whole_device_twice(cluster)
    finalizer_removed(cluster)
    file = snapshot(cluster, tmp_path)
    everywhere, there, elsewhere = (
        {
            each["about"].partition(" ")[0]
            for each in json.loads(run("--snapshot", file, "-o", "json", *asked)[1])["findings"]
        }
        for asked in ((), ("-n", "ml"), ("-n", "other"))
    )
    assert (everywhere, there, elsewhere) == ({"device", "claim"}, {"device", "claim"}, {"device"})
