"""The commands that answer questions about a cluster, over a snapshot."""

import json
import socket
from pathlib import Path
from typing import Final

import pytest
import yaml
from dra_extender.cli.app import app
from dra_extender.cli.cluster_source import ClusterSource, request_seconds
from dra_extender.inspection.snapshot_file import MOST_MIB, write_snapshot
from typer.testing import CliRunner

from tests.controlplane.objects import device, device_class, request, resource_claim
from tests.support.inspection.made_cluster import NAMESPACE, MadeCluster, one_gpu_held

ROOT: Final = Path(__file__).parents[2]


@pytest.fixture
def snapshot(tmp_path: Path) -> str:
    made = one_gpu_held()
    file = tmp_path / "cluster.tar.gz"
    write_snapshot(made.cluster(), file)
    return str(file)


def run(*arguments: str, **environment: str) -> tuple[int, str]:
    result = CliRunner(env=environment).invoke(app, arguments)
    return result.exit_code, result.output


def test_why_prints_a_tree_or_the_same_as_json(snapshot: str) -> None:
    status, tree = run("why", "train", "-n", NAMESPACE, "--snapshot", snapshot)
    assert (status, tree.splitlines()[0]) == (
        0,
        "ml/train  Pending 12m, dra-extender-scheduler, fits 0 of 1 nodes",
    )
    assert "next  end ml/old  ok on n1" in tree
    status, text = run("why", "train", "-n", NAMESPACE, "--snapshot", snapshot, "-o", "json")
    report = json.loads(text)
    assert (status, report["format"], report["cause"]) == (0, "dra-extender.io/why/v1", "devices")


def test_why_without_a_pod_prints_all_pods_that_wait(snapshot: str) -> None:
    status, tree = run("why", "--snapshot", snapshot)
    assert (status, tree.splitlines()[:3]) == (
        0,
        ["1 pod waits; 1 node", "1 pod  devices: matching devices are in use (gpu)", "       pod ml/train 12m"],
    )
    assert run("why", "-n", "other", "--snapshot", snapshot)[1].startswith("no pod waits in namespace other; 1 node\n")
    status, text = run("why", "--snapshot", snapshot, "-o", "json")
    report = json.loads(text)
    assert (status, report["format"], report["causes"][0]["oldest"]) == (0, "dra-extender.io/waiting/v1", "ml/train")


def test_why_on_a_node_prints_each_of_its_devices(snapshot: str) -> None:
    status, text = run("why", "train", "-n", NAMESPACE, "--node", "n1", "--snapshot", snapshot)
    assert (status, text.splitlines()[2:4]) == (
        0,
        ["  n1/gpu-0  matching devices are in use", "            held by ml/old"],
    )
    status, text = run("why", "train", "-n", NAMESPACE, "--node", "n1", "--snapshot", snapshot, "-o", "json")
    assert (status, json.loads(text)["format"]) == (0, "dra-extender.io/why-node/v1")
    status, text = run("why", "--node", "n1", "--snapshot", snapshot)
    assert (status, "--node needs the name of a pod" in text) == (2, True)


def test_why_goes_by_the_policy_of_the_service(tmp_path: Path) -> None:
    made = MadeCluster()
    made.nodes("n1")
    made.add(device_class("gpu"))
    made.gpus("n1", *(device(name, attributes={"mode": name}) for name in ("alone", "any")))
    made.running("old", "n1", "alone", request("gpu", "gpu"))
    made.pod("train", request("gpu", "gpu"))
    file, policy = tmp_path / "cluster.tar.gz", tmp_path / "policy.yaml"
    write_snapshot(made.cluster(), file)
    mode = 'device.attributes[device.driver].mode == "alone"'
    policy.write_text(f"rules: [{{name: alone, devices: '{mode}', compatibleOnlyWith: '{mode}'}}]\n")
    asked = ("why", "train", "-n", NAMESPACE, "--snapshot", str(file))
    assert "devices would suffice on 1 of 1" in run(*asked)[1]
    status, text = run(*asked, "--policy", str(policy))
    assert (status, "devices are not compatible with their neighbours" in text) == (0, True)
    assert "next  end ml/old  ok on n1" in text
    policy.write_text("rules: 1\n")
    status, text = run(*asked, "--policy", str(policy))
    assert (status, "rules" in text, "Traceback" in text) == (2, True, False)


def test_devices_prints_a_tree_or_the_same_as_json(snapshot: str) -> None:
    status, tree = run("devices", "n1", "--snapshot", snapshot)
    assert status == 0
    assert tree.startswith("n1\n  gpu.example.com/n1  generation 1\n    gpu-0  ml/old (claim claim-old)\n")
    status, text = run("devices", "--snapshot", snapshot, "--free", "-o", "json")
    report = json.loads(text)
    assert (status, report["format"]) == (0, "dra-extender.io/devices/v1")
    assert [each.get("devices", []) for each in report["pools"]] == [[]]


