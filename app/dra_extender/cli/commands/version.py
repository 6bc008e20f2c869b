import json
import platform
from typing import Annotated

import typer

from dra_extender.telemetry.metrics import build_version


def command(*, as_json: Annotated[bool, typer.Option("--json", help="One JSON object, for programs.")] = False) -> None:
    """Show what is installed."""
    facts = {"version": build_version(), "python": platform.python_version()}
    typer.echo(json.dumps(facts) if as_json else f"dra-extender {facts['version']} (Python {facts['python']})")
