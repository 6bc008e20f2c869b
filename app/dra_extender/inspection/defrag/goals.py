"""What `defrag` may be asked for, as changes that `what-if` takes and the pod that fits after the moves."""

from typing import NamedTuple

from dra_extender.inspection.what_if.applied_changes import device_text, names_claim
from dra_extender.inspection.what_if.changes import Changes, PodKey, UnreadableChangeError
from dra_extender.inspection.what_if.trial import Trial
from dra_extender.model.pod import Pod
from dra_extender.simulator.apiserver.objects import StoredKind


class Goal(NamedTuple):
    """What is asked for.

    Attributes:
        text: Half a sentence.
        changes: What is different whatever moves.
        pod: The waiting pod that is to land; None for the one that the changes add, or if there is none.
    """

    text: str
    changes: Changes = Changes()
    pod: PodKey | None = None

    @property
    def arguments(self) -> tuple[str, ...]:
        """Return the options of `what-if` for the changes."""
        options = (("--reserve", self.changes.reserved), ("--drain", self.changes.drained))
        return tuple(word for option, values in options for value in values for word in (option, value))


def free_device(trial: Trial, device: str) -> Goal:  # noqa: ARG001 - as the other goals
    """Return the goal that a device is free: one by name, of a class, or that a CEL expression selects.

    Raises:
        UnreadableChangeError: `device` is the name of a claim.
    """
    if names_claim(device):
        raise UnreadableChangeError(
            f"--free-device: expected a DeviceClass, DRIVER/POOL/DEVICE or a CEL expression, got {device!r}"
        )
    return Goal(f"{device_text(device)} is free", Changes(reserved=[device]))


def empty_node(trial: Trial, node: str) -> Goal:
    """Return the goal that a node has no pods but those that a drain leaves there.

    Raises:
        ChangeError: there is no such node.
    """
    trial.copy.require(StoredKind.NODE, ("", node), "--empty-node: node")
    return Goal(f"node {node} is empty", Changes(drained=[node]))


def fit_pod(trial: Trial, key: PodKey) -> Goal:
    """Return the goal that a waiting pod fits.

    Raises:
        ChangeError: there is no such pod.
        UnreadableChangeError: the pod waits for something else than a node.
    """
    name, pod = "/".join(key), trial.view.pod(*key)
    if pod is None:
        raise trial.copy.missing(StoredKind.POD, key, "--pod: pod")
    state = _why_no_move_helps(pod)
    if state:
        raise UnreadableChangeError(f"--pod: expected a pod that waits for a node, {name} {state}")
    return Goal(f"pod {name} fits", pod=key)


def fit_claim(trial: Trial, key: PodKey) -> Goal:
    """Return the goal that the pods of a claim fit, or one more pod if none waits with it.

    Raises:
        ChangeError: there is no such claim.
        UnreadableChangeError: the claim has its devices.
    """
    name, record = "/".join(key), trial.view.ledger.claims.by_key(*key)
    if record is None:
        raise trial.copy.missing(StoredKind.CLAIM, key, "--claim: claim")
    if record.claim.status.allocation is not None:
        raise UnreadableChangeError(f"--claim: expected a claim without devices, {name} has them")
    text = f"claim {name} fits"
    for pod, _ in trial.waiting():
        uses = any(claim.record.claim.metadata.key == key for claim in trial.view.claims_of(pod))
        if uses and not _why_no_move_helps(pod):
            return Goal(text, pod=(pod.namespace, pod.name))
    return Goal(text, Changes(reserved=[name]))


def _why_no_move_helps(pod: Pod) -> str:
    """Return why no move helps the pod; empty if one may."""
    if pod.finished:
        return "has ended"
    if pod.deleting:
        return "is being deleted"
    if pod.node_name:
        return f"is on node {pod.node_name}"
    return f"has scheduling gates: {', '.join(pod.gates)}" if pod.gates else ""
