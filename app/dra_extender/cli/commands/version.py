import json
import platform
from typing import Annotated, Final

import typer

from dra_extender.cli.answers import ProgramFormat

EXAMPLES: Final = (
    "PROGRAM version",
    "PROGRAM version -o json",
)


def command(
    *,
    output: Annotated[ProgramFormat, typer.Option("--output", "-o", help="Format.")] = ProgramFormat.TEXT,
    as_json: Annotated[bool, typer.Option("--json", help="The same as -o json.", hidden=True)] = False,
) -> None:
    """Show what is installed, and what this platform lacks."""
    from dra_extender.runtime.installation import build_version, lacking

    facts = {"version": build_version(), "python": platform.python_version()}
    if as_json or output is ProgramFormat.JSON:
        typer.echo(json.dumps({**facts, "lacking": lacking()}))
        return
    typer.echo(f"dra-extender {facts['version']} (Python {facts['python']})")
    for sentence in lacking():
        typer.echo(sentence)
