import asyncio
import sys
from pathlib import Path
from typing import Annotated, Final

import typer

from dra_extender.cli.answers import ExitStatus, ProgramFormat, complain
from dra_extender.cli.color import Color, ColorChoice

_FORCED: Final = {ColorChoice.AUTO: None, ColorChoice.ALWAYS: True, ColorChoice.NEVER: False}
EXAMPLES: Final = (
    "PROGRAM demo 04 --kubernetes 1.36",
    "PROGRAM demo -f manifests/ --policy policy.yaml",
)


def command(
    stories: Annotated[
        list[str] | None,
        typer.Argument(metavar="STORY", help="Examples to show in full: a name or its beginning.", show_default=False),
    ] = None,
    file: Annotated[
        list[Path] | None,
        typer.Option(
            "--filename",
            "-f",
            metavar="FILE",
            help="Manifests to play as one story, in this order; a folder, or - for standard input.",
        ),
    ] = None,
    policy: Annotated[
        Path | None,
        typer.Option(
            "--policy",
            metavar="FILE",
            help="Policy for devices (docs/concepts/policy.md); default: policies/NAME beside FILE.",
        ),
    ] = None,
    output: Annotated[ProgramFormat, typer.Option("--output", "-o", help="Format of the report.")] = ProgramFormat.TEXT,
    kubernetes: Annotated[
        str,
        typer.Option(
            "--kubernetes", metavar="RELEASE", help="Release whose API server is emulated, from 1.34 to 1.37."
        ),
    ] = "1.37",
    scheduler_name: Annotated[
        list[str] | None,
        typer.Option(
            "--scheduler-name",
            metavar="NAME",
            help="Schedule pods with this schedulerName; default: dra-extender-scheduler.",
        ),
    ] = None,
    color: Color = ColorChoice.AUTO,
    *,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Show all examples in full.")] = False,
    list_names: Annotated[bool, typer.Option("--list", help="List the examples and play none.")] = False,
) -> None:
    """Play manifests on a cluster in memory, with the real extender behind real HTTP.

    Without files, the examples of the project are played, each on a cluster of its own: the first in full, each other in one line.
    The exit status is 1 if an expectation in the manifests does not hold.
    """
    from rich.console import Console

    from dra_extender.cli.demo_stories import (
        Playing,
        UnknownNameError,
        chosen,
        example_files,
        minor_of,
        play,
        read_story,
    )
    from dra_extender.config.policy_file import read_policy
    from dra_extender.config.settings import InvalidSettingsError, load_settings
    from dra_extender.manifests.files import STDIN
    from dra_extender.simulator.demo.document import ManifestError
    from dra_extender.simulator.demo.report import StoryReport, as_json
    from dra_extender.simulator.scheduler.loop import SCHEDULER_NAME
    from dra_extender.simulator.virtual_time import VirtualClockLoop
    from dra_extender.telemetry.logging import LogFormat, LogLevel, configure_logging

    if policy == STDIN:
        raise typer.BadParameter("--policy: expected a file, because the service follows it; '-' is none")
    names = tuple(scheduler_name or (SCHEDULER_NAME,))
    if file and (stories or list_names):
        raise typer.BadParameter("STORY and --list are about the examples: --filename does not go with them")
    try:
        examples = [] if file else example_files()
        if list_names:
            typer.echo("\n".join(f"{example.name:<32}  {example.subject}".rstrip() for example in examples))
            return
        chosen_files = chosen(examples, stories) if stories else examples
        played = [read_story(file, names)] if file else [example.story(names) for example in chosen_files]
        if policy is not None:
            played = [story._replace(policy=policy) for story in played]
        minor = minor_of(kubernetes)
        settings = load_settings(None, {"server": {"host": "127.0.0.1", "port": 0}})
        for path in {story.policy for story in played if story.policy is not None}:
            read_policy(path)
    except (ManifestError, InvalidSettingsError, UnknownNameError) as problem:
        for line in str(problem).splitlines():
            complain(line)
        raise typer.Exit(ExitStatus.UNKNOWN) from problem
    configure_logging(LogFormat.TEXT, LogLevel.WARNING)
    report = (
        StoryReport(Console(highlight=False, force_terminal=_FORCED[color])) if output is ProgramFormat.TEXT else None
    )
    full = {story.title for story in (played if verbose or file or stories else played[:1])}
    with asyncio.Runner(loop_factory=VirtualClockLoop) as runner:
        results = runner.run(play(played, Playing(minor, settings, names), report, full))
    if report is None:
        sys.stdout.write(as_json(results) + "\n")
    else:
        report.summary(results)
        if len(full) < len(played):
            typer.echo("dra-extender demo NAME shows a story in full, demo -v all of them.")
    raise typer.Exit(ExitStatus.NEGATIVE if any(result.failures for result in results) else ExitStatus.ANSWERED)
