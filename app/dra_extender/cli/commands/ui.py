import sys
from typing import TYPE_CHECKING, Annotated, Final

import typer

from dra_extender.cli.answers import CommandError, ExitStatus
from dra_extender.cli.cluster_source import ClusterSource, asks_a_cluster

if TYPE_CHECKING:
    from dra_extender.inspection.objects import ClusterObjects

EXAMPLES: Final = (
    "PROGRAM ui --port 8090",
    "PROGRAM ui --snapshot cluster.tar.gz",
)


@asks_a_cluster
def command(
    source: ClusterSource,
    port: Annotated[
        int, typer.Option("--port", metavar="PORT", min=0, max=65535, help="Port on 127.0.0.1; 0 chooses a free one.")
    ] = 0,
) -> None:
    """Serve a web UI about devices and the pods that wait for them, on 127.0.0.1, until Ctrl+C.

    It follows the cluster, or shows the snapshot.  A browser needs the token that is a part of the address.
    """
    from dra_extender.kube.client.credentials import ConfigurationError
    from dra_extender.page.server import PortError
    from dra_extender.runtime.installation import run_in_new_loop
    from dra_extender.scheduling.ports.cluster import ClusterError

    objects = None if source.snapshot is None else source.read()
    try:
        run_in_new_loop(_serve(source, objects, port))
    except (PortError, ConfigurationError, ClusterError) as problem:
        raise CommandError(problem, ExitStatus.UNKNOWN) from problem


async def _serve(source: ClusterSource, objects: "ClusterObjects | None", port: int) -> None:
    from dra_extender.inspection.running_cluster import FollowedCluster
    from dra_extender.page.server import serve
    from dra_extender.page.states import FollowedState, fixed_state
    from dra_extender.page.views import CommandLines

    followed = FollowedCluster(source.settings(), source.extender_url, decisions=True, namespace=source.namespace)
    state = FollowedState(followed) if objects is None else fixed_state(objects)
    await serve(state, CommandLines(source.options()), port, _announce)


def _announce(address: str) -> None:
    sys.stdout.write(f"{address}\nCtrl+C stops the server.\n")
    sys.stdout.flush()
