import sys
from typing import Annotated

import typer

from dra_extender.cli.cluster_source import (
    EXIT_FAILED,
    AnswerFormat,
    Context,
    Impersonate,
    Kubeconfig,
    Output,
    SnapshotFile,
    ended,
    print_json,
    read_objects,
)
from dra_extender.inspection.cluster_view import ClusterView
from dra_extender.inspection.devices import UnknownNodeError, devices_report
from dra_extender.inspection.devices_tree import devices_tree


def command(
    node: Annotated[str | None, typer.Argument(help="Show the devices that this node can use; default: all.")] = None,
    driver: Annotated[str | None, typer.Option("--driver", help="Devices of this driver alone.")] = None,
    free: Annotated[bool, typer.Option("--free", help="Devices that no claim has.")] = False,
    snapshot: SnapshotFile = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    impersonate: Impersonate = "",
    output: Output = AnswerFormat.TREE,
) -> None:
    """Show which devices are where, who has them, and what is left of counters and shared capacity.

    Works as `why` does.  Exit status: 0 answered; 1 the node does not exist; 2 the cluster or the snapshot cannot be read.
    """
    view = ClusterView(read_objects(snapshot, kubeconfig, context, impersonate))
    try:
        report = devices_report(view, node, driver, free=free)
    except UnknownNodeError as problem:
        raise ended(problem, EXIT_FAILED) from problem
    if output is AnswerFormat.JSON:
        print_json(report)
    else:
        sys.stdout.write(devices_tree(report, view.now))
