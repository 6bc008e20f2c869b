import sys
from typing import Annotated

import msgspec
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
from dra_extender.inspection.why.waiting import waiting
from dra_extender.inspection.why.waiting_tree import waiting_tree
from dra_extender.inspection.why.why import UnknownPodError, why

_DEFAULT_NAMESPACE = "default"


def command(
    pod: Annotated[
        str | None, typer.Argument(help="The pod that waits; default: all pods that wait, by cause.")
    ] = None,
    namespace: Annotated[
        str | None,
        typer.Option("--namespace", "-n", help="Namespace of the pod (default: default), or of all pods to look at."),
    ] = None,
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
    if pod is None:
        waits = waiting(view, namespace)
        _print(waits, waiting_tree(waits), output)
        return
    try:
        report = why(view, namespace or _DEFAULT_NAMESPACE, pod)
    except UnknownPodError as problem:
        raise ended(problem, EXIT_FAILED) from problem
    _print(report, tree(report), output)


def _print(report: msgspec.Struct, text: str, output: AnswerFormat) -> None:
    if output is AnswerFormat.JSON:
        print_json(report)
    else:
        sys.stdout.write(text)
