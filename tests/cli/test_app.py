import asyncio
import gc
import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import IO, Final
from urllib.error import HTTPError
from urllib.request import ProxyHandler, build_opener

import pytest
import yaml
from dra_extender.cli.app import NAMES, PLUGIN_NAMES, app, plugin, plugin_main
from dra_extender.cli.command_help import EXIT_STATUSES
from dra_extender.service import wiring
from typer.testing import CliRunner

from tests.support.inspection.example_snapshot import FILE

ROOT = Path(__file__).parents[2]


@pytest.fixture
def kubeconfig(tmp_path: Path) -> Path:
    """Of an API server that is not there: nobody listens on its port."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    entry = {"cluster": "c", "user": "u"}
    file = tmp_path / "kubeconfig"
    file.write_text(
        yaml.safe_dump(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "current-context": "here",
                "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{port}"}}],
                "users": [{"name": "u", "user": {}}],
                "contexts": [{"name": "here", "context": entry}],
            }
        )
    )
    return file


def serve(*arguments: str) -> tuple[int, str]:
    """Status and standard error of a service that cannot start."""
    with pytest.MonkeyPatch.context() as patch:
        # It is a limit of the process of the tests.
        patch.setattr(wiring, "raise_limit", lambda: None)
        done = CliRunner().invoke(app, ["serve", "--host", "127.0.0.1", "--port", "0", *arguments])
    assert isinstance(done.exception, SystemExit)
    return done.exit_code, done.stderr


def test_version_is_shown_for_people_and_programs() -> None:
    runner = CliRunner()
    assert runner.invoke(app, ["version"]).stdout.startswith("dra-extender ")
    told = runner.invoke(app, ["version", "-o", "json"]).stdout
    assert set(json.loads(told)) == {"version", "python", "lacking"}
    assert runner.invoke(app, ["version", "--json"]).stdout == told


def test_help_of_each_command_tells_its_exit_status() -> None:
    for arguments in (["--help"], ["serve", "--help"]):
        shown = " ".join(CliRunner().invoke(app, arguments).stdout.split())
        assert [meaning for meaning in EXIT_STATUSES.values() if meaning not in shown] == []


@pytest.mark.parametrize("name", sorted({*NAMES} - {"answer"}))
def test_the_help_of_the_program_has_the_first_sentence_of_each_command_but_answer(name: str) -> None:
    own = CliRunner().invoke(app, [name, "--help"])
    assert own.exit_code == 0
    listed = CliRunner().invoke(app, ["--help"]).stdout
    (shown,) = re.findall(rf"^  {name}  +(\S.*(?:\n    +\S.*)*)$", listed, re.MULTILINE)
    assert "".join(shown.split()) in "".join(own.stdout.split())
    assert "\n  answer " not in listed


SLOW = {"aiohttp", "kubernetes", "msgspec", "pydantic", "rich", "structlog"}
OF_THE_SERVICE = {
    *("aiohttp", "cryptography", "fastapi", "httptools", "jinja2", "kubernetes", "pydantic_settings", "starlette"),
    "uvicorn",
    *("dra_extender.api", "dra_extender.config", "dra_extender.kube", "dra_extender.page", "dra_extender.service"),
}
"""What no question about a snapshot needs."""
SAYS_WHAT_IT_LOADS = """
import sys
from dra_extender.cli.app import plugin_main
loaded = set()
for line in sys.stdin.read().splitlines():
    sys.argv = ["kubectl-dra", *line.split()]
    try: plugin_main()
    except SystemExit: pass
    print(line, *(sys.modules.keys() - loaded), sep="|", file=sys.stderr)
    loaded.update(sys.modules)
