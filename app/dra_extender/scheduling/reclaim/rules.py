"""Which claim has devices that no pod uses, and why: the rules, without any I/O.

kube-scheduler does not report to an extender that a pod failed after filter.  What the in-tree plugin releases in Unreserve and
PostFilter, these rules find in the stored claims and pods.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from dra_extender.model.allocation import AllocationResult, named_nodes
from dra_extender.model.managed_fields import Writers
from dra_extender.model.pod import Pod
from dra_extender.model.resource_claim import FINALIZER, ClaimHead, ConsumerReference
from dra_extender.model.snapshot import SNAPSHOT_ANNOTATION
from dra_extender.scheduling.claims.conditions import Readiness


class ReclaimReason(StrEnum):
    """Why something is released; also the label of its metric."""

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


RELEASE_MESSAGES: Final[Mapping[ReclaimReason, str]] = {
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
    """Whether and how a consumer in `reservedFor` uses the claim."""

    IN_USE = "in use"
    GROUP_GONE = "group gone"
    GONE = "gone"
    OVER = "over"
    ELSEWHERE = "elsewhere"
    IDLE = "idle"


ENDED: Final = frozenset({ConsumerState.GROUP_GONE, ConsumerState.GONE, ConsumerState.OVER})
"""Consumers whose reservation any controller may remove."""

_REASON_BY_STATE: Final = (
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
    """What one claim can do without: the reservations of `consumers` (UIDs) and, with `release`, the allocation."""

    reason: ReclaimReason
    consumers: frozenset[str] = frozenset()
    release: bool = False

    @property
    def prompt(self) -> bool:
        """Whether the short grace applies (`reclaim_unfit_seconds`): no other controller or bind will mend this claim."""
        return self.reason in _PROMPT


def consumer_state(
    consumer: ConsumerReference, pod: Pod | None, allocation: AllocationResult, *, busy: bool
) -> ConsumerState:
    """The state of a consumer that is a pod; a consumer of another kind uses the claim.

    Args:
        consumer: The entry in `reservedFor`.
        pod: The pod with the consumer's UID, None if there is none.
        allocation: The allocation of the claim.
        busy: Whether this process is binding the pod, or holds devices for it.
    """
    if busy or not consumer.is_pod:
        return ConsumerState.IN_USE
    if pod is None:
        return ConsumerState.GONE
    if pod.finished or (pod.deleting and not pod.node_name):
        return ConsumerState.OVER
    if not pod.node_name:
        return ConsumerState.IDLE
    started = pod.phase not in ("", "Pending")
    names = named_nodes(allocation)
    if started or names is None or pod.node_name in names:
        return ConsumerState.IN_USE
    return ConsumerState.ELSEWHERE


def group_state(members: Iterable[Pod], busy: Callable[[Pod], bool]) -> ConsumerState:
    """The state of a PodGroup that exists: idle when a member is pending, and none is bound, is being bound or has holds.

    Without a pending member, the reservation stays until the PodGroup is deleted.
    """
    pending = False
    for pod in members:
        if busy(pod) or (pod.node_name and not pod.finished):
            return ConsumerState.IN_USE
        pending = pending or not (pod.finished or pod.deleting)
    return ConsumerState.IDLE if pending else ConsumerState.IN_USE


def deleted_group_state(users: Iterable[Pod], busy: Callable[[Pod], bool]) -> ConsumerState:
    """The state of a deleted PodGroup: gone, once none of the pods that named it and the claim is bound or being bound.

    The protection finalizer usually ensures this, but an administrator may have removed it.
    """
    if any(busy(pod) or (pod.node_name and not pod.finished) for pod in users):
        return ConsumerState.IN_USE
    return ConsumerState.GROUP_GONE


def find_releasable(
    claim: ClaimHead,
    consumer_states: Mapping[str, ConsumerState],
    *,
    readiness: Readiness | None = None,
    reachable: bool = True,
    blocks_pod: bool = False,
) -> Releasable | None:
    """What the claim can do without; None when all of it is in use.

    Args:
        claim: The claim; no bind of this process works on it.
        consumer_states: The state of each consumer, by UID.
        readiness: The state of its binding conditions; None without any.
        reachable: Whether there is a node on which the allocation can be used.
        blocks_pod: Whether a pending pod fits nowhere because this claim is allocated for other nodes.
    """
    if claim.status.allocation is None:
        half_written = _is_prepared(claim) and not claim.status.reserved_for
        return Releasable(ReclaimReason.HALF_WRITTEN) if half_written else None
    states = set(consumer_states.values())
    if ConsumerState.IN_USE in states:
        return _unused_reservations(consumer_states)
    consumers = frozenset(consumer_states)
    if blocks_pod:
        return Releasable(ReclaimReason.NODE_UNFIT, consumers, release=True)
    if readiness in _BY_READINESS:
        return Releasable(_BY_READINESS[readiness], consumers, release=True)
    if not reachable:
        return Releasable(ReclaimReason.NODE_GONE, consumers, release=True)
    if not states:
        return Releasable(ReclaimReason.UNRESERVED, release=True)
    if readiness is Readiness.PENDING and ConsumerState.IDLE in states:
        return None  # Drivers are still preparing the devices, which will become ready, fail, or time out.
    return Releasable(_main_reason(states), consumers, release=True)


def _unused_reservations(consumer_states: Mapping[str, ConsumerState]) -> Releasable | None:
    """Reservations that go while others stay.  That of a pod bound elsewhere stays: kube-controller-manager would renew it."""
    for state, reason in _REASON_BY_STATE:
        uids = frozenset(uid for uid, found in consumer_states.items() if found is state)
        if uids and state is not ConsumerState.ELSEWHERE:
            return Releasable(reason, uids)
    return None


def _main_reason(states: Collection[ConsumerState]) -> ReclaimReason:
    return next(reason for state, reason in _REASON_BY_STATE if state in states)


def may_release(
    releasable: Releasable, claim: ClaimHead, consumer_states: Mapping[str, ConsumerState], writers: Writers, us: str
) -> bool:
    """Whether this process may release it: `us`, its field manager, wrote it.

    What another scheduler allocated or reserved stays.  The exception is the rule that kube-controller-manager applies to every
    claim: a consumer that is gone or over loses its reservation, and a claim with the finalizer loses its allocation with the
    last one.
    """
    if releasable.reason is ReclaimReason.HALF_WRITTEN:
        return us in writers.snapshot or us in writers.finalizer or us in writers.extended
    states = {consumer_states[uid] for uid in releasable.consumers}
    if states and states <= ENDED and (not releasable.release or FINALIZER in claim.metadata.finalizers):
        return True
    idle = [uid for uid in releasable.consumers if consumer_states[uid] is ConsumerState.IDLE]
    return all(us in writers.reserved(uid) for uid in idle) and (not releasable.release or us in writers.allocation)


def _is_prepared(claim: ClaimHead) -> bool:
    """Whether the claim has what a scheduler writes before an allocation."""
    metadata = claim.metadata
    return metadata.deletion_timestamp is None and (
        SNAPSHOT_ANNOTATION in metadata.annotations or FINALIZER in metadata.finalizers or bool(claim.extended_for)
    )