def test_devices_prints_a_table_for_people_or_for_spreadsheets(snapshot: str) -> None:
    status, wide = run("devices", "--snapshot", snapshot, "-o", "wide")
    assert (status, wide.split()[:4]) == (0, ["NODE", "DRIVER", "POOL", "DEVICE"])
    status, rows = run("devices", "--snapshot", snapshot, "-o", "csv")
    assert status == 0
    assert '"n1","gpu.example.com","n1","gpu-0","allocated","ml/claim-old","ml/old"' in rows


def test_devices_has_the_policy_of_the_service_on_it(snapshot: str, tmp_path: Path) -> None:
    policy = tmp_path / "policy.yaml"
    policy.write_text("rules:\n- name: one\n  physicalDevice: \"'card-0'\"\n")
    status, tree = run("devices", "--snapshot", snapshot, "--policy", str(policy))
    assert (status, "physical device card-0" in tree) == (0, True)
    policy.write_text("rules: 5")
    status, said = run("devices", "--snapshot", snapshot, "--policy", str(policy))
    assert (status, "policy.yaml" in said, "Traceback" in said) == (2, True, False)


def test_usage_prints_a_tree_json_or_csv(snapshot: str) -> None:
    status, tree = run("usage", "--snapshot", snapshot)
    assert status == 0
    assert tree.startswith(
        "ml  1 device\n  gpu (gpu.example.com)  1 device; 1 claim of 1 pod\ngpu.example.com  1 of 1 devices in use\n"
    )
    status, wide = run("usage", "--snapshot", snapshot, "-o", "wide")
    assert (status, wide.split()[:3]) == (0, ["NAMESPACE", "CLASS", "DRIVER"])
    status, text = run("usage", "--snapshot", snapshot, "-o", "json")
    report = json.loads(text)
    assert (status, report["format"], report["rows"][0]["deviceClass"]) == (0, "dra-extender.io/usage/v1", "gpu")
    status, rows = run("usage", "--snapshot", snapshot, "-o", "csv")
    assert (status, '"ml","gpu","gpu.example.com","1"' in rows) == (0, True)


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (("why", "nobody", "-n", NAMESPACE), 1, "pod ml/nobody does not exist"),
        (("why", "train", "-n", NAMESPACE, "--node", "n9"), 1, "node n9 does not exist"),
        (("devices", "n9"), 1, "node n9 does not exist"),
    ],
)
def test_what_does_not_exist_is_said_without_a_traceback(
    snapshot: str, arguments: tuple[str, ...], status: int, said: str
) -> None:
    found, text = run(*arguments, "--snapshot", snapshot)
    assert (found, "Traceback" in text) == (status, False)
    assert said in text


def test_answer_ends_with_its_source_the_age_of_its_data_the_release_and_the_gates(snapshot: str) -> None:
    for command in (("why", "train", "-n", NAMESPACE), ("devices",)):
        _, tree = run(*command, "--snapshot", snapshot)
        said = " ".join(tree.partition("\nsource ")[2].split())
        assert said == f"snapshot {snapshot}, read 2026-11-25T09:46:40Z, v1.37.1 gates not known, all taken as on"


def test_yaml_is_the_same_as_json_and_markdown_the_same_as_the_tree(snapshot: str) -> None:
    for command in (("why", "train", "-n", NAMESPACE), ("devices",)):
        as_json, as_yaml, tree, markdown = (
            run(*command, "--snapshot", snapshot, "-o", each)[1] for each in ("json", "yaml", "tree", "markdown")
        )
        assert yaml.safe_load(as_yaml) == json.loads(as_json)
        title, _, rest = tree.partition("\n")
        assert markdown == f"### {title}\n\n```text\n{rest}```\n"


@pytest.mark.parametrize("hidden", ["\x9b31m", "\u202e", "\u2028", "\U000e0041", "\x7f"])
def test_what_a_terminal_would_obey_is_escaped_in_json_and_yaml_too(tmp_path: Path, hidden: str) -> None:
    made, file = MadeCluster(), tmp_path / "cluster.tar.gz"
    made.nodes("n1")
    made.add(device_class("gpu"))
    made.pod(f"trainé{hidden}end", request("gpu", "gpu"))
    write_snapshot(made.cluster(), file)
    as_json, as_yaml = (run("why", "--snapshot", str(file), "-o", each)[1] for each in ("json", "yaml"))
    assert all(each.isprintable() or each == "\n" for each in as_json + as_yaml)
    assert yaml.safe_load(as_yaml) == json.loads(as_json)
    assert json.loads(as_json)["causes"][0]["oldest"] == f"{NAMESPACE}/trainé{hidden}end"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--as-group", "admins"), "--as-group needs --as"),
        (("--snapshot", "x", "--context", "prod"), "--context"),
        (("-o", "xml"), "xml"),
    ],
)
def test_options_that_contradict_end_with_the_status_for_bad_input(arguments: tuple[str, ...], said: str) -> None:
    status, text = run("why", "train", *arguments)
    assert (status, "Traceback" in text) == (2, False)
    assert said in text


