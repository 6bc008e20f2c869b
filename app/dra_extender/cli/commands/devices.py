from typing import Annotated, Final

import typer

from dra_extender.cli.answers import TableFormat, TableOutput, print_table
from dra_extender.cli.cluster_source import ClusterSource, PolicyFile, asks_a_cluster, use_policy_file
from dra_extender.cli.object_names import node_name

EXAMPLES: Final = (
    "PROGRAM devices node/node-7",
    "PROGRAM devices --free --driver gpu.example.com -o wide",
)


@asks_a_cluster
def command(
    source: ClusterSource,
    node: Annotated[
        str | None, typer.Argument(metavar="NODE", help="Show the devices that this node can use; default: all.")
    ] = None,
    driver: Annotated[str | None, typer.Option("--driver", metavar="NAME", help="Only devices of this driver.")] = None,
    free: Annotated[bool, typer.Option("--free", help="Devices that no claim has.")] = False,
    policy: PolicyFile = None,
    output: TableOutput = TableFormat.TREE,
) -> None:
    """Show which devices are where, who has them, and what is left of counters and shared capacity.

    With --namespace only devices that claims of the namespace have.  The exit status is 1 if the node does not exist.
    """
    from dra_extender.inspection.cluster_view import ClusterView
    from dra_extender.inspection.devices import devices_report
    from dra_extender.inspection.text.devices import devices_csv, devices_tree, devices_wide

    if free and source.namespace is not None:
        raise typer.BadParameter("--free are devices that no claim has: --namespace does not go with it")
    view = ClusterView(source.read())
    use_policy_file(view, policy)
    name = None if node is None else node_name(node)
    report = devices_report(view, name, driver, free=free, namespace=source.namespace)
    print_table(report, output, devices_tree, devices_wide, devices_csv)
