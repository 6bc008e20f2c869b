import json
from pathlib import Path

import pytest
import yaml
from dra_extender.cli.app import app
from dra_extender.kubescheduler.render import SchedulerSetup, render
from typer.testing import CliRunner, Result

SHIPPED = Path(__file__).parents[2] / "deploy" / "base" / "scheduler-config" / "kube-scheduler.yaml"


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
    assert "expected caFile or caData: without them kube-scheduler believes any certificate" in done.stderr


def test_a_good_file_has_no_problem() -> None:
    done = config("check", str(SHIPPED))
    assert (done.exit_code, done.stdout) == (0, "0 problems\n")


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
