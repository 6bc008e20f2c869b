from typing import Annotated

import typer

from dra_extender.cli.answers import ExitStatus, TableFormat, TableOutput, ended, print_table
from dra_extender.cli.cluster_source import ClusterSource, PolicyFile, asks_a_cluster, use_policy_file
from dra_extender.cli.object_names import node_name


@asks_a_cluster
def command(
    source: ClusterSource,
    node: Annotated[str | None, typer.Argument(help="Show the devices that this node can use; default: all.")] = None,
    driver: Annotated[str | None, typer.Option("--driver", help="Only devices of this driver.")] = None,
    free: Annotated[bool, typer.Option("--free", help="Devices that no claim has.")] = False,
    policy: PolicyFile = None,
    output: TableOutput = TableFormat.TREE,
) -> None:
    """Show which devices are where, who has them, and what is left of counters and shared capacity.

    Works as `why` does.  Exit status: 0 answered; 1 the node does not exist; 2 an option is wrong, or the cluster, the snapshot or
    the policy cannot be read.
    """
    from dra_extender.inspection.cluster_view import ClusterView
    from dra_extender.inspection.devices import UnknownNodeError, devices_report
    from dra_extender.inspection.text.devices import devices_csv, devices_tree, devices_wide

    if free and source.namespace is not None:
        raise typer.BadParameter("--free are devices that no claim has: --namespace does not go with it")
    view = ClusterView(source.read())
    use_policy_file(view, policy)
    try:
        wanted = None if node is None else node_name(node)
        report = devices_report(view, wanted, driver, free=free, namespace=source.namespace)
    except UnknownNodeError as problem:
        raise ended(problem, ExitStatus.NEGATIVE) from problem
    print_table(
        report,
        output,
        tree=lambda: devices_tree(report, view.now),
        wide=lambda: devices_wide(report, view.now),
        csv=lambda: devices_csv(report),
    )
