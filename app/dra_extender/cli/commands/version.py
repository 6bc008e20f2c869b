import json
import platform
from typing import Annotated

import typer


def command(*, as_json: Annotated[bool, typer.Option("--json", help="One JSON object, for programs.")] = False) -> None:
    """Show what is installed, and what this platform lacks."""
    from dra_extender.runtime.installation import lacking
    from dra_extender.telemetry.metrics import build_version

    facts = {"version": build_version(), "python": platform.python_version()}
    if as_json:
        typer.echo(json.dumps({**facts, "lacking": lacking()}))
        return
    typer.echo(f"dra-extender {facts['version']} (Python {facts['python']})")
    for each in lacking():
        typer.echo(each)
