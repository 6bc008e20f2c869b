import json
from collections.abc import Callable
from pathlib import Path
from textwrap import indent
from typing import Any

import pytest
import yaml
from dra_extender.cli.app import app
from dra_extender.config.scheduler_configuration import SchedulerSetup, render
from typer.testing import CliRunner, Result

SHIPPED = Path(__file__).parents[2] / "deploy" / "base" / "scheduler-config" / "kube-scheduler.yaml"


def literal(config_map: dict[str, Any]) -> str:
    """A ConfigMap with its texts in literal blocks."""
    head = "kind: ConfigMap\napiVersion: v1\ndata:\n"
    return head + "".join(f"  {name}: |\n{indent(text, '    ')}\n" for name, text in config_map["data"].items())


def config(*arguments: str, stdin: str | None = None) -> Result:
    return CliRunner().invoke(app, ["config", *arguments], input=stdin)


@pytest.mark.parametrize("output", ["yaml", "json"])
def test_the_configuration_is_printed_as_it_is_shipped(output: str) -> None:
    done = config("scheduler", "-o", output)
    assert (done.exit_code, yaml.safe_load(done.stdout)) == (0, yaml.safe_load(SHIPPED.read_text()))


def test_time_limits_follow_the_settings_of_the_service(monkeypatch: pytest.MonkeyPatch) -> None:
    """The file below the environment, as for the service itself."""
    monkeypatch.setenv("DRA_EXTENDER_SCHEDULING__BINDING_TIMEOUT_SECONDS", "1800")
    monkeypatch.setenv("DRA_EXTENDER_SERVER__PORT", "9000")
    document = yaml.safe_load(config("scheduler").stdout)
    assert [each["httpTimeout"] for each in document["extenders"]] == ["5s", "1860s"]
    assert {each["urlPrefix"] for each in document["extenders"]} == {"http://127.0.0.1:9000"}


def test_options_reach_both_stanzas() -> None:
    done = config(
        "scheduler",
        "--url",
        "https://extender.ns.svc/",
        "--ca-file",
        "/ca.crt",
        "--server-name",
        "extender",
        "--scheduler-name",
        "gpu",
        "--namespace",
        "kube-system",
    )
    document = yaml.safe_load(done.stdout)
    assert document == render(
        SchedulerSetup(
            url="https://extender.ns.svc",
            scheduler_name="gpu",
            namespace="kube-system",
            authority="/ca.crt",
            server_name="extender",
        )
    )
    for each in document["extenders"]:
        assert (each["enableHTTPS"], each["tlsConfig"]) == (True, {"caFile": "/ca.crt", "serverName": "extender"})


def test_what_would_not_work_is_not_printed() -> None:
    done = config("scheduler", "--url", "https://extender.ns.svc")
    assert (done.exit_code, done.stdout) == (2, "")
    assert "--url https://extender.ns.svc needs --ca-file" in done.stderr


def test_a_good_file_has_no_problem() -> None:
    done = config("check", str(SHIPPED))
    assert (done.exit_code, done.stdout) == (0, "0 problems\n")


def test_a_missing_field_is_told_in_words_at_the_line_of_its_nearest_parent(tmp_path: Path) -> None:
    file = tmp_path / "scheduler.yaml"
    file.write_text(
        SHIPPED.read_text().replace("percentageOfNodesToScore: 100\n", "").replace("weight: 2", "weight: 0")
    )
    line = 1 + file.read_text().splitlines().index("    weight: 0")
    done = config("check", str(file))
    share, weight, _ = done.stdout.splitlines()
    assert share.startswith(f"{file}:3: percentageOfNodesToScore: expected 100, got nothing: ")
    assert weight.startswith(f"{file}:{line}: extenders[0].weight: expected a whole number above 0")


@pytest.mark.parametrize("written", [yaml.safe_dump, json.dumps, literal])
def test_the_configuration_in_a_config_map_among_manifests_is_checked(written: Callable[[Any], str]) -> None:
    """As `helm template` prints it; lines are those of the manifests."""
    text = SHIPPED.read_text().replace("weight: 2", "weight: 0")
    map_of = {"apiVersion": "v1", "kind": "ConfigMap", "data": {"other": "x", "kube-scheduler.yaml": text}}
    manifests = "---\napiVersion: v1\nkind: Service\n---\n" + written(map_of)
    (found,) = json.loads(config("check", "-o", "json", "-", stdin=manifests).stdout)["problems"]
    assert found["field"] == "extenders[0].weight"
    said = manifests.splitlines()[found["line"] - 1]
    assert "weight: 0" in said or "kube-scheduler.yaml" in said


@pytest.mark.parametrize(
    ("manifests", "words"),
    [
        (
            "kind: ConfigMap\ndata: {a: b}",
            "expected one KubeSchedulerConfiguration, by itself or in a ConfigMap, found 0 in 1",
        ),
        ("kind: ConfigMap\ndata: 7", "found 0 in 1 document"),
        ("kind: ConfigMap\ndata: {a: 'KubeSchedulerConfiguration: [', b: 5}", "data.a, which begins in line 2"),
        ("kind: KubeSchedulerConfiguration\n---\nkind: KubeSchedulerConfiguration", "found 2 in 2 documents"),
    ],
)
def test_manifests_without_one_configuration_are_refused(manifests: str, words: str) -> None:
    done = config("check", "-", stdin=manifests)
    assert done.exit_code == 2
    assert words in done.stderr


def test_problems_are_told_one_a_line_and_to_programs_as_json() -> None:
    document = yaml.safe_load(SHIPPED.read_text())
    document["extenders"][0]["ignorable"] = True
    document["percentageOfNodesToScore"] = 50
    text = yaml.safe_dump(document)
    done = config("check", "-", stdin=text)
    assert done.exit_code == 1
    assert [line.split(": ")[1] for line in done.stdout.splitlines()[:-1]] == [
        "percentageOfNodesToScore",
        "extenders[0].ignorable",
    ]
    assert done.stdout.endswith("2 problems\n")
    told = json.loads(config("check", "-o", "json", "-", stdin=text).stdout)
    assert [each["field"] for each in told["problems"]] == ["percentageOfNodesToScore", "extenders[0].ignorable"]


@pytest.mark.parametrize(("file", "words"), [("missing.yaml", "No such file"), ("-", "expected YAML")])
def test_what_cannot_be_read_is_another_exit_status(file: str, words: str) -> None:
    done = config("check", file, stdin="a: b: c")
    assert done.exit_code == 2
    assert words in done.stderr


def test_settings_in_force_are_shown_and_can_be_given_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DRA_EXTENDER_LOG__LEVEL", "debug")
    shown = config("settings").stdout
    assert yaml.safe_load(shown)["log"]["level"] == "debug"
    monkeypatch.delenv("DRA_EXTENDER_LOG__LEVEL")
    file = tmp_path / "settings.yaml"
    file.write_text(shown)
    assert config("settings", "--config", str(file)).stdout == shown
    assert json.loads(config("settings", "-o", "json").stdout)["log"]["level"] == "info"


def test_a_bad_setting_is_said_by_every_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DRA_EXTENDER_SERVER__PORT", "x")
    for arguments in (["scheduler"], ["settings"], ["check", str(SHIPPED)]):
        done = config(*arguments)
        assert done.exit_code == 2
        assert "setting server.port" in done.stderr