"""


def test_help_version_and_completion_load_no_command_and_nothing_that_takes_long() -> None:
    """Asked one after the other in one process; what an answer has loaded is said of the first that loads it."""
    helps = [f"{name} -h" for name in PLUGIN_NAMES]
    questions = ["--help", "-h", "completion bash", "__complete why --", "--version", *helps]
    done = subprocess.run(
        [sys.executable, "-c", SAYS_WHAT_IT_LOADS],
        cwd=ROOT,
        input="\n".join(questions),
        capture_output=True,
        text=True,
        check=True,
    )
    loaded = {question: set(names) for question, *names in (line.split("|") for line in done.stderr.splitlines())}
    assert list(loaded) == questions
    names = ("", ".cli", ".cli.app", ".cli.command_help", ".cli.commands", ".cli.completion")
    assert {each for each in loaded["--help"] if each.startswith("dra_extender")} == {
        f"dra_extender{each}" for each in names
    }
    assert {question: slow for question, names in loaded.items() if (slow := names & SLOW)} == {}


def test_question_about_a_snapshot_loads_nothing_of_the_service() -> None:
    questions = [f"{name} --snapshot {FILE}" for name in ("why", "devices", "usage", "audit", "what-if")]
    questions.append(f"defrag --pod ml/train-7 --snapshot {FILE}")
    done = subprocess.run(
        [sys.executable, "-c", SAYS_WHAT_IT_LOADS],
        cwd=ROOT,
        input="\n".join(questions),
        capture_output=True,
        text=True,
        check=True,
    )
    loaded = [line.split("|") for line in done.stderr.splitlines()]
    assert [question for question, *_ in loaded] == questions
    assert "dra_extender.inspection.cluster_view" in loaded[0]
    assert {question: needless for question, *names in loaded if (needless := OF_THE_SERVICE & {*names})} == {}


def test_command_looks_for_cyclic_garbage_rarely(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["kubectl-dra", "version"])
    before = gc.get_threshold()
    with pytest.raises(SystemExit):
        plugin_main()
    assert gc.get_threshold()[0] > before[0]


def test_plugin_has_the_commands_for_clusters_and_not_those_of_the_service() -> None:
    assert {"why", "devices", "snapshot", "completion"} <= set(PLUGIN_NAMES)
    assert "serve" not in PLUGIN_NAMES
    assert CliRunner().invoke(plugin, ["serve"]).exit_code == 2


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["serve", "--port", "99999"], "error: setting server.port (command line): expected at most 65535"),
        (["serve", "--port", "x"], "error: invalid value for '--port'"),
        (["serve", "--log-format", "xml"], "error: invalid value for '--log-format'"),
        (["serve", "--nothing"], "error: no such option: --nothing"),
        (
            ["serve", "--config", "/no/such/file"],
            "error: settings file /no/such/file: No such file or directory",
        ),
        (["nothing"], "error: no such command 'nothing'"),
        (
            ["-n", "ml", "why"],
            "error: no such option: -n\nOptions stand after the command: dra-extender COMMAND -n\nSee ",
        ),
        (["config", "-o", "json"], "Options stand after the command: dra-extender config COMMAND -o\nSee "),
    ],
)
def test_a_wrong_flag_or_file_gives_a_sentence_and_status_2(arguments: list[str], said: str) -> None:
    result = CliRunner().invoke(app, arguments, env={"COLUMNS": "200"})
    assert result.exit_code == 2
    assert said in result.stderr


@pytest.mark.parametrize("arguments", [(), ("config",)])
def test_program_that_is_asked_nothing_prints_its_help(arguments: tuple[str, ...]) -> None:
    result = CliRunner().invoke(app, arguments)
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.startswith("Usage: ")


def test_error_of_a_megabyte_is_cut_and_has_no_control_characters() -> None:
    result = CliRunner().invoke(app, ["why", "x", "\x1b[2J" * 200_000])
    assert (result.exit_code, len(result.stderr) < 5_000, "\x1b" in result.stderr) == (2, True, False)
    assert result.stderr.startswith("error: got unexpected extra argument")


WRITERS: Final = (("usage", "--snapshot", FILE), ("devices", "--snapshot", FILE), ("--help",), ("completion", "bash"))
"""Short answers and long ones: what fits into a buffer is written at the end."""


def written_to(stdout: int | IO[bytes], arguments: Sequence[str]) -> tuple[int, str]:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    done = subprocess.run(
        [sys.executable, "-m", "dra_extender.cli.app", *arguments],
        cwd=ROOT,
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
        env=environment,
    )
    return done.returncode, done.stderr


@pytest.mark.parametrize("arguments", WRITERS)
def test_answer_that_cannot_be_written_gives_a_sentence_and_status_2(arguments: Sequence[str]) -> None:
    with Path("/dev/full").open("wb") as full:
        found = written_to(full, arguments)
    assert found == (2, "error: the answer cannot be written: No space left on device\n")


@pytest.mark.parametrize("arguments", WRITERS)
def test_answer_that_nobody_reads_to_its_end_says_nothing_of_that(arguments: Sequence[str]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    try:
        assert written_to(writer, arguments) == (1, "")
    finally:
        os.close(writer)


@pytest.mark.parametrize(("closed", "status"), [("usage --snapshot FILE >&-", 0), ("usage --nothing 2>&-", 2)])
def test_closed_output_is_no_obstacle(closed: str, status: int) -> None:
    line = f"{sys.executable} -m dra_extender.cli.app {closed.replace('FILE', str(FILE))}"
    done = subprocess.run(["/bin/sh", "-c", line], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (status, "")


def test_a_kubeconfig_that_cannot_be_read_gives_a_sentence_and_status_2() -> None:
    status, told = serve("--kubeconfig", "/no/such/file")
    assert status == 2
    assert "kubeconfig /no/such/file does not exist" in told


def test_a_wrong_policy_file_gives_a_sentence_and_status_2(
    kubeconfig: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Placing pods without the policy could put two schemes on one device."""
    file = tmp_path / "policy.yaml"
    file.write_text("rules: [{name: a, bindsToNode: 5}]\n")
    monkeypatch.setenv("DRA_EXTENDER_SCHEDULING__POLICY_FILE", str(file))
    status, told = serve("--kubeconfig", str(kubeconfig))
    assert status == 2
    expected = f"policy file {file}: rules[0].bindsToNode (rule a): expected true, or the field left out, got 5"
    assert json.loads(told.splitlines()[-1])["err"] == expected


