"""docs/reference/commands.md, made from the commands."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import typer
from dra_extender.cli.app import OF_THE_SERVICE, app

DOCUMENT: Final = Path(__file__).parents[2] / "docs" / "reference" / "commands.md"
_BEGIN: Final = """\
# Commands

`dra-extender COMMAND`; those that only read a cluster are also commands of kubectl: `kubectl dra COMMAND`. This page is made from
the program by `make generate`.

Exit status of all commands: 0 answered, done, or stopped on request; 1 the answer is no, or it could not be done; 2 an option,
a setting or a file cannot be used, or the cluster cannot be read.
"""


def document() -> str:
    """The whole document: one section for each command, with a table of its arguments and options."""
    root = typer.main.get_command(app)
    sections = [_section(f"dra-extender {name}", command) for name, command in _commands(root, ())]
    return "\n".join([_BEGIN, *sections])


def _commands(group: Any, path: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
    context = group.make_context("", [], resilient_parsing=True)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if hasattr(command, "list_commands"):
            yield from _commands(command, (*path, name))
        else:
            yield " ".join((*path, name)), command


def _section(name: str, command: Any) -> str:
    context = command.make_context(name, [], resilient_parsing=True)
    words = name.split()
    title = name if words[1] in OF_THE_SERVICE else f"{name}, kubectl dra {' '.join(words[1:])}"
    rows = [_row(each, context) for each in command.params if not each.hidden]
    table = ["| argument or option | meaning |", "|---|---|", *rows, ""] if rows else []
    return "\n".join([f"## {title}", "", *_paragraphs(command.help or ""), *table])


def _paragraphs(text: str) -> list[str]:
    return [line for part in re.split(r"\n\s*\n", text.strip()) for line in (_cell(part), "")]


def _row(parameter: Any, context: Any) -> str:
    names, about = parameter.get_help_record(context) or (parameter.name, "")
    return f"| `{names.replace('|', chr(92) + '|')}` | {_cell(about)} |"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")
