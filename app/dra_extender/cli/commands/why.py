from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from dra_extender.cli.answers import Answer, AnswerFormat, ChangedAnswers, Output, status_line
from dra_extender.cli.cluster_source import ClusterSource, PolicyFile, asks_a_cluster, use_policy_file
from dra_extender.cli.object_names import NamedKind, node_name, object_name

if TYPE_CHECKING:
    from dra_extender.inspection.objects import ClusterObjects

EXAMPLES: Final = (
    "PROGRAM why pod/train-0 -n ml",
    "PROGRAM why -A -o json",
)


@asks_a_cluster
def command(
    source: ClusterSource,
    pod: Annotated[
        str | None,
        typer.Argument(
            metavar="POD",
            help="The pod that waits: NAME, NAMESPACE/NAME or pod/NAME; resourceclaim/NAME: the pod that waits for the claim.",
        ),
    ] = None,
    node: Annotated[
        str | None, typer.Option("--node", metavar="NAME", help="Every device of this node, and what keeps it away.")
    ] = None,
    watch: Annotated[
        bool, typer.Option("--watch", "-w", help="Print the answer again when it changes, until Ctrl+C.")
    ] = False,
    policy: PolicyFile = None,
    output: Output = AnswerFormat.TREE,
) -> None:
    """Say why a pod waits: the nodes by reason, the device that came closest, who is in its way, and what would help.

    Works on any cluster with resource.k8s.io/v1, whichever scheduler runs there, with rights to read.  Without POD it lists the
    pods that wait, of all namespaces or of --namespace, by cause.  The exit status is 1 if the pod, the claim or the node does not
    exist.
    """
    if pod is None and node is not None:
        raise typer.BadParameter("--node needs the name of a pod")
    if pod is not None and source.all_namespaces:
        raise typer.BadParameter("a pod that is named is in one namespace: --all-namespaces does not go with it")
    answers = ChangedAnswers(output)

    def answer(objects: "ClusterObjects") -> None:
        with status_line("evaluating"):
            report, as_tree = _report(objects, policy, pod, node, source.namespace)
        answers.print(report, as_tree)

    if watch:
        source.follow(answer)
    else:
        answer(source.read(explaining=True))


def _report(
    objects: "ClusterObjects", policy: Path | None, pod: str | None, node: str | None, namespace: str | None
) -> tuple[Answer, Callable[[Any, int], str]]:
    """Return the answer about the pod, the pod on the node, or without a pod all pods that wait, and the tree of the answer."""
    from dra_extender.inspection.cluster_view import ClusterView
    from dra_extender.inspection.text.why import node_tree, tree, waiting_tree
    from dra_extender.inspection.why.node import why_on_node
    from dra_extender.inspection.why.waiting import waiting
    from dra_extender.inspection.why.why import pod_of_claim, why

    view = ClusterView(objects)
    use_policy_file(view, policy)
    if pod is None:
        return waiting(view, namespace), waiting_tree
    named = object_name(pod, objects.namespace, NamedKind.POD, NamedKind.CLAIM)
    pod_namespace, name = pod_of_claim(view, *named.key) if named.kind is NamedKind.CLAIM else named.key
    if node is not None:
        return why_on_node(view, pod_namespace, name, node_name(node)), node_tree
    return why(view, pod_namespace, name), tree
