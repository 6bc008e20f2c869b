"""The unused part of a claim, and why it is unused: the rules, and the facts that they read.

kube-scheduler does not report to an extender that a pod failed after filter.  What the in-tree plugin releases in Unreserve and
PostFilter, these rules find in the stored claims and pods.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from dra_extender.ledger.claim_record import ClaimRecord
from dra_extender.ledger.ledger import Ledger
from dra_extender.model.allocation import AllocationResult, named_nodes
from dra_extender.model.allocation_snapshot import SNAPSHOT_ANNOTATION
from dra_extender.model.api_json import ModelError
from dra_extender.model.device import DeviceId
from dra_extender.model.managed_fields import Writers
from dra_extender.model.pod import Pod
from dra_extender.model.pod_group import is_group
from dra_extender.model.resource_claim import FINALIZER, ClaimHead, ConsumerReference
from dra_extender.scheduling.claims.lookup import named_claims
from dra_extender.scheduling.claims.readiness import ClaimReadiness, Readiness, evaluate_conditions
from dra_extender.scheduling.ports.cluster import Clock
from dra_extender.scheduling.ports.options import Options
from dra_extender.scheduling.requeue.unschedulable import UnschedulablePods

RUNNING: Final = "Running"


class ReclaimReason(StrEnum):
    """The reason for a release; also the label of its metric."""

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


RELEASE_MESSAGES: Final = {
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
    """The use of a claim by a consumer in `reservedFor`."""

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
    """The unused part of one claim: the reservations of `consumers` (UIDs) and, with `release`, the allocation."""

    reason: ReclaimReason
    consumers: frozenset[str] = frozenset()
    release: bool = False

    @property
    def prompt(self) -> bool:
        """True if the short grace applies (`reclaim_unfit_seconds`): no other controller or bind will mend this claim."""
        return self.reason in _PROMPT


def consumer_state(
    consumer: ConsumerReference, pod: Pod | None, allocation: AllocationResult, *, busy: bool
) -> ConsumerState:
    """Return the state of a consumer that is a pod (None: it is gone); a consumer of another kind uses the claim.

    `busy`: this process is binding the pod, or holds devices for it.
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


def group_state(members: Collection[Pod], busy: Callable[[str], bool], *, exists: bool) -> ConsumerState:
    """Return the state of a PodGroup: in use as long as a member is bound, is being bound or has holds.

    After that a PodGroup that exists is idle with a pending member; without one the reservation stays until its deletion.  One that
    does not exist is gone: the protection finalizer usually waits for its pods, but an administrator may have removed it.
    """
    if any(busy(pod.uid) or (pod.node_name and not pod.finished) for pod in members):
        return ConsumerState.IN_USE
    if not exists:
        return ConsumerState.GROUP_GONE
    return ConsumerState.IDLE if any(member.waits_for_node for member in members) else ConsumerState.IN_USE


def find_releasable(
    claim: ClaimHead,
    consumer_states: Mapping[str, ConsumerState],
    *,
    readiness: Readiness | None = None,
    reachable: bool = True,
    blocks_pod: bool = False,
) -> Releasable | None:
    """Return the unused part of a claim that no bind of this process works on; None when all of it is in use.

    `consumer_states`: by UID.  `readiness`: of its binding conditions; None without any.  `reachable`: some node exists where the
    allocation can be used.  `blocks_pod`: a pending pod fits nowhere because this claim is allocated for other nodes.
    """
    if claim.status.allocation is None:
        metadata = claim.metadata
        if claim.status.reserved_for or metadata.deletion_timestamp is not None:
            return None
        is_prepared = SNAPSHOT_ANNOTATION in metadata.annotations or FINALIZER in metadata.finalizers
        return Releasable(ReclaimReason.HALF_WRITTEN) if is_prepared or claim.extended_for else None
    states = set(consumer_states.values())
    if ConsumerState.IN_USE in states:
        for state, reason in _REASON_BY_STATE:
            if state is ConsumerState.ELSEWHERE:
                # Its reservation stays: kube-controller-manager would renew it.
                continue
            unused = frozenset(uid for uid, consumer_state in consumer_states.items() if consumer_state is state)
            if unused:
                return Releasable(reason, unused)
        return None
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
    reason = next(reason for state, reason in _REASON_BY_STATE if state in states)
    return Releasable(reason, consumers, release=True)


