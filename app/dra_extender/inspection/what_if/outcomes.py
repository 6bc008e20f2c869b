"""Where a pod stands after a trial, made of what the use cases answered."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from dra_extender.inspection.what_if.report import OutcomeKind, PodOutcome, ReasonCount
from dra_extender.inspection.what_if.trial_cluster import ASSUMED
from dra_extender.ledger.state.claim_record import ClaimRecord
from dra_extender.model.pod import Pod
from dra_extender.scheduling.evaluation.result import FilterResult
from dra_extender.scheduling.evaluation.scoring import ratings, total
from dra_extender.scheduling.ports.options import Weights


@dataclass(frozen=True, slots=True)
class NodeChoice:
    """The node that a pod would be bound to, or why it fits nowhere."""

    pod: Pod
    node: str = ""
    reasons: tuple[ReasonCount, ...] = ()


def best_node(pod: Pod, result: FilterResult, weights: Weights) -> str:
    """Of the nodes that fit the nominated one, else that with the best rating as prioritize gives it, of equals the first by name.

    A member of a gang has the node of its plan.
    """
    if result.assigned_node is not None:
        return result.assigned_node
    if pod.nominated_node_name in result.fits:
        return pod.nominated_node_name
    terms = {name: each.score_terms for name, each in result.fits.items() if each is not None and each.score_terms}
    if not terms:
        return min(result.fits)
    rated = ratings({name: total(each) for name, each in terms.items()}, weights)
    return min(result.fits, key=lambda name: (-round(rated.get(name, 0.0)), name))


def counted(texts: Iterable[str]) -> tuple[ReasonCount, ...]:
    """Reasons of nodes, most nodes first."""
    found = sorted(Counter(texts).items(), key=lambda entry: (-entry[1], entry[0]))
    return tuple(ReasonCount(nodes=count, text=text) for text, count in found)


def running(pod: Pod, records: Iterable[ClaimRecord]) -> PodOutcome:
    """The outcome of a pod that has its node, with the devices of its claims."""
    return PodOutcome(kind=OutcomeKind.RUNS, node=pod.node_name, devices=_devices(records))


def landed(choice: NodeChoice, records: Sequence[ClaimRecord], unjudged: tuple[str, ...]) -> PodOutcome:
    """Return the outcome of a pod that was bound.

    It has the devices of its claims, the conditions that no driver has reported yet, and what is `unjudged`.
    """
    return PodOutcome(
        kind=OutcomeKind.LANDS,
        node=choice.node,
        devices=_devices(records),
        conditions=tuple(sorted(_assumed(records))),
        unjudged=unjudged,
    )


def _devices(records: Iterable[ClaimRecord]) -> tuple[str, ...]:
    return tuple(
        "/".join(result.device_id)
        for record in records
        if record.claim.status.allocation is not None
        for result in record.claim.status.allocation.devices.results
    )


def _assumed(records: Iterable[ClaimRecord]) -> set[str]:
    return {
        condition.type
        for record in records
        for device in record.claim.status.devices
        for condition in device.conditions or ()
        if condition.reason == ASSUMED
    }


def waits_for(text: str) -> PodOutcome:
    """The outcome of a pod that waits for one reason, whatever the node."""
    return PodOutcome(kind=OutcomeKind.WAITS, reasons=(ReasonCount(nodes=0, text=text),))


def refused(choice: NodeChoice) -> PodOutcome:
    """The outcome of a pod that fits nowhere."""
    return PodOutcome(kind=OutcomeKind.WAITS, reasons=choice.reasons)


def gated(gates: Sequence[str]) -> PodOutcome:
    """The outcome of a pod that its scheduling gates keep out of the queue."""
    return waits_for(f"scheduling gates: {', '.join(gates)}")


def held_back(choice: NodeChoice, needed: int, fitting: int) -> PodOutcome:
    """The outcome of a member whose gang does not fit as a whole."""
    if choice.reasons:
        return refused(choice)
    return waits_for(f"its PodGroup needs {needed} more members with a node, {fitting} fit")
