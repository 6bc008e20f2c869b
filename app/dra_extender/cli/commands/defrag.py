from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, Final

import typer

from dra_extender.cli.answers import AnswerFormat, CommandError, ExitStatus, Output, print_answer, status_line
from dra_extender.cli.cluster_source import ClusterSource, PolicyFile, asks_a_cluster, read_policy_file
from dra_extender.cli.object_names import NamedKind, node_name, object_name, pod_key, pod_text

if TYPE_CHECKING:
    from dra_extender.inspection.defrag.defrag import FindGoal

EXAMPLES: Final = (
    "PROGRAM defrag --free-device gpu.example.com",
    "PROGRAM defrag --pod ml/train-0 --max-moves 2",
)


@asks_a_cluster
def command(
    source: ClusterSource,
    device: Annotated[
        str | None,
        typer.Option(
            "--free-device",
            metavar="CLASS|DEVICE|CEL",
            help="Free a device: of this class, DRIVER/POOL/DEVICE, or one that a CEL expression selects.",
        ),
    ] = None,
    pod: Annotated[str | None, typer.Option("--pod", metavar="POD", help="Make this pod fit, which waits.")] = None,
    claim: Annotated[
        str | None, typer.Option("--claim", metavar="CLAIM", help="Make this claim fit, which has no devices.")
    ] = None,
    node: Annotated[
        str | None, typer.Option("--empty-node", metavar="NODE", help="Empty this node, as a drain would.")
    ] = None,
    moves: Annotated[
        int,
        typer.Option(
            "--max-moves",
            metavar="NUMBER",
            min=0,
            max=100,
            help="Most pods to move, beside the pods of the node to empty.",
        ),
    ] = 8,
    priority: Annotated[
        int | None,
        typer.Option(
            "--max-priority",
            metavar="NUMBER",
            help="Pods of a higher priority stay; default: the priority of the pod to fit, else 1999999999.",
        ),
    ] = None,
    policy: PolicyFile = None,
    output: Output = AnswerFormat.TREE,
) -> None:
    """Say which pods to move so that a device is free, a pod or claim fits, or a node is empty: as few as possible.

    Nothing is changed in the cluster.  `what-if` plays the moves.  The exit status is 1 if no moves are found within the bounds, or
    what is named does not exist.
    """
    import msgspec

    from dra_extender.inspection.defrag.defrag import defrag
    from dra_extender.inspection.defrag.report import Finding
    from dra_extender.inspection.text.defrag import text
    from dra_extender.inspection.what_if.changes import ChangeError, UnreadableChangeError
    from dra_extender.runtime.installation import run_in_new_loop

    if sum(option is not None for option in (device, pod, claim, node)) != 1:
        raise typer.BadParameter("expected one of --free-device, --pod, --claim and --empty-node")
    objects = source.read(explaining=True)
    goal = _goal(device, pod, claim, node, objects.namespace)
    in_force = None if policy is None else read_policy_file(policy)
    try:
        with status_line("defrag"):
            report = run_in_new_loop(defrag(objects, goal, most_moves=moves, most_priority=priority, policy=in_force))
    except UnreadableChangeError as problem:
        raise CommandError(problem, ExitStatus.UNKNOWN) from problem
    except ChangeError as problem:
        raise CommandError(problem, ExitStatus.NEGATIVE) from problem
    if report.finding is not Finding.NONE:
        words = (pod_text(word) if before == "--evict" else word for before, word in pairwise(("", *report.what_if)))
        in_force_too = () if policy is None else ("--policy", str(policy))
        report = msgspec.structs.replace(report, what_if=(*words, *source.options(), *in_force_too))
    print_answer(report, output, text)
    if report.finding is Finding.NONE:
        raise typer.Exit(ExitStatus.NEGATIVE)


def _goal(device: str | None, pod: str | None, claim: str | None, node: str | None, namespace: str) -> "FindGoal":
    from dra_extender.inspection.defrag import goals

    if pod is not None:
        return partial(goals.fit_pod, key=pod_key(pod, namespace))
    if claim is not None:
        return partial(goals.fit_claim, key=object_name(claim, namespace, NamedKind.CLAIM).key)
    if node is not None:
        return partial(goals.empty_node, node=node_name(node))
    return partial(goals.free_device, device=device or "")
