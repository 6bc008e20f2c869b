"""Colours: where they are wanted, what they leave as it is, and that nobody else's escapes come with them."""

import io
import os
import pty
import re
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest
from dra_extender.cli.app import app
from dra_extender.cli.color import ColorChoice, chosen, is_wanted, painted
from dra_extender.inspection.snapshot_file import write_snapshot
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from tests.controlplane.objects import device, device_class, request
from tests.support.inspection.example_snapshot import FILE
from tests.support.inspection.made_cluster import MadeCluster

ROOT: Final = Path(__file__).parents[2]
OURS: Final = re.compile(r"\x1b\[(?:1|2|31|32|33)?m|\x1b\[0m")
SNAPSHOT: Final = ("--snapshot", str(FILE))
TREES: Final = (("why",), ("why", "ml/train-7"), ("devices",), ("usage",), ("audit",), ("what-if",))


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def run(*arguments: str) -> str:
    return CliRunner().invoke(app, arguments).stdout


@pytest.mark.parametrize("command", TREES, ids=" ".join)
def test_colours_and_shapes_change_nothing_else(command: tuple[str, ...]) -> None:
    plain = run(*command, *SNAPSHOT)
    colored = run(*command, *SNAPSHOT, "--color", "always")
    assert OURS.search(colored)
    assert re.sub("[○◐✕●]", " ", OURS.sub("", colored)) == plain
    assert run(*command, *SNAPSHOT, "--color=never") == plain


@pytest.mark.parametrize("output", ["json", "yaml", "markdown"])
def test_formats_for_programs_have_no_colours(output: str) -> None:
    for command in TREES:
        asked = (*command, *SNAPSHOT, "-o", output)
        assert "\x1b" not in run(*asked, "--color=always")
    assert "\x1b" not in run("devices", *SNAPSHOT, "-o", "csv", "--color=always")


def test_state_of_a_device_has_a_shape_and_a_word() -> None:
    shown = OURS.sub("", run("devices", *SNAPSHOT, "--color=always"))
    assert "    ◐ gpu-0-whole   blocked by counters\n" in shown
    assert "    ● gpu-0-3g-0    ml/train-1-0 (claim train-1-0-3g) 1d\n" in shown
    assert "  ○ gpu-0  usable\n" in shown


@pytest.mark.parametrize(
    ("choice", "environment", "terminal", "wanted"),
    [
        (ColorChoice.AUTO, {}, True, True),
        (ColorChoice.AUTO, {}, False, False),
        (ColorChoice.AUTO, {"NO_COLOR": "1"}, True, False),
        (ColorChoice.AUTO, {"NO_COLOR": ""}, True, True),
        (ColorChoice.AUTO, {"TERM": "dumb"}, True, False),
        (ColorChoice.ALWAYS, {"NO_COLOR": "1"}, False, True),
        (ColorChoice.NEVER, {}, True, False),
    ],
)
def test_colours_are_for_terminals_unless_somebody_says_otherwise(
    choice: ColorChoice,
    environment: dict[str, str],
    terminal: bool,
    wanted: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("NO_COLOR", "TERM"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(sys, "stdout", Terminal() if terminal else io.StringIO())
    with chosen(choice):
        assert is_wanted() == wanted


def test_terminal_gets_colours_and_a_pipe_none() -> None:
    command = [sys.executable, "-m", "dra_extender.cli.app", "devices", *SNAPSHOT]
    environment = {name: value for name, value in os.environ.items() if name != "NO_COLOR"} | {"TERM": "xterm"}
    master, slave = pty.openpty()
    with subprocess.Popen(command, cwd=ROOT, stdout=slave, env=environment) as asked:
        os.close(slave)
        seen = b""
        try:
            while part := os.read(master, 65_536):
                seen += part
        except OSError:
            pass  # The other end is closed.
        finally:
            os.close(master)
        assert asked.wait(timeout=60) == 0
    assert b"\x1b[33mblocked by counters\x1b[0m" in seen
    assert b"\x1b" not in subprocess.run(command, cwd=ROOT, capture_output=True, env=environment, check=True).stdout


@pytest.mark.parametrize("name", ["\x1b[31mtrain", "train\x9b31m", "train\x1b]0;title\x07", "usable\x1b[2J"])
def test_escapes_of_hostile_names_stay_escapes(name: str, tmp_path: Path) -> None:
    made, file = MadeCluster(), tmp_path / "cluster.tar.gz"
    made.nodes("n1")
    made.add(device_class("gpu"))
    made.gpus("n1", device("gpu-0"))
    made.running(name, "n1", "gpu-0", request("gpu", "gpu"))
    made.pod(f"{name}-2", request("gpu", "gpu"))
    write_snapshot(made.cluster(), file)
    for command in ("why", "devices", "what-if"):
        shown = run(command, "--snapshot", str(file), "--color=always")
        assert not set(OURS.sub("", shown)) & {"\x1b", "\x9b", "\x07"}


PIECES: Final = (
    "a",
    "/",
    " ",
    "  ",
    ".",
    ": ",
    ";",
    "(claim ",
    "└",
    "○",
    "\n",
    "usable",
    "blocked by ",
    "error",
    "next  ",
)


@given(st.lists(st.sampled_from(PIECES)).map("".join))
def test_paint_comes_off_whole(text: str) -> None:
    with chosen(ColorChoice.ALWAYS):
        shown = painted(text)
    assert re.sub("[○◐✕●]", " ", OURS.sub("", shown)) == text.replace("○", " ")


@pytest.mark.parametrize("columns", ["60", "120"])
def test_columns_of_the_environment_count_in_a_pipe_too(columns: str) -> None:
    asked = ("why", "ml/sweep-0", *SNAPSHOT)
    shown = CliRunner(env={"COLUMNS": columns}).invoke(app, asked).stdout.splitlines()
    longest = max(len(line) for line in shown if FILE.name not in line)
    assert int(columns) - 30 < longest <= int(columns)


@pytest.mark.parametrize("columns", ["", "0", "-5", "many", "9" * 1_000])
def test_columns_that_are_no_number_of_columns_do_no_harm(columns: str) -> None:
    result = CliRunner(env={"COLUMNS": columns}).invoke(app, ("why", *SNAPSHOT))
    assert (result.exit_code, result.exception) == (0, None)
