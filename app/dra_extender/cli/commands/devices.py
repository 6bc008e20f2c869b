import sys
from pathlib import Path
from typing import Annotated

import typer

from dra_extender.cli.answers import AnswerFormat, ExitStatus, TableFormat, TableOutput, ended, print_answer
from dra_extender.cli.cluster_source import ClusterSource, asks_a_cluster


@asks_a_cluster
def command(
    source: ClusterSource,
    node: Annotated[str | None, typer.Argument(help="Show the devices that this node can use; default: all.")] = None,
    driver: Annotated[str | None, typer.Option("--driver", help="Devices of this driver alone.")] = None,
    free: Annotated[bool, typer.Option("--free", help="Devices that no claim has.")] = False,
    policy: Annotated[
        Path | None, typer.Option("--policy", metavar="FILE", help="The policy file of the service, if it has one.")
    ] = None,
    output: TableOutput = TableFormat.TREE,
) -> None:
    """Show which devices are where, who has them, and what is left of counters and shared capacity.

    Works as `why` does.  Exit status: 0 answered; 1 the node does not exist; 2 an option is wrong, or the cluster, the snapshot or
    the policy cannot be read.
    """
    from dra_extender.config.policy_file import InvalidPolicyError
    from dra_extender.inspection.audit.report import use_policy
    from dra_extender.inspection.cluster_view import ClusterView
    from dra_extender.inspection.devices import UnknownNodeError, devices_report
    from dra_extender.inspection.text.devices import devices_csv, devices_tree, devices_wide

    view = ClusterView(source.read())
    try:
        if policy is not None:
            use_policy(view, policy)
        report = devices_report(view, node, driver, free=free)
    except InvalidPolicyError as problem:
        raise ended(problem, ExitStatus.UNKNOWN) from problem
    except UnknownNodeError as problem:
        raise ended(problem, ExitStatus.NEGATIVE) from problem
    if output is TableFormat.CSV:
        sys.stdout.write(devices_csv(report))
    elif output is TableFormat.WIDE:
        print_answer(report, report.origin, AnswerFormat.TREE, lambda _: devices_wide(report, view.now))
    else:
        print_answer(report, report.origin, AnswerFormat(output.value), lambda _: devices_tree(report, view.now))
