from typing import Annotated

import typer

from dra_extender.cli.answers import AnswerFormat, ExitStatus, Output, ended, print_answer
from dra_extender.cli.cluster_source import ClusterSource, asks_a_cluster


@asks_a_cluster
def command(
    source: ClusterSource,
    node: Annotated[str | None, typer.Argument(help="Show the devices that this node can use; default: all.")] = None,
    driver: Annotated[str | None, typer.Option("--driver", help="Devices of this driver alone.")] = None,
    free: Annotated[bool, typer.Option("--free", help="Devices that no claim has.")] = False,
    output: Output = AnswerFormat.TREE,
) -> None:
    """Show which devices are where, who has them, and what is left of counters and shared capacity.

    Works as `why` does.  Exit status: 0 answered; 1 the node does not exist; 2 an option is wrong, or the cluster or the snapshot
    cannot be read.
    """
    from dra_extender.inspection.cluster_view import ClusterView
    from dra_extender.inspection.devices import UnknownNodeError, devices_report
    from dra_extender.inspection.devices_tree import devices_tree

    view = ClusterView(source.read())
    try:
        report = devices_report(view, node, driver, free=free)
    except UnknownNodeError as problem:
        raise ended(problem, ExitStatus.NEGATIVE) from problem
    print_answer(report, report.origin, output, lambda _: devices_tree(report, view.now))
