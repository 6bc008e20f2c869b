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
from dra_extender.inspection.why.tree import tree
from dra_extender.inspection.why.why import UnknownPodError, why


def command(
    pod: Annotated[str, typer.Argument(help="The pod that waits.")],
    namespace: Annotated[str, typer.Option("--namespace", "-n", help="Namespace of the pod.")] = "default",
    snapshot: SnapshotFile = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    impersonate: Impersonate = "",
    output: Output = AnswerFormat.TREE,
) -> None:
    """Say why a pod waits: the nodes by reason, the device that came closest, who is in its way, and what would help.

    Works on any cluster with resource.k8s.io/v1, whichever scheduler runs there, with rights to read.  Exit status: 0 answered; 1
    the pod does not exist; 2 the cluster or the snapshot cannot be read.
    """
    view = ClusterView(read_objects(snapshot, kubeconfig, context, impersonate))
    try:
        report = why(view, namespace, pod)
    except UnknownPodError as problem:
        raise ended(problem, EXIT_FAILED) from problem
    if output is AnswerFormat.JSON:
        print_json(report)
    else:
        sys.stdout.write(tree(report))
