from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from dra_extender.cli.answers import AnswerFormat, CommandError, ExitStatus, Output, print_answer, status_line
from dra_extender.cli.cluster_source import ClusterSource, PolicyFile, asks_a_cluster, read_policy_file
from dra_extender.cli.object_names import NamedKind, node_name, object_name, pod_key

if TYPE_CHECKING:
    from dra_extender.model.fields import Gate

EXAMPLES: Final = (
    "PROGRAM what-if --without ml/train-0 --add-nodes node-7=2",
    "PROGRAM what-if -f pod.yaml --fill ml/train-0",
)


@asks_a_cluster
def command(  # noqa: PLR0913, PLR0917 - its options
    source: ClusterSource,
    files: Annotated[
        list[Path] | None,
        typer.Option(
            "--filename",
            "-f",
            metavar="FILE",
            help="Create or replace the objects in this YAML file, or in a folder; - for standard input.",
        ),
    ] = None,
    without: Annotated[
        list[str] | None, typer.Option("--without", metavar="POD", help="End this pod, and release what only it holds.")
    ] = None,
    evict: Annotated[
        list[str] | None,
        typer.Option("--evict", metavar="POD", help="End this pod, and place the pod that its controller makes again."),
    ] = None,
    drain: Annotated[
        list[str] | None, typer.Option("--drain", metavar="NODE", help="Cordon this node, and evict its pods.")
    ] = None,
    add_nodes: Annotated[
        list[str] | None,
        typer.Option("--add-nodes", metavar="NODE=COUNT", help="Add this number of copies of a node, with its slices."),
    ] = None,
    reserved: Annotated[
        list[str] | None,
        typer.Option(
            "--reserve",
            metavar="CLASS|DEVICE|CEL|CLAIM",
            help="Keep a device of this class, DRIVER/POOL/DEVICE, one that a CEL expression selects, or what a claim asks for.",
        ),
    ] = None,
    gates: Annotated[
        list[str] | None,
        typer.Option("--gate", metavar="NAME=on|off", help="Switch this feature gate of the API server."),
    ] = None,
    new_policy: Annotated[
        Path | None, typer.Option("--new-policy", metavar="FILE", help="Put this policy in force.")
    ] = None,
    policy: PolicyFile = None,
    fill: Annotated[
        str | None,
        typer.Option("--fill", metavar="POD|TEMPLATE", help="Count how many more of this pod, or claim template, fit."),
    ] = None,
    output: Output = AnswerFormat.TREE,
) -> None:
    """Say where pods would land, and which would wait, after changes; without changes, what happens next.

    Nothing is changed in the cluster.  The exit status is 1 if a change names something that does not exist.
    """
    from dra_extender.inspection.text.what_if import table
    from dra_extender.inspection.what_if.changes import (
        ChangeError,
        Changes,
        NewPolicy,
        UnreadableChangeError,
        read_changes,
    )
    from dra_extender.inspection.what_if.what_if import what_if
    from dra_extender.runtime.installation import run_in_new_loop

    objects = source.read(explaining=True)
    namespace = objects.namespace
    try:
        changes = Changes(
            objects=[object_json for file in files or () for object_json in read_changes(file, namespace)],
            added=[_copies(node) for node in add_nodes or ()],
            without=[pod_key(text, namespace) for text in without or ()],
            evicted=[pod_key(text, namespace) for text in evict or ()],
            drained=[node_name(text) for text in drain or ()],
            reserved=reserved or (),
            gates=[_gate(gate) for gate in gates or ()],
            policy=None if new_policy is None else NewPolicy(str(new_policy), read_policy_file(new_policy)),
        )
        subject = None if fill is None else object_name(fill, namespace, NamedKind.POD, NamedKind.TEMPLATE)
        in_force = None if policy is None else read_policy_file(policy)
        with status_line("what-if") as progress:
            report = run_in_new_loop(
                what_if(objects, changes, None if subject is None else subject.key, policy=in_force, progress=progress)
            )
    except UnreadableChangeError as problem:
        raise CommandError(problem, ExitStatus.UNKNOWN) from problem
    except ChangeError as problem:
        raise CommandError(problem, ExitStatus.NEGATIVE) from problem
    print_answer(report, output, table)


def _copies(text: str) -> tuple[str, int]:
    """Return the node and the number in `NODE=COUNT`; raise BadParameter if the text has another form."""
    node, _, count = text.rpartition("=")
    if not (node and count.isascii() and count.isdigit() and int(count[:6]) > 0):
        raise typer.BadParameter(f"--add-nodes: expected NODE=COUNT with a count from 1, got {text!r}")
    return node_name(node), int(count[:6])


def _gate(text: str) -> tuple["Gate", bool]:
    """Return the gate in `NAME=on` or `NAME=off`, and whether it is on; raise BadParameter if no answer depends on it."""
    from dra_extender.model.fields import Gate

    name, _, state = text.rpartition("=")
    gates_by_name = {gate.gate_name: gate for gate in Gate}
    if state not in ("on", "off") or name not in gates_by_name:
        raise typer.BadParameter(
            f"--gate: expected NAME=on or NAME=off with one of {', '.join(gates_by_name)}, got {text!r}"
        )
    return gates_by_name[name], state == "on"
