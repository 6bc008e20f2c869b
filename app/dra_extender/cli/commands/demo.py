import asyncio
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
import uvloop
from rich.console import Console

from dra_extender.cli.demo_stories import UnknownReleaseError, examples, minor_of, play, read_story
from dra_extender.config.policy_file import read_policy
from dra_extender.config.settings import InvalidSettingsError, load_settings
from dra_extender.simulator.demo.manifests import ManifestError
from dra_extender.simulator.demo.report import StoryReport, as_json
from dra_extender.simulator.demo.runner import EXIT_USAGE, exit_code
from dra_extender.telemetry.logging import LogFormat, LogLevel, configure_logging


class DemoOutput(StrEnum):
    """Text for people, JSON for programs."""

    TEXT = "text"
    JSON = "json"


def command(
    file: Annotated[
        list[Path] | None,
        typer.Option(
            "--file", "-f", help="Manifests to play as one story, in this order; a folder, or - for standard input."
        ),
    ] = None,
    policy: Annotated[
        Path | None,
        typer.Option(
            "--policy", metavar="FILE", help="Policy for devices (docs/policy.md); default: policies/NAME beside FILE."
        ),
    ] = None,
    output: Annotated[DemoOutput, typer.Option("--output", "-o", help="Format of the report.")] = DemoOutput.TEXT,
    kubernetes: Annotated[
        str, typer.Option("--kubernetes", help="Release whose API server is emulated, from 1.34 to 1.37.")
    ] = "1.37",
) -> None:
    """Play manifests on a cluster in memory, with the real extender behind real HTTP.

    Without files, the examples of the project are played, each on a cluster of its own.  Exit status: 0 when every expectation in
    the manifests holds, 1 when one does not, 2 when a manifest cannot be used.
    """
    try:
        stories = [read_story(file)] if file else examples()
        if policy is not None:
            stories = [story._replace(policy=policy) for story in stories]
        minor = minor_of(kubernetes)
        settings = load_settings(None, {"server": {"host": "127.0.0.1", "port": 0}})
        for path in {story.policy for story in stories if story.policy is not None}:
            read_policy(path)
    except (ManifestError, InvalidSettingsError, UnknownReleaseError) as problem:
        sys.stderr.write(f"{problem}\n")
        raise typer.Exit(EXIT_USAGE) from problem
    configure_logging(LogFormat.TEXT, LogLevel.WARNING)
    report = StoryReport(Console(highlight=False)) if output is DemoOutput.TEXT else None
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        results = runner.run(play(stories, minor, settings, report))
    if report is None:
        sys.stdout.write(as_json(results) + "\n")
    else:
        report.summary(results)
    raise typer.Exit(exit_code(results))
