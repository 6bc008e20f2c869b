"""The plugins of k9s: each runs a command that exists, and what k9s puts in is never read by the shell."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from dra_extender.cli.app import app
from typer.testing import CliRunner

FILE = Path(__file__).parents[2] / "deploy" / "k9s" / "plugins.yaml"
PLUGINS: dict[str, Any] = yaml.safe_load(FILE.read_text())["plugins"]


@pytest.mark.parametrize("plugin", PLUGINS.values(), ids=PLUGINS)
def test_a_plugin_hands_names_to_the_shell_as_arguments(plugin: dict[str, Any]) -> None:
    flag, script, name, *values = plugin["args"]
    assert (plugin["command"], flag, name) == ("sh", "-c", "k9s")
    assert "$NAME" not in script
    assert "$CONTEXT" not in script
    assert values[0] == "$CONTEXT"
    assert [f'"${number}"' in script for number in range(1, len(values) + 1)] == [True] * len(values)


@pytest.mark.parametrize("plugin", PLUGINS.values(), ids=PLUGINS)
def test_a_plugin_uses_options_that_the_command_has(plugin: dict[str, Any]) -> None:
    _, _, command, *words = plugin["args"][1].partition(" 2>&1")[0].split()
    shown = CliRunner().invoke(app, [command, "--help"], env={"COLUMNS": "200"}).output
    options = [word for word in words if word.startswith("-")]
    assert options
    assert [option for option in options if option not in shown] == []
