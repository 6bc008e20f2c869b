from collections.abc import Collection, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Final

from dra_extender.ledger.ledger import Ledger
from dra_extender.ledger.state.claim_record import ClaimRecord
from dra_extender.model.allocation import AllocationResult, named_nodes
from dra_extender.model.api_json import ModelError
from dra_extender.model.device import DeviceId
from dra_extender.model.pod import Pod
from dra_extender.model.pod_group import is_group
from dra_extender.model.resource_claim import FINALIZER, ClaimHead, ConsumerReference
from dra_extender.model.snapshot import SNAPSHOT_ANNOTATION
from dra_extender.scheduling.claims.conditions import ConditionVerdict, Readiness, evaluate_conditions
from dra_extender.scheduling.ports.cluster import Clock
from dra_extender.scheduling.ports.options import Options
from dra_extender.scheduling.reclaim.rules import (
    ENDED,
    ConsumerState,
    Releasable,
    consumer_state,
    deleted_group_state,
    find_releasable,
    group_state,
)
from dra_extender.scheduling.requeue.unschedulable import UnschedulablePods

RUNNING: Final = "Running"


@dataclass(frozen=True, slots=True)
class ReclaimableClaim:
    """What a claim can do without, and the state of each of its consumers (by UID).

    `state` must stay the same until it is released.  The resourceVersion of the claim changes too often for that: drivers report
    about its devices again and again, and kube-controller-manager reserves a shared claim for a bound pod that is over, and ends
    that reservation, in endless turns.  So consumers that are gone or over are no part of `state`.
    """

    releasable: Releasable
    consumer_states: Mapping[str, ConsumerState]
    state: tuple[object, ...]


