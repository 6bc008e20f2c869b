"""The help of each command: what its options take in the words of the field, and examples that the command takes."""

import re
import shlex
from collections.abc import Iterator
from typing import Any

import pytest
import typer
from dra_extender.cli.app import app
from dra_extender.cli.command_help import PROGRAM
from typer.testing import CliRunner


def commands(group: Any, *above: str) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield the words and the command of all commands, those below others too."""
    context = group.make_context("", [], resilient_parsing=True)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if hasattr(command, "commands"):
            yield from commands(command, *above, name)
        else:
            yield (*above, name), command


COMMANDS = dict(commands(typer.main.get_command(app)))


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_help_has_two_examples_that_the_command_takes(words: tuple[str, ...]) -> None:
    command = COMMANDS[words]
    assert len(command.examples) >= 2
    shown = CliRunner().invoke(app, [*words, "--help"]).stdout
    for example in command.examples:
        assert f"  {example.replace(PROGRAM, 'dra-extender')}\n" in shown
        typed = re.split(r"[|<>)]", example.rpartition(PROGRAM)[2])[0]
        given = shlex.split(typed)
        assert tuple(given[: len(words)]) == words
        assert command.make_context("", given[len(words) :]) is not None


def test_examples_name_the_program_as_it_was_called() -> None:
    plugin_help = CliRunner().invoke(app, ["why", "--help"], prog_name="kubectl dra").stdout
    assert "  kubectl dra why -A -o json\n" in plugin_help