def permitted_part(
    releasable: Releasable, claim: ClaimHead, consumer_states: Mapping[str, ConsumerState], writers: Writers, us: str
) -> Releasable | None:
    """Return the part that this process may release; None if there is none.

    It may release what `us`, its field manager, wrote.  Of other claims it may release what kube-controller-manager releases: the
    reservation of a consumer that is gone or over, and the allocation of a claim with the finalizer when no reservation is left.
    Where another scheduler's idle pod or allocation stays, only our reservations of idle pods are released.
    """
    if releasable.reason is ReclaimReason.HALF_WRITTEN:
        prepared = us in writers.snapshot or us in writers.finalizer or us in writers.extended
        return releasable if prepared else None
    states = {consumer_states[uid] for uid in releasable.consumers}
    idle = frozenset(uid for uid in releasable.consumers if consumer_states[uid] is ConsumerState.IDLE)
    ours = frozenset(uid for uid in idle if us in writers.reserved(uid))
    if ours == idle:
        leaves_none = states and states <= {*ENDED, ConsumerState.IDLE} and FINALIZER in claim.metadata.finalizers
        if not releasable.release or us in writers.allocation or leaves_none:
            return releasable
    return Releasable(ReclaimReason.POD_IDLE, ours) if ours else None


@dataclass(frozen=True, slots=True)
class ReclaimableClaim:
    """The unused part of a claim, and the state of each of its consumers (by UID).

    `state` must stay the same until it is released.  The resourceVersion of the claim changes too often for that: drivers report
    about its devices again and again, and kube-controller-manager reserves a shared claim for a bound pod that is over, and ends
    that reservation, in endless turns.  So consumers that are gone or over are no part of `state`.
    """

    releasable: Releasable
    consumer_states: Mapping[str, ConsumerState]
    state: tuple[object, ...]