class ReclaimFacts:
    """Gathers what the rules read about one claim: from the ledger, from unschedulable pods and from the binds in progress."""

    def __init__(
        self, ledger: Ledger, unschedulable: UnschedulablePods, binding: Collection[str], clock: Clock, options: Options
    ) -> None:
        """`binding`: a live view of the UIDs of the pods that are being bound."""
        self._ledger = ledger
        self._unschedulable = unschedulable
        self._binding = binding
        self._clock = clock
        self._options = options

    def find(
        self, claim: ClaimHead, blocking: AbstractSet[str], live: Mapping[str, Pod | None] | None = None
    ) -> ReclaimableClaim | None:
        """What the claim can do without; None when all of it is in use.

        Args:
            claim: The claim as the watch delivered it, or as it was just read.
            blocking: UIDs of the claims that block pods, see `blocking_claims`.
            live: Pods that were just read, by UID; None for one that does not exist.
        """
        allocation = claim.status.allocation
        if live is None and allocation is not None and self._run_all(claim):
            return None
        if allocation is None:
            found = None if self._is_expected(claim) else find_releasable(claim, {})
            return None if found is None else _reclaimable(claim, found, {})
        consumer_states = self._consumer_states(claim, allocation, live or {})
        if ConsumerState.IN_USE in consumer_states.values():
            found = find_releasable(claim, consumer_states)
        else:
            found = find_releasable(
                claim,
                consumer_states,
                readiness=self._verdict(claim).readiness,
                reachable=self._reachable(allocation),
                blocks_pod=claim.metadata.uid in blocking,
            )
        return None if found is None else _reclaimable(claim, found, consumer_states)

    def blocking_claims(self) -> AbstractSet[str]:
        """UIDs of allocated claims that left a pending pod no node: filter rejected it on every one; in order of their pods."""
        blocking: dict[str, None] = {}
        for rejected in self._unschedulable.blocked_by_allocation():
            pod = self._ledger.pods.newest(rejected)
            if self._ledger.pods.was_deleted(pod.uid) or pod.node_name or pod.uid in self._binding:
                continue
            claims = [each.claim for each in self._claims_of(pod)]
            blocking.update((claim.metadata.uid, None) for claim in claims if self._blocks(claim, pod))
        return blocking.keys()

    def busy(self, claim_uid: str) -> bool:
        """Whether a bind in progress uses this claim."""
        record = self._ledger.claims.by_uid(claim_uid)
        if record is not None and record.pending is not None:
            return True
        for uid in self._binding:
            pod = self._ledger.pods.by_uid(uid)
            if pod is not None and any(each is record for each in self._claims_of(pod)):
                return True
        return False

    def _is_expected(self, claim: ClaimHead) -> bool:
        """Whether a claim without allocation is for extended resources of a pod that is being bound, or whose status names it."""
        uid = claim.extended_for
        pod = self._ledger.pods.by_uid(uid) if uid else None
        return bool(uid) and (
            self._busy(uid) or (pod is not None and bool(pod.node_name) and pod.extended_claim == claim.metadata.name)
        )

    def _claims_of(self, pod: Pod) -> Iterator[ClaimRecord]:
        """The claims that exist of those that the pod names and those that were created for it."""
        yield from self._ledger.claims.for_extended_resources(pod.namespace, pod.uid)
        generated = {each.name: each.resource_claim_name for each in pod.claim_statuses}
        for entry in pod.claims:
            name = entry.resource_claim_name or generated.get(entry.name)
            record = self._ledger.claims.by_key(pod.namespace, name) if name else None
            if record is not None:
                yield record

    def _run_all(self, claim: ClaimHead) -> bool:
        """Whether all consumers are running pods: the common case, which needs no further facts."""
        by_uid, consumers = self._ledger.pods.by_uid, claim.status.reserved_for
        for consumer in consumers:
            pod = by_uid(consumer.uid)
            if pod is None or pod.phase != RUNNING:
                return False
        return bool(consumers)

    def _consumer_states(
        self, claim: ClaimHead, allocation: AllocationResult, live: Mapping[str, Pod | None]
    ) -> Mapping[str, ConsumerState]:
        states = {}
        for consumer in claim.status.reserved_for:
            uid = consumer.uid
            if is_group(consumer):
                states[uid] = self._group_state(claim, consumer, live)
            else:
                pod = live[uid] if uid in live else self._ledger.pods.by_uid(uid)
                states[uid] = consumer_state(consumer, pod, allocation, busy=self._busy(uid))
        return states

    def _group_state(
        self, claim: ClaimHead, consumer: ConsumerReference, live: Mapping[str, Pod | None]
    ) -> ConsumerState:
        """The state of a consumer that is a PodGroup; a deleted one counts as in use without the API or the feature."""
        members = self.members(claim.metadata.namespace, consumer)
        if members is not None:
            return group_state(_newest(members, live), lambda pod: self._busy(pod.uid))
        groups = self._ledger.pod_groups
        if not (groups.served and groups.have_claims):
            return ConsumerState.IN_USE
        return deleted_group_state(_newest(self.users(claim, consumer), live), lambda pod: self._busy(pod.uid))

    def users(self, claim: ClaimHead, consumer: ConsumerReference) -> tuple[Pod, ...]:
        """The pods that name this PodGroup and this claim."""
        members = self._ledger.pods.members(claim.metadata.namespace, consumer.name)
        uid = claim.metadata.uid
        return tuple(pod for pod in members if any(each.claim.metadata.uid == uid for each in self._claims_of(pod)))

    def members(self, namespace: str, consumer: ConsumerReference) -> tuple[Pod, ...] | None:
        """The pods of a consumer that is an existing PodGroup; None for any other consumer."""
        if not is_group(consumer):
            return None
        group = self._ledger.pod_groups.get(namespace, consumer.name)
        if group is None or group.metadata.uid != consumer.uid:
            return None
        return self._ledger.pods.members(namespace, consumer.name)

    def _busy(self, pod_uid: str) -> bool:
        """Whether the pod is being bound, or devices are held for it."""
        return pod_uid in self._binding or bool(self._ledger.holds.of_pod(pod_uid))

    def unready_devices(self, claim: ClaimHead) -> frozenset[DeviceId]:
        """The devices that are not ready."""
        return frozenset(each.device for each in self._verdict(claim).problems)

    def _verdict(self, claim: ClaimHead) -> ConditionVerdict:
        if not self._options.binding_conditions:
            return ConditionVerdict(Readiness.READY)
        now = self._clock.now()
        return evaluate_conditions(claim, now=now, waiting_since=now, timeout=self._options.binding_timeout_seconds)

    def _reachable(self, allocation: AllocationResult) -> bool:
        """Whether some node can use it; a selector that cannot be evaluated may select any."""
        names = named_nodes(allocation)
        if names is not None:
            return any(name in self._ledger.nodes for name in names)
        try:
            return any(allocation.allows(node) for node in self._ledger.nodes.values())
        except ModelError:
            return True

    def _blocks(self, claim: ClaimHead, pod: Pod) -> bool:
        """Whether the claim restricts the pod to some nodes, and its nominated node is not among them."""
        allocation = claim.status.allocation
        if allocation is None or (allocation.node_selector is None and allocation.skipping_device is None):
            return False
        node = self._ledger.nodes.get(pod.nominated_node_name)
        try:
            return node is None or not allocation.allows(node)
        except ModelError:
            return False


def _newest(pods: Iterable[Pod], live: Mapping[str, Pod | None]) -> Iterator[Pod]:
    """The pods as they were just read, where they were, without those that do not exist any more."""
    return (pod for each in pods if (pod := live.get(each.uid, each)) is not None)


def _reclaimable(claim: ClaimHead, found: Releasable, consumer_states: Mapping[str, ConsumerState]) -> ReclaimableClaim:
    metadata = claim.metadata
    lasting = frozenset(uid for uid in found.consumers if consumer_states[uid] not in ENDED)
    snapshot = metadata.annotations.get(SNAPSHOT_ANNOTATION)
    # The ledger drops the content of the snapshot of a claim without allocation (app/dra_extender/ledger/state/kept_claims.py).
    marks = (FINALIZER in metadata.finalizers, "" if snapshot and claim.status.allocation is None else snapshot)
    state = (metadata.uid, claim.status.allocation, marks, found.reason, found.release, lasting)
    return ReclaimableClaim(found, consumer_states, state)
