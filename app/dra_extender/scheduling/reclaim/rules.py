"""Which claim holds devices that nobody uses, and why: the rules, without any I/O.

kube-scheduler never tells an extender that a pod failed after it was offered a node, so what the in-tree plugin gives back in
Unreserve and PostFilter is found here by looking at claims and pods.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from dra_extender.model.allocation import AllocationResult
from dra_extender.model.managed_fields import Writers
from dra_extender.model.node_selector import NODE_NAME_FIELD, NodeSelectorTerm
from dra_extender.model.pod import Pod
from dra_extender.model.resource_claim import FINALIZER, ClaimHead, ConsumerReference
from dra_extender.model.snapshot import SNAPSHOT_ANNOTATION
from dra_extender.scheduling.claims.conditions import Readiness


class ReclaimReason(StrEnum):
    """Why something is taken back; also the label of its metric."""

    HOLD_EXPIRED = "hold_expired"
    HOLD_REVOKED = "hold_revoked"
    HALF_WRITTEN = "half_written"
    UNRESERVED = "unreserved"
    GROUP_GONE = "group_gone"
    POD_GONE = "pod_gone"
    POD_OVER = "pod_over"
    POD_ELSEWHERE = "pod_elsewhere"
    POD_IDLE = "pod_idle"
    DEVICE_FAILED = "device_failed"
    DEVICE_TIMED_OUT = "device_timed_out"
    NODE_UNFIT = "node_unfit"
    NODE_GONE = "node_gone"


WORDS: Final[Mapping[ReclaimReason, str]] = {
    ReclaimReason.HALF_WRITTEN: "it was prepared for an allocation that never came",
    ReclaimReason.UNRESERVED: "it was allocated and reserved for nobody",
    ReclaimReason.GROUP_GONE: "the PodGroup it was reserved for is gone",
    ReclaimReason.POD_GONE: "the pods it was reserved for are gone",
    ReclaimReason.POD_OVER: "the pods it was reserved for are over",
    ReclaimReason.POD_ELSEWHERE: "the pod it was reserved for is bound to another node",
    ReclaimReason.POD_IDLE: "the pod it was reserved for waits and is not being bound",
    ReclaimReason.DEVICE_FAILED: "a device reports a binding failure",
    ReclaimReason.DEVICE_TIMED_OUT: "its binding conditions were not met in time",
    ReclaimReason.NODE_UNFIT: "its node does not suit the pod that waits for it",
    ReclaimReason.NODE_GONE: "no node is left on which it could be used",
}


class ConsumerState(StrEnum):
    """What a consumer in `reservedFor` still is to the claim."""

    IN_USE = "in use"
    GROUP_GONE = "group gone"
    GONE = "gone"
    OVER = "over"
    ELSEWHERE = "elsewhere"
    IDLE = "idle"


ENDED: Final = frozenset({ConsumerState.GROUP_GONE, ConsumerState.GONE, ConsumerState.OVER})
"""Consumers that anybody may take off."""

_BY_STANDING: Final = (
    (ConsumerState.IDLE, ReclaimReason.POD_IDLE),
    (ConsumerState.ELSEWHERE, ReclaimReason.POD_ELSEWHERE),
    (ConsumerState.OVER, ReclaimReason.POD_OVER),
    (ConsumerState.GONE, ReclaimReason.POD_GONE),
    (ConsumerState.GROUP_GONE, ReclaimReason.GROUP_GONE),
)
_BY_READINESS: Final = {
    Readiness.FAILED: ReclaimReason.DEVICE_FAILED,
    Readiness.TIMED_OUT: ReclaimReason.DEVICE_TIMED_OUT,
}
NOT_READY: Final = frozenset(_BY_READINESS.values())
_PROMPT: Final = frozenset(
    {ReclaimReason.DEVICE_FAILED, ReclaimReason.DEVICE_TIMED_OUT, ReclaimReason.NODE_UNFIT, ReclaimReason.NODE_GONE}
)


@dataclass(frozen=True, slots=True)
class Releasable:
    """What can be taken back from one claim: the reservations of `consumers` (UIDs) and, with `release`, the allocation.

    `prompt` tells that the facts speak for themselves; otherwise whoever is responsible is given time first.
    """

    reason: ReclaimReason
    consumers: frozenset[str] = frozenset()
    release: bool = False

    @property
    def prompt(self) -> bool:
        """Whether a moment of waiting is enough."""
        return self.reason in _PROMPT


def standing(
    consumer: ConsumerReference, pod: Pod | None, allocation: AllocationResult, *, busy: bool
) -> ConsumerState:
    """What the consumer is to a claim with this allocation.

    Args:
        consumer: The entry in `reservedFor`.
        pod: The pod with the consumer's UID, None if there is none.
        allocation: What the claim has.
        busy: Whether we are just binding the pod, or hold devices for it.
    """
    if consumer.resource != "pods" or consumer.api_group or busy:
        return ConsumerState.IN_USE
    if pod is None:
        return ConsumerState.GONE
    if pod.finished or (pod.deleting and not pod.node_name):
        return ConsumerState.OVER
    if not pod.node_name:
        return ConsumerState.IDLE
    names = named_nodes(allocation)
    started = pod.phase not in ("", "Pending")
    return (
        ConsumerState.ELSEWHERE
        if names is not None and pod.node_name not in names and not started
        else ConsumerState.IN_USE
    )


def group_standing(members: Iterable[Pod], busy: Callable[[Pod], bool]) -> ConsumerState:
    """What a PodGroup that exists is to a claim: idle when some members wait, and none is bound, is being bound or has holds.

    Without any member that waits it is kube-controller-manager's to end the reservation.
    """
    waits = False
    for pod in members:
        if busy(pod) or (pod.node_name and not pod.finished):
            return ConsumerState.IN_USE
        waits = waits or not (pod.finished or pod.deleting)
    return ConsumerState.IDLE if waits else ConsumerState.IN_USE


def gone_group_standing(users: Iterable[Pod], busy: Callable[[Pod], bool]) -> ConsumerState:
    """What a PodGroup that is gone is to a claim: gone, once none of the pods that named both is bound or being bound.

    The protection finalizer of PodGroups sees to that as a rule, but may have been taken off by hand.
    """
    if any(busy(pod) or (pod.node_name and not pod.finished) for pod in users):
        return ConsumerState.IN_USE
    return ConsumerState.GROUP_GONE


def surplus(
    claim: ClaimHead,
    standings: Mapping[str, ConsumerState],
    *,
    readiness: Readiness | None = None,
    reachable: bool = True,
    tied_down: bool = False,
) -> Releasable | None:
    """What can be taken back from the claim; None when it is as it should be.

    Args:
        claim: The claim; no bind of ours is at work on it.
        standings: What each consumer is, by UID.
        readiness: The state of its binding conditions; None without any.
        reachable: Whether there is a node on which the allocation can be used.
        tied_down: Whether a pod that waits fits nowhere because this claim is allocated for other nodes.
    """
    if claim.status.allocation is None:
        return Releasable(ReclaimReason.HALF_WRITTEN) if _prepared(claim) and not claim.status.reserved_for else None
    found = set(standings.values())
    if ConsumerState.IN_USE in found:
        return _of_some(standings)
    everybody = frozenset(standings)
    if tied_down:
        return Releasable(ReclaimReason.NODE_UNFIT, everybody, release=True)
    if readiness in _BY_READINESS:
        return Releasable(_BY_READINESS[readiness], everybody, release=True)
    if not reachable:
        return Releasable(ReclaimReason.NODE_GONE, everybody, release=True)
    if not found:
        return Releasable(ReclaimReason.UNRESERVED, release=True)
    if readiness is Readiness.PENDING and ConsumerState.IDLE in found:
        return None  # The devices are still being made ready for it; in the end they are, fail, or are late.
    return Releasable(_first(found), everybody, release=True)


def _of_some(standings: Mapping[str, ConsumerState]) -> Releasable | None:
    """Reservations that go while others stay; that of a pod bound elsewhere would be renewed by kube-controller-manager."""
    for kind, reason in _BY_STANDING:
        uids = frozenset(uid for uid, found in standings.items() if found is kind)
        if uids and kind is not ConsumerState.ELSEWHERE:
            return Releasable(reason, uids)
    return None


def _first(found: Collection[ConsumerState]) -> ReclaimReason:
    return next(reason for kind, reason in _BY_STANDING if kind in found)


def permitted(
    found: Releasable, claim: ClaimHead, standings: Mapping[str, ConsumerState], who: Writers, us: str
) -> bool:
    """Whether this is ours to take back.

    Ours is what our field manager wrote.  What another scheduler allocated or reserved is left alone, except by the rule that
    kube-controller-manager applies to every claim: a consumer that is gone or over loses its reservation, and a claim with the
    finalizer loses its allocation with the last one.
    """
    if found.reason is ReclaimReason.HALF_WRITTEN:
        return us in who.snapshot or us in who.finalizer or us in who.extended
    kinds = {standings[uid] for uid in found.consumers}
    if kinds and kinds <= ENDED and (not found.release or FINALIZER in claim.metadata.finalizers):
        return True
    idle_are_ours = all(us in who.reserved(uid) for uid in found.consumers if standings[uid] is ConsumerState.IDLE)
    return idle_are_ours and (not found.release or us in who.allocation)


def named_nodes(allocation: AllocationResult) -> frozenset[str] | None:
    """The nodes that the allocation names; None unless it names all nodes on which it can be used."""
    if allocation.node_selector is None:
        return None
    names: set[str] = set()
    for term in allocation.node_selector.node_selector_terms:
        named = _names_in(term)
        if named is None:
            return None
        names |= named
    return frozenset(names)


def _names_in(term: NodeSelectorTerm) -> frozenset[str] | None:
    for field in term.match_fields:
        if field.key == NODE_NAME_FIELD and field.operator == "In":
            return frozenset(field.values or ())
    return None if term.match_expressions or term.match_fields else frozenset()


def _prepared(claim: ClaimHead) -> bool:
    metadata = claim.metadata
    return metadata.deletion_timestamp is None and (
        SNAPSHOT_ANNOTATION in metadata.annotations or FINALIZER in metadata.finalizers or bool(claim.extended_for)
    )