@dataclass(eq=False)
class ReclaimFacts:
    """Gathers what the rules read about one claim: from the ledger, from unschedulable pods and from the binds in progress.

    `binding`: a live view of the UIDs of the pods that are being bound.
    """

    ledger: Ledger
    unschedulable: UnschedulablePods
    binding: Collection[str]
    clock: Clock
    options: Options

    def find(
        self, claim: ClaimHead, blocking: AbstractSet[str], live: Mapping[str, Pod | None] | None = None
    ) -> ReclaimableClaim | None:
        """Return the unused part of the claim; None when all of it is in use.

        `blocking`: see `blocking_claims`.  `live`: pods that were just read, by UID; None for one that does not exist.
        """
        allocation = claim.status.allocation
        if live is None and allocation is not None and self._run_all(claim):
            return None
        if allocation is None:
            states: Mapping[str, ConsumerState] = {}
            unused = None if self._is_expected(claim) else find_releasable(claim, states)
        elif ConsumerState.IN_USE in (states := self._consumer_states(claim, allocation, live or {})).values():
            unused = find_releasable(claim, states)
        else:
            unused = find_releasable(
                claim,
                states,
                readiness=self._readiness(claim).readiness,
                reachable=self._reachable(allocation),
                blocks_pod=claim.metadata.uid in blocking,
            )
        return None if unused is None else ReclaimableClaim(unused, states, _state_of(claim, unused, states))

    def blocking_claims(self) -> AbstractSet[str]:
        """Return UIDs of allocated claims that left a pending pod no node, in order of the pods."""
        blocking: dict[str, None] = {}
        for rejected in self.unschedulable.blocked_by_allocation():
            pod = self.ledger.pods.newest(rejected)
            if self.ledger.pods.was_deleted(pod.uid) or pod.node_name or pod.uid in self.binding:
                continue
            for record in self._claims_of(pod):
                if self._blocks(record.claim, pod):
                    blocking[record.claim.metadata.uid] = None
        return blocking.keys()

    def is_being_bound(self, claim_uid: str) -> bool:
        record = self.ledger.claims.by_uid(claim_uid)
        if record is not None and record.pending is not None:
            return True
        for uid in self.binding:
            pod = self.ledger.pods.by_uid(uid)
            if pod is not None and any(claim is record for claim in self._claims_of(pod)):
                return True
        return False

    def _is_expected(self, claim: ClaimHead) -> bool:
        """Return whether the claim serves the extended resources of a pod that is being bound, or that is bound with it."""
        uid = claim.extended_for
        if not uid or self._busy(uid):
            return bool(uid)
        pod = self.ledger.pods.by_uid(uid)
        return pod is not None and bool(pod.node_name) and pod.extended_claim == claim.metadata.name

    def _claims_of(self, pod: Pod) -> Iterator[ClaimRecord]:
        """Yield the existing claims that the pod names or that were created for it."""
        yield from self.ledger.claims.for_extended_resources(pod.namespace, pod.uid)
        yield from (record for _, record in named_claims(pod, self.ledger))

    def _run_all(self, claim: ClaimHead) -> bool:
        """Return whether all consumers are running pods: the common case, which needs no further facts."""
        by_uid, consumers = self.ledger.pods.by_uid, claim.status.reserved_for
        for consumer in consumers:
            pod = by_uid(consumer.uid)
            if pod is None or pod.phase != RUNNING:
                return False
        return bool(consumers)

    def _consumer_states(
        self, claim: ClaimHead, allocation: AllocationResult, live: Mapping[str, Pod | None]
    ) -> Mapping[str, ConsumerState]:
        """Return the state of each consumer; a deleted PodGroup counts as in use without the API or the feature."""
        states, groups = {}, self.ledger.pod_groups
        for consumer in claim.status.reserved_for:
            uid = consumer.uid
            if not is_group(consumer):
                pod = live[uid] if uid in live else self.ledger.pods.by_uid(uid)
                states[uid] = consumer_state(consumer, pod, allocation, busy=self._busy(uid))
            elif (members := self.members(claim.metadata.namespace, consumer)) is not None:
                states[uid] = group_state(_newest(members, live), self._busy, exists=True)
            elif groups.served and groups.have_claims:
                states[uid] = group_state(_newest(self.users(claim, consumer), live), self._busy, exists=False)
            else:
                states[uid] = ConsumerState.IN_USE
        return states

    def users(self, claim: ClaimHead, consumer: ConsumerReference) -> tuple[Pod, ...]:
        members = self.ledger.pods.members(claim.metadata.namespace, consumer.name)
        uid = claim.metadata.uid
        return tuple(pod for pod in members if any(record.claim.metadata.uid == uid for record in self._claims_of(pod)))

    def members(self, namespace: str, consumer: ConsumerReference) -> tuple[Pod, ...] | None:
        """Return the pods of a consumer that is an existing PodGroup; None for any other consumer."""
        if not is_group(consumer):
            return None
        group = self.ledger.pod_groups.get(namespace, consumer.name)
        if group is None or group.metadata.uid != consumer.uid:
            return None
        return self.ledger.pods.members(namespace, consumer.name)

    def _busy(self, pod_uid: str) -> bool:
        """Return whether the pod is being bound, or devices are held for it."""
        return pod_uid in self.binding or bool(self.ledger.holds.of_pod(pod_uid))

    def unready_devices(self, claim: ClaimHead) -> frozenset[DeviceId]:
        return frozenset(problem.device for problem in self._readiness(claim).problems)

    def _readiness(self, claim: ClaimHead) -> ClaimReadiness:
        if not self.options.binding_conditions:
            return ClaimReadiness(Readiness.READY)
        now = self.clock.now()
        return evaluate_conditions(claim, now=now, waiting_since=now, timeout=self.options.binding_timeout_seconds)

    def _reachable(self, allocation: AllocationResult) -> bool:
        """Return whether some node can use it; a selector that cannot be evaluated may select any."""
        names = named_nodes(allocation)
        if names is not None:
            return any(name in self.ledger.nodes for name in names)
        try:
            return any(allocation.allows(node) for node in self.ledger.nodes.values())
        except ModelError:
            return True

    def _blocks(self, claim: ClaimHead, pod: Pod) -> bool:
        """Return whether the claim restricts the pod to some nodes, and its nominated node is not among them."""
        allocation = claim.status.allocation
        if allocation is None or (allocation.node_selector is None and allocation.skipping_device is None):
            return False
        node = self.ledger.nodes.get(pod.nominated_node_name)
        try:
            return node is None or not allocation.allows(node)
        except ModelError:
            return False


def _newest(pods: Iterable[Pod], live: Mapping[str, Pod | None]) -> Sequence[Pod]:
    """Return each pod as it was just read from the API server, or else as it is; leave out pods that do not exist any more."""
    return [newest for pod in pods if (newest := live.get(pod.uid, pod)) is not None]


def _state_of(claim: ClaimHead, unused: Releasable, states: Mapping[str, ConsumerState]) -> tuple[object, ...]:
    """Return what must stay the same until the unused part is released, see `ReclaimableClaim`."""
    metadata, allocation = claim.metadata, claim.status.allocation
    lasting = frozenset(uid for uid in unused.consumers if states[uid] not in ENDED)
    snapshot = metadata.annotations.get(SNAPSHOT_ANNOTATION)
    # The ledger drops the content of the snapshot of a claim without allocation (app/dra_extender/ledger/claim_record.py).
    marks = (FINALIZER in metadata.finalizers, "" if snapshot and allocation is None else snapshot)
    return metadata.uid, allocation, marks, unused.reason, unused.release, lasting
