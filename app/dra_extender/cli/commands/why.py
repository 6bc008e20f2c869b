from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dra_extender.cli.answers import AnswerFormat, ChangedAnswers, ExitStatus, Output, ended
from dra_extender.cli.cluster_source import ClusterSource, asks_a_cluster

if TYPE_CHECKING:
    from dra_extender.inspection.objects import ClusterObjects


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
    watch: Annotated[
        bool, typer.Option("--watch", "-w", help="Print the answer again when it changes, until Ctrl+C.")
    ] = False,
    policy: Annotated[
        Path | None, typer.Option("--policy", metavar="FILE", help="The policy file of the service, if it has one.")
    ] = None,
    output: Output = AnswerFormat.TREE,
) -> None:
    """Say why a pod waits: the nodes by reason, the device that came closest, who is in its way, and what would help.

    Works on any cluster with resource.k8s.io/v1, whichever scheduler runs there, with rights to read.  Exit status: 0 answered; 1
    the pod or node does not exist; 2 an option is wrong, or the cluster, the snapshot or the policy cannot be read.
    """
    from dra_extender.config.policy_file import InvalidPolicyError
    from dra_extender.inspection.audit.report import use_policy
    from dra_extender.inspection.cluster_view import ClusterView
    from dra_extender.inspection.devices import UnknownNodeError
    from dra_extender.inspection.text.why import node_tree, tree, waiting_tree
    from dra_extender.inspection.why.node import why_on_node
    from dra_extender.inspection.why.waiting import waiting
    from dra_extender.inspection.why.why import UnknownPodError, why

    if pod is None and node is not None:
        raise typer.BadParameter("--node needs the name of a pod")
    answers = ChangedAnswers(output)

    def answer(objects: "ClusterObjects") -> None:
        view = ClusterView(objects)
        try:
            if policy is not None:
                use_policy(view, policy)
        except InvalidPolicyError as problem:
            raise ended(problem, ExitStatus.UNKNOWN) from problem
        if pod is None:
            pods = waiting(view, namespace)
            answers.print(pods, pods.origin, lambda columns: waiting_tree(pods, columns))
            return
        place = namespace or objects.namespace
        try:
            if node is not None:
                on_node = why_on_node(view, place, pod, node)
                answers.print(on_node, on_node.origin, lambda columns: node_tree(on_node, columns))
                return
            report = why(view, place, pod)
        except (UnknownPodError, UnknownNodeError) as problem:
            raise ended(problem, ExitStatus.NEGATIVE) from problem
        answers.print(report, report.origin, lambda columns: tree(report, columns))

    if watch:
        source.follow(answer, namespace)
    else:
        answer(source.read(namespace, events=True))