def test_a_user_without_a_home_is_no_obstacle(kubeconfig: Path) -> None:
    """As which OpenShift runs containers; the Kubernetes client looks for a home when it is imported."""
    stranger = (
        "import pwd, runpy, sys\n"
        "def nobody(_): raise KeyError('no such user')\n"
        "pwd.getpwuid = nobody\n"
        f"sys.argv = ['dra-extender', 'why', '--kubeconfig', {str(kubeconfig)!r}, '-n', 'a', 'b']\n"
        "runpy.run_module('dra_extender.cli.app', run_name='__main__')\n"
    )
    without_home = {name: value for name, value in os.environ.items() if name != "HOME"}
    done = subprocess.run(
        [sys.executable, "-c", stranger], env=without_home, capture_output=True, text=True, check=False
    )
    assert "Traceback" not in done.stderr
    assert done.returncode == 2


def test_a_taken_port_gives_a_sentence_and_status_2(kubeconfig: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        status, told = serve("--port", port, "--kubeconfig", str(kubeconfig))
    assert status == 2
    assert f"cannot listen on 127.0.0.1, port {port}: Address already in use" in told


@pytest.mark.parametrize("log_format", ["text", "json"])
def test_an_api_server_that_never_answers_gives_a_sentence_and_status_2(
    kubeconfig: Path, tmp_path: Path, log_format: str
) -> None:
    """In the format of the log: programs read its last line too."""
    file = tmp_path / "settings.yaml"
    file.write_text("cluster: {startup_timeout_seconds: 0}\n")
    status, told = serve("--config", str(file), "--kubeconfig", str(kubeconfig), "--log-format", log_format)
    assert status == 2
    lines = told.splitlines()
    assert lines[-1].startswith("error: ") if log_format == "text" else all(map(json.loads, lines))


def get(url: str) -> tuple[int, str]:
    opener = build_opener(ProxyHandler({}))
    try:
        with opener.open(url, timeout=60) as answer:
            return answer.status, answer.read().decode()
    except HTTPError as refused:
        with refused:
            return refused.code, refused.read().decode()


def test_a_signal_ends_the_service_with_status_0(kubeconfig: Path) -> None:
    """Even while it waits for the API server; until then it is alive and not ready, and its log is JSON."""
    command = [sys.executable, "-W", "error", "-m", "dra_extender.cli.app", "serve"]
    arguments = ["--host", "127.0.0.1", "--port", "0", "--kubeconfig", str(kubeconfig)]
    with subprocess.Popen([*command, *arguments], cwd=ROOT, stderr=subprocess.PIPE, text=True) as program:
        try:
            assert program.stderr is not None
            address = json.loads(program.stderr.readline())["address"]
            assert get(f"http://{address}/livez") == (200, "ok")
            status, told = get(f"http://{address}/readyz")
            assert status == 503
            assert "[-]service failed: the extender is starting" in told
            program.send_signal(signal.SIGTERM)
            lines = [json.loads(line)["msg"] for line in program.stderr]
            assert program.wait(timeout=30) == 0
        finally:
            program.kill()
    assert lines[-1] == "stopped"


async def test_ctrl_c_before_there_is_an_answer_ends_without_a_word() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.setblocking(False)
        asking = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "dra_extender.cli.app", "why"),
            *("--server", f"http://127.0.0.1:{silent.getsockname()[1]}"),
            cwd=ROOT,
            env={name: value for name, value in os.environ.items() if name != "KUBECONFIG"} | {"HOME": "/nowhere"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            # Shells start background jobs with SIGINT ignored, and their children inherit that.
            preexec_fn=partial(signal.signal, signal.SIGINT, signal.default_int_handler),
        )
        asked, _ = await asyncio.get_running_loop().sock_accept(silent)
        with asked:
            asking.send_signal(signal.SIGINT)
            async with asyncio.timeout(60):
                told = await asking.communicate()
    assert (asking.returncode, told) == (130, (b"", b""))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_the_first_signal_asks_to_stop_and_the_next_is_the_system_s(number: signal.Signals) -> None:
    handlers = {each: signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGINT)}
    try:
        stop = wiring.stop_on_signal()
        assert not stop.is_set()
        os.kill(os.getpid(), number)
        await asyncio.wait_for(stop.wait(), 60)
        assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
        assert signal.getsignal(signal.SIGINT) == signal.default_int_handler
    finally:
        for each, handler in handlers.items():
            signal.signal(each, handler)
