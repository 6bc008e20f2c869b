from typing import TYPE_CHECKING, Annotated, Final

import typer

from dra_extender.cli.answers import AnswerFormat, ExitStatus, Output, print_answer
from dra_extender.cli.cluster_source import ClusterSource, PolicyFile, asks_a_cluster, use_policy_file

if TYPE_CHECKING:
    from dra_extender.inspection.audit.report import AuditReport

EXAMPLES: Final = (
    "PROGRAM audit",
    "PROGRAM audit --policy policy.yaml -o json",
)


@asks_a_cluster
def command(
    source: ClusterSource,
    policy: PolicyFile = None,
    again_after: Annotated[
        float,
        typer.Option(
            "--again-after",
            metavar="SECONDS",
            min=0,
            max=3600,
            help="Read a running cluster with findings again after this time; 0: one reading counts.",
        ),
    ] = 5.0,
    binding_timeout: Annotated[
        float,
        typer.Option(
            "--binding-timeout",
            metavar="SECONDS",
            min=1,
            max=86400,
            help="Time after which binding conditions are overdue: the service's scheduling.binding_timeout_seconds.",
        ),
    ] = 600.0,
    extender_namespace: Annotated[
        str,
        typer.Option(
            "--extender-namespace", metavar="NAME", help="Where the service runs; its guard claims are there."
        ),
    ] = "dra-extender",
    output: Output = AnswerFormat.TREE,
) -> None:
    """Say whether the cluster is sound: nothing allocated twice, nothing over-committed, no pod without its devices, nothing left.

    A finding about a running cluster counts if two readings have it.  With --namespace findings about pods and claims of other
    namespaces are left out.  The exit status is 1 if something was found, 2 if nothing was found and not everything could be
    judged.
    """
    from time import sleep

    from dra_extender.inspection.audit.report import Soundness, audit_report, lasting
    from dra_extender.inspection.cluster_view import ClusterView
    from dra_extender.inspection.text.audit import audit_tree
    from dra_extender.scheduling.ports.options import Options

    options = Options(binding_timeout_seconds=binding_timeout, own_namespace=extender_namespace)

    def look() -> "AuditReport":
        view = ClusterView(source.read(), options=options)
        return audit_report(view, use_policy_file(view, policy), source.namespace)

    report = look()
    if report.findings and source.snapshot is None and again_after:
        sleep(again_after)
        report = lasting(report, look())
    print_answer(report, output, audit_tree)
    if report.verdict is Soundness.UNSOUND:
        raise typer.Exit(ExitStatus.NEGATIVE)
    if report.verdict is Soundness.UNKNOWN:
        raise typer.Exit(ExitStatus.UNKNOWN)