def test_file_that_is_no_snapshot_ends_with_the_status_for_bad_input(tmp_path: Path) -> None:
    file = tmp_path / "x.tar.gz"
    file.write_bytes(b"x")
    status, text = run("why", "train", "--snapshot", str(file))
    assert status == 2
    assert "expected a snapshot" in text


def test_snapshot_limit_is_that_of_the_option_or_else_of_the_environment(tmp_path: Path) -> None:
    made, file = MadeCluster(), tmp_path / "cluster.tar.gz"
    made.nodes(*(f"n{index}" for index in range(6_000)))
    write_snapshot(made.cluster(), file)
    usage = ("usage", "--snapshot", str(file))
    refused = f"error: {file}: has more than 1 MiB unpacked; --snapshot-limit sets another limit\n"
    assert run(*usage)[0] == 0
    assert run(*usage, "--snapshot-limit", "1") == (2, refused)
    assert run(*usage, DRA_SNAPSHOT_LIMIT_MIB="1") == (2, refused)
    assert run(*usage, "--snapshot-limit", "8", DRA_SNAPSHOT_LIMIT_MIB="1")[0] == 0


@pytest.mark.parametrize("document", ["docs/limitations.md", "docs/tasks/why.md", "SECURITY.md"])
def test_help_and_documents_name_the_default_limit_of_snapshots(document: str) -> None:
    assert f"else {MOST_MIB}." in " ".join(run("why", "--help")[1].replace("│", " ").split())
    assert f"{MOST_MIB} MiB unpacked" in (ROOT / document).read_text()


def test_ui_says_what_it_cannot_read_and_which_port_is_taken(tmp_path: Path, snapshot: str) -> None:
    file = tmp_path / "x.tar.gz"
    file.write_bytes(b"x")
    status, text = run("ui", "--snapshot", str(file))
    assert (status, "expected a snapshot" in text) == (2, True)
    status, text = run("ui", "--kubeconfig", str(tmp_path / "none"))
    assert (status, "does not exist" in text) == (2, True)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        status, text = run("ui", "--snapshot", snapshot, "--port", str(taken.getsockname()[1]))
    assert (status, "cannot listen on 127.0.0.1" in text) == (2, True)


def test_redacted_snapshot_has_no_name_of_the_cluster_and_what_stays_is_listed(snapshot: str, tmp_path: Path) -> None:
    file = tmp_path / "redacted.tar.gz"
    status, text = run("snapshot", "--redact", "--snapshot", snapshot, "-o", str(file))
    assert (status, text.splitlines()[1:]) == (0, ["stays, because a selector looks into it:", "  nothing"])
    status, tree = run("devices", "--snapshot", str(file))
    assert status == 0
    assert "gpu-0" not in tree
    assert file.stat().st_mode & 0o077 == 0


