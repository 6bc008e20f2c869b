"""The options that say which cluster a command asks: a running one, or a snapshot."""

import asyncio
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Final

import msgspec
import typer
import uvloop

from dra_extender.inspection.objects import ClusterObjects, read_live
from dra_extender.inspection.snapshot_file import SnapshotFileError, read_snapshot
from dra_extender.kube.client.credentials import ConfigurationError
from dra_extender.kube.client.settings import KubeSettings
from dra_extender.scheduling.ports.cluster import ClusterError
from dra_extender.telemetry.logging import LogFormat, LogLevel, configure_logging

EXIT_FAILED: Final = 1
EXIT_USAGE: Final = 2

SnapshotFile = Annotated[
    Path | None, typer.Option("--snapshot", metavar="FILE", help="Ask a snapshot instead of a running cluster.")
]
Kubeconfig = Annotated[
    Path | None, typer.Option("--kubeconfig", help="Default: $KUBECONFIG, else ~/.kube/config, as for kubectl.")
]
Context = Annotated[str | None, typer.Option("--context", help="Context of the kubeconfig; default: its current one.")]
Impersonate = Annotated[str, typer.Option("--as", metavar="USER", help="Ask in the name of this user.")]


class AnswerFormat(StrEnum):
    """A tree for people, JSON for programs."""

    TREE = "tree"
    JSON = "json"


Output = Annotated[AnswerFormat, typer.Option("--output", "-o", help="Format of the answer.")]


def print_json(report: msgspec.Struct) -> None:
    """Print an answer as indented JSON."""
    sys.stdout.write(msgspec.json.format(msgspec.json.encode(report)).decode() + "\n")


def read_objects(file: Path | None, kubeconfig: Path | None, context: str | None, impersonate: str) -> ClusterObjects:
    """The objects of the snapshot, else of the cluster; ends the program with a message where they cannot be read."""
    configure_logging(LogFormat.TEXT, LogLevel.ERROR)
    try:
        if file is not None:
            return read_snapshot(file)
        settings = KubeSettings(kubeconfig=kubeconfig, context=context, impersonate=impersonate)
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(read_live(settings))
    except (SnapshotFileError, ConfigurationError, ClusterError) as problem:
        raise ended(problem, EXIT_USAGE) from problem


def ended(problem: Exception, status: int) -> typer.Exit:
    """Print what went wrong; returns the exit with this status."""
    sys.stderr.write(f"dra-extender: {problem}\n")
    return typer.Exit(status)
