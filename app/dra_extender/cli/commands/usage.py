from typing import Final

from dra_extender.cli.answers import TableFormat, TableOutput, print_table
from dra_extender.cli.cluster_source import ClusterSource, asks_a_cluster

EXAMPLES: Final = (
    "PROGRAM usage -n ml",
    "PROGRAM usage -A -o csv",
)


@asks_a_cluster
def command(source: ClusterSource, output: TableOutput = TableFormat.TREE) -> None:
    """Show how many devices each namespace uses by class, with what they draw on counters and take of shared capacity.

    Without --namespace all namespaces are counted.
    """
    from dra_extender.inspection.cluster_view import ClusterView
    from dra_extender.inspection.text.devices import usage_csv, usage_tree, usage_wide
    from dra_extender.inspection.usage import usage_report

    report = usage_report(ClusterView(source.read()), source.namespace)
    print_table(report, output, usage_tree, usage_wide, usage_csv)
