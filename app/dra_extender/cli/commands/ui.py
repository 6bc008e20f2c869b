import asyncio
import sys
from typing import Annotated

import typer

from dra_extender.cli.cluster_source import (
    EXIT_FAILED,
    EXIT_USAGE,
    Context,
    Impersonate,
    Kubeconfig,
    SnapshotFile,
    ended,
    read_objects,
)
from dra_extender.inspection.followed_cluster import FollowedCluster
from dra_extender.inspection.objects import ClusterObjects
from dra_extender.kube.client.credentials import ConfigurationError
from dra_extender.kube.client.settings import KubeSettings
from dra_extender.page.server import PortError, serve
from dra_extender.page.sources import FixedState, FollowedState
from dra_extender.page.views import CommandLines
from dra_extender.scheduling.ports.cluster import ClusterError
from dra_extender.telemetry.logging import LogFormat, LogLevel, configure_logging


def command(
    snapshot: SnapshotFile = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    impersonate: Impersonate = "",
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="Port on 127.0.0.1; 0 chooses a free one.")] = 0,
) -> None:
    """Show a page about devices and the pods that wait for them, on 127.0.0.1, until Ctrl+C.

    It follows the cluster, or shows the snapshot.  A browser needs the token that is a part of the address.  Exit status: 0 stopped
    on request; 1 the port is taken; 2 the cluster or the snapshot cannot be read.
    """
    configure_logging(LogFormat.TEXT, LogLevel.ERROR)
    given = {"--snapshot": snapshot, "--kubeconfig": kubeconfig, "--context": context, "--as": impersonate}
    source = tuple(str(word) for name, value in given.items() if value for word in (name, value))
    objects = None if snapshot is None else read_objects(snapshot, kubeconfig, context, impersonate)
    settings = KubeSettings(kubeconfig=kubeconfig, context=context, impersonate=impersonate)
    try:
        asyncio.run(_serve(objects, settings, CommandLines(source), port))
    except PortError as problem:
        raise ended(problem, EXIT_FAILED) from problem
    except (ConfigurationError, ClusterError) as problem:
        raise ended(problem, EXIT_USAGE) from problem


async def _serve(objects: ClusterObjects | None, settings: KubeSettings, commands: CommandLines, port: int) -> None:
    state = FollowedState(FollowedCluster(settings)) if objects is None else FixedState(objects)
    await serve(state, commands, port, _announce)


def _announce(address: str) -> None:
    sys.stdout.write(f"{address}\nCtrl+C ends the page.\n")
    sys.stdout.flush()
