"""docs/reference/commands.md, made from the commands."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import typer
from dra_extender.cli.app import OF_THE_SERVICE, app
from dra_extender.cli.command_help import EXIT_STATUSES, called, help_record

DOCUMENT: Final = Path(__file__).parents[2] / "docs" / "reference" / "commands.md"
_BEGIN: Final = """\
# Commands

`dra-extender COMMAND`; those that only read a cluster are also commands of kubectl: `kubectl dra COMMAND`. This page is made from
the program by `make generate`.

## Exit status

| exit status | meaning for all commands |
|---|---|
{statuses}

What went wrong is on standard error, in lines that begin with `error: `; `serve` writes it to its log once it listens. Manifests,
settings, policies and snapshots are read from standard input if the file is called `-` (not `demo --policy`). If nobody reads an
answer to its end (`| head -1`), the exit status is 1 and nothing is said.
"""

_HEAD: Final = "| argument or option | meaning |\n|---|---|"
_READS: Final = "| `--snapshot FILE`"
_SHARED: Final = """\
## Options for reading a cluster

Commands that read a cluster or a snapshot have these options."""
_REFERENCE: Final = "| [options for reading a cluster](#options-for-reading-a-cluster) | |"


def document() -> str:
    """The whole document: one section for each command, with a table of its arguments and options."""
    commands = list(_commands(typer.main.get_command(app), ()))
    rows = {name: _rows(name, command) for name, command in commands}
    shared = _shared(list(rows.values()))
    sections = [_section(name, command, rows[name], shared) for name, command in commands]
    statuses = "\n".join(f"| {status} | {meaning} |" for status, meaning in EXIT_STATUSES.items())
    return "\n".join([_BEGIN.format(statuses=statuses), _SHARED, "", _HEAD, *shared, "", *sections])


def _rows(name: str, command: Any) -> list[str]:
    context = command.make_context(name, [], resilient_parsing=True)
    return [_row(each, context) for each in command.params if not each.hidden]


def _shared(tables: list[list[str]]) -> list[str]:
    """Return the rows that all commands have which read a cluster or a snapshot."""
    reading = [rows for rows in tables if any(row.startswith(_READS) for row in rows)]
    return [row for row in reading[0] if all(row in rows for rows in reading)]


def _commands(group: Any, path: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
    context = group.make_context("", [], resilient_parsing=True)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if hasattr(command, "list_commands"):
            yield from _commands(command, (*path, name))
        else:
            yield " ".join((*path, name)), command


def _section(name: str, command: Any, rows: list[str], shared: list[str]) -> str:
    is_of_service = name.split(maxsplit=1)[0] in OF_THE_SERVICE
    title = f"dra-extender {name}" if is_of_service else f"dra-extender {name}, kubectl dra {name}"
    program = "dra-extender" if is_of_service else "kubectl dra"
    reads = set(shared) <= set(rows)
    own = [row for row in rows if not reads or row not in shared] + [_REFERENCE] * reads
    examples = [f"$ {called(example, program)}" for example in command.examples]
    shown = ["```console", *examples, "```", ""]
    return "\n".join([f"## {title}", "", *_paragraphs(command.help or ""), *shown, *([_HEAD, *own, ""] if own else [])])


def _paragraphs(text: str) -> list[str]:
    return [line for part in re.split(r"\n\s*\n", text.strip()) for line in (_cell(part), "")]


def _row(parameter: Any, context: Any) -> str:
    names, about = help_record(parameter, context) or (parameter.name, "")
    return f"| `{names.replace('|', chr(92) + '|')}` | {_cell(about)} |"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")