def test_snapshot_goes_to_standard_output_and_what_is_said_of_it_to_standard_error(
    snapshot: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(app, ("snapshot", "--snapshot", snapshot, "-o", "-"))
    assert (result.exit_code, (tmp_path / "-").exists()) == (0, False)
    assert result.stdout_bytes == Path(snapshot).read_bytes()
    assert result.stderr.startswith("standard output: 1 nodes, 1 deviceclasses, ")


def test_pod_of_another_namespace_is_suggested(snapshot: str) -> None:
    assert run("why", f"{NAMESPACE}/train", "--snapshot", snapshot)[0] == 0
    status, text = run("why", "pod/train", "--snapshot", snapshot)
    assert status == 1
    assert "pod default/train does not exist in" in text
    assert f"; there is {NAMESPACE}/train" in text


def test_claim_is_explained_by_the_pod_that_waits_for_it(snapshot: str) -> None:
    status, text = run("why", "resourceclaim/claim-train", "-n", NAMESPACE, "--snapshot", snapshot)
    assert (status, text.splitlines()[0].partition("  ")[0]) == (0, "ml/train")
    status, text = run("why", "resourceclaim/claim-train", "--snapshot", snapshot)
    assert (status, "claim default/claim-train does not exist in" in text, "; there is ml/claim-train" in text) == (
        *(1, True, True),
    )


def test_claim_that_no_pod_uses_is_said(tmp_path: Path) -> None:
    made, file = MadeCluster(), tmp_path / "cluster.tar.gz"
    made.add(resource_claim("unused", NAMESPACE, request("gpu", "gpu")))
    write_snapshot(made.cluster(), file)
    status, text = run("why", "resourceclaim/unused", "-n", NAMESPACE, "--snapshot", str(file))
    assert (status, f"no pod uses claim {NAMESPACE}/unused" in text) == (1, True)


def test_namespace_leaves_out_rows_of_other_namespaces(snapshot: str) -> None:
    assert run("usage", "-n", NAMESPACE, "--snapshot", snapshot)[1].startswith("ml  1 device\n")
    assert run("usage", "-n", "other", "--snapshot", snapshot)[1].startswith("gpu.example.com  1 of 1 devices in use\n")
    assert "gpu-0  ml/old" in run("devices", "-n", NAMESPACE, "--snapshot", snapshot)[1]
    assert run("devices", "-n", "other", "--snapshot", snapshot)[1].startswith("no devices\n")
    for command in ("usage", "devices", "audit", "why"):
        every = run(command, "--snapshot", snapshot)
        assert run(command, "-A", "--snapshot", snapshot) == every
        assert run(command, "-A", "-n", "other", "--snapshot", snapshot) == every


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("why", "train", "-A"), "--all-namespaces"),
        (("devices", "--free", "-n", "ml"), "--free"),
        (("why", "node/n1"), "expected NAME"),
        (("why", "--server", "here:1"), "--server: expected https://HOST:PORT"),
        (("why", "--server", "https://me:secret@here"), "--server: expected https://HOST:PORT"),
        (("why", "--request-timeout", "soon"), "--request-timeout: expected a duration such as 30s or 2m"),
        (("why", "--request-timeout", "-1s"), "--request-timeout"),
        (("why", "--request-timeout", "9" * 1_000_000), "--request-timeout"),
        (("why", "--token", "secret of two words"), "--token: expected printable ASCII"),
        (("why", "--token", "secret\r\nX-Other: header"), "--token: expected printable ASCII"),
    ],
)
def test_question_that_cannot_be_read_ends_with_a_sentence_and_without_secrets(
    arguments: tuple[str, ...], said: str, snapshot: str
) -> None:
    asked = () if arguments[1].startswith(("--server", "--token", "--request")) else ("--snapshot", snapshot)
    status, text = run(*arguments, *asked)
    assert (status, "Traceback" in text, "secret" in text, len(text) < 1_000) == (2, False, False, True)
    assert said in text


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("", None), ("30", 30.0), ("1m30s", 90.0), ("250ms", 0.25), ("0", 86_400.0), ("99999h", 86_400.0)],
)
def test_request_timeout_is_read_as_by_kubectl(text: str, seconds: float | None) -> None:
    assert request_seconds(text) == seconds


def test_snapshot_and_policy_are_read_from_standard_input(snapshot: str) -> None:
    done = CliRunner().invoke(app, ("usage", "--snapshot", "-"), input=Path(snapshot).read_bytes())
    assert (done.exit_code, "source   snapshot standard input, read" in done.stdout) == (0, True)
    asked = ("devices", "--policy", "-", "--snapshot", snapshot)
    policy = "rules: [{name: one, physicalDevice: \"'card-0'\"}]\n"
    done = CliRunner().invoke(app, asked, input=policy)
    assert (done.exit_code, "physical device card-0" in done.stdout) == (0, True)
    done = CliRunner().invoke(app, asked, input="rules: 5")
    assert (done.exit_code, done.stderr.startswith("error: policy in standard input: ")) == (2, True)


def test_token_is_in_no_text_about_the_source() -> None:
    source = ClusterSource(token="secret", server="https://there")  # noqa: S106 - opens nothing
    assert source.options() == ("--server", "https://there")
    assert ClusterSource(insecure_skip_tls_verify=True).options() == ("--insecure-skip-tls-verify",)
    assert "secret" not in f"{source!r}{source.settings()!r}"


def test_flag_may_have_its_value_behind_it(snapshot: str) -> None:
    asked = ("why", "-n", "other", "--snapshot", snapshot)
    assert run(*asked, "--all-namespaces=true")[1].startswith("1 pod waits")
    assert run(*asked, "-A=true")[1].startswith("1 pod waits")
    assert run(*asked, "--all-namespaces=false")[1].startswith("no pod waits")
    status, text = run(*asked, "--all-namespaces=maybe")
    assert (status, "'--all-namespaces' does not take a value" in text) == (2, True)
    assert (
        "--all-namespaces=true does not exist" in run("why", "--snapshot", snapshot, "--", "--all-namespaces=true")[1]
    )
