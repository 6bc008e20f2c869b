from typing import Annotated

import typer

from dra_extender.cli.answers import AnswerFormat, ExitStatus, Output, ended, print_answer
from dra_extender.cli.cluster_source import ClusterSource, asks_a_cluster


@asks_a_cluster
def command(
    source: ClusterSource,
    pod: Annotated[
        str | None, typer.Argument(help="The pod that waits; default: all pods that wait, by cause.")
    ] = None,
    namespace: Annotated[
        str | None,
        typer.Option(
            "--namespace", "-n", metavar="NAME", help="Of the pod (default: the context's), or of all pods to look at."
        ),
    ] = None,
    node: Annotated[
        str | None, typer.Option("--node", metavar="NAME", help="Every device of this node, and what keeps it away.")
    ] = None,
    output: Output = AnswerFormat.TREE,
) -> None:
    """Say why a pod waits: the nodes by reason, the device that came closest, who is in its way, and what would help.

    Works on any cluster with resource.k8s.io/v1, whichever scheduler runs there, with rights to read.  Exit status: 0 answered; 1
    the pod or node does not exist; 2 an option is wrong, or the cluster or the snapshot cannot be read.
    """
    from dra_extender.inspection.cluster_view import ClusterView
    from dra_extender.inspection.devices import UnknownNodeError
    from dra_extender.inspection.why.lists import node_tree, waiting_tree
    from dra_extender.inspection.why.node import why_on_node
    from dra_extender.inspection.why.tree import tree
    from dra_extender.inspection.why.waiting import waiting
    from dra_extender.inspection.why.why import UnknownPodError, why

    if pod is None and node is not None:
        raise typer.BadParameter("--node needs the name of a pod")
    objects = source.read(namespace)
    view = ClusterView(objects)
    if pod is None:
        pods = waiting(view, namespace)
        print_answer(pods, pods.origin, output, lambda columns: waiting_tree(pods, columns))
        return
    namespace = namespace or objects.namespace
    try:
        if node is not None:
            on_node = why_on_node(view, namespace, pod, node)
            print_answer(on_node, on_node.origin, output, lambda columns: node_tree(on_node, columns))
            return
        report = why(view, namespace, pod)
    except (UnknownPodError, UnknownNodeError) as problem:
        raise ended(problem, ExitStatus.NEGATIVE) from problem
    print_answer(report, report.origin, output, lambda columns: tree(report, columns))
