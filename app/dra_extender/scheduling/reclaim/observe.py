from collections.abc import Collection, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Final

from dra_extender.ledger.ledger import Ledger
from dra_extender.ledger.state.claim_record import ClaimRecord
from dra_extender.model.allocation import AllocationResult
from dra_extender.model.api_json import ModelError
from dra_extender.model.device import DeviceId
from dra_extender.model.pod import Pod
from dra_extender.model.pod_group import is_group
from dra_extender.model.resource_claim import FINALIZER, ClaimHead, ConsumerReference
from dra_extender.model.snapshot import SNAPSHOT_ANNOTATION
from dra_extender.scheduling.claims.conditions import ConditionVerdict, Readiness, judge
from dra_extender.scheduling.ports.cluster import Clock
from dra_extender.scheduling.ports.options import Options
from dra_extender.scheduling.reclaim.rules import (
    ENDED,
    ConsumerState,
    Releasable,
    gone_group_standing,
    group_standing,
    named_nodes,
    standing,
    surplus,
)
from dra_extender.scheduling.requeue.unschedulable import UnschedulablePods

RUNNING: Final = "Running"


@dataclass(frozen=True, slots=True)
class ReclaimableClaim:
    """What a claim has too much, and what each of its consumers is (by UID).

    `state` is what must not change before it is taken back.  The version of the claim says too much: drivers report again and again
    about its devices, and kube-controller-manager reserves a shared claim for a bound pod that is over, and takes that back, in
    endless turns.  So consumers that are gone or over are no part of it.
    """

    surplus: Releasable
    standings: Mapping[str, ConsumerState]
    state: tuple[object, ...]


class ReclaimFacts:
    """Gathers what the rules about one claim have to know from the ledger, from refusals and from the binds in progress."""

    def __init__(
        self, ledger: Ledger, refusals: UnschedulablePods, running: Collection[str], clock: Clock, options: Options
    ) -> None:
        """`running`: UIDs of the pods that are being bound, as they are at the time of each question."""
        self._ledger = ledger
        self._refusals = refusals
        self._running = running
        self._clock = clock
        self._options = options

    def find(
        self, claim: ClaimHead, tied: AbstractSet[str], live: Mapping[str, Pod | None] | None = None
    ) -> ReclaimableClaim | None:
        """What can be taken back from the claim; None when it is as it should be.

        Args:
            claim: The claim as it is known, or as it was just read.
            tied: UIDs of the claims that tie pods down, see `tied_down`.
            live: Pods that were just read, by UID; None for one that does not exist.
        """
        allocation = claim.status.allocation
        if live is None and allocation is not None and self._run_all(claim):
            return None
        if allocation is None:
            found = None if self._is_expected(claim) else surplus(claim, {})
            return None if found is None else _finding(claim, found, {})
        standings = self._standings(claim, allocation, live or {})
        if ConsumerState.IN_USE in standings.values():
            found = surplus(claim, standings)
        else:
            found = surplus(
                claim,
                standings,
                readiness=self._verdict(claim).readiness,
                reachable=self._reachable(allocation),
                tied_down=claim.metadata.uid in tied,
            )
        return None if found is None else _finding(claim, found, standings)

    def tied_down(self) -> AbstractSet[str]:
        """UIDs of allocated claims because of which a waiting pod fits nowhere: filter refused it for that reason."""
        tied: set[str] = set()
        for refused in self._refusals.tied_down():
            pod = self._ledger.pods.newest(refused)
            if self._ledger.pods.gone(pod.uid) or pod.node_name or pod.uid in self._running:
                continue
            claims = [each.claim for each in self._claims_of(pod)]
            tied.update(claim.metadata.uid for claim in claims if self._ties(claim, pod))
        return tied

    def busy(self, claim_uid: str) -> bool:
        """Whether a bind in progress uses this claim."""
        record = self._ledger.claims.by_uid(claim_uid)
        if record is not None and record.pending is not None:
            return True
        for uid in self._running:
            pod = self._ledger.pods.by_uid(uid)
            if pod is not None and any(each is record for each in self._claims_of(pod)):
                return True
        return False

    def _is_expected(self, claim: ClaimHead) -> bool:
        """Whether a claim without allocation is for extended resources of a pod that is being bound, or was told to use it."""
        uid = claim.extended_for
        pod = self._ledger.pods.by_uid(uid) if uid else None
        return bool(uid) and (
            self._busy(uid) or (pod is not None and bool(pod.node_name) and pod.extended_claim == claim.metadata.name)
        )

    def _claims_of(self, pod: Pod) -> Iterator[ClaimRecord]:
        """The claims that the pod names or that were made for it, as far as they exist."""
        yield from self._ledger.claims.for_extended_resources(pod.namespace, pod.uid)
        generated = {each.name: each.resource_claim_name for each in pod.claim_statuses}
        for entry in pod.claims:
            name = entry.resource_claim_name or generated.get(entry.name)
            record = self._ledger.claims.by_key(pod.namespace, name) if name else None
            if record is not None:
                yield record

    def _run_all(self, claim: ClaimHead) -> bool:
        """Whether all consumers are pods that run: the common case, in which nothing else needs to be known."""
        by_uid, consumers = self._ledger.pods.by_uid, claim.status.reserved_for
        for consumer in consumers:
            pod = by_uid(consumer.uid)
            if pod is None or pod.phase != RUNNING:
                return False
        return bool(consumers)

    def _standings(
        self, claim: ClaimHead, allocation: AllocationResult, live: Mapping[str, Pod | None]
    ) -> Mapping[str, ConsumerState]:
        found = {}
        for consumer in claim.status.reserved_for:
            uid = consumer.uid
            members = self.members(claim.metadata.namespace, consumer)
            if members is None and is_group(consumer):
                found[uid] = self._without_group(claim, consumer, live)
            elif members is None:
                pod = live[uid] if uid in live else self._ledger.pods.by_uid(uid)
                found[uid] = standing(consumer, pod, allocation, busy=self._busy(uid))
            else:
                known = (live.get(each.uid, each) for each in members)
                found[uid] = group_standing(
                    (each for each in known if each is not None), lambda pod: self._busy(pod.uid)
                )
        return found

    def _without_group(
        self, claim: ClaimHead, consumer: ConsumerReference, live: Mapping[str, Pod | None]
    ) -> ConsumerState:
        """What a PodGroup is to the claim that does not exist any more; without the API, or the feature, nobody can tell."""
        groups = self._ledger.pod_groups
        if not (groups.served and groups.have_claims):
            return ConsumerState.IN_USE
        known = (live.get(each.uid, each) for each in self.users(claim, consumer))
        return gone_group_standing((each for each in known if each is not None), lambda pod: self._busy(pod.uid))

    def users(self, claim: ClaimHead, consumer: ConsumerReference) -> tuple[Pod, ...]:
        """The pods that name this PodGroup and this claim."""
        members = self._ledger.pods.members(claim.metadata.namespace, consumer.name)
        uid = claim.metadata.uid
        return tuple(pod for pod in members if any(each.claim.metadata.uid == uid for each in self._claims_of(pod)))

    def members(self, namespace: str, consumer: ConsumerReference) -> tuple[Pod, ...] | None:
        """The pods of a consumer that is a PodGroup which exists; None for any other consumer."""
        if not is_group(consumer):
            return None
        group = self._ledger.pod_groups.get(namespace, consumer.name)
        if group is None or group.metadata.uid != consumer.uid:
            return None
        return self._ledger.pods.members(namespace, consumer.name)

    def _busy(self, pod_uid: str) -> bool:
        """Whether the pod is just being bound, or devices are held for it."""
        return pod_uid in self._running or bool(self._ledger.holds.of_pod(pod_uid))

    def troubled(self, claim: ClaimHead) -> frozenset[DeviceId]:
        """The devices that are not ready."""
        return frozenset(each.device for each in self._verdict(claim).troubles)

    def _verdict(self, claim: ClaimHead) -> ConditionVerdict:
        if not self._options.binding_conditions:
            return ConditionVerdict(Readiness.READY)
        now = self._clock.now()
        return judge(claim, now=now, waiting_since=now, timeout=self._options.binding_timeout_seconds)

    def _reachable(self, allocation: AllocationResult) -> bool:
        """Whether some node can use it; a selector that cannot be judged may select any."""
        names = named_nodes(allocation)
        if names is not None:
            return any(name in self._ledger.nodes for name in names)
        try:
            return any(allocation.allows(node) for node in self._ledger.nodes.values())
        except ModelError:
            return True

    def _ties(self, claim: ClaimHead, pod: Pod) -> bool:
        """Whether the claim leaves the pod some nodes only, and not the one to which it is nominated."""
        allocation = claim.status.allocation
        if allocation is None or (allocation.node_selector is None and allocation.skipping_device is None):
            return False
        node = self._ledger.nodes.get(pod.nominated_node_name)
        try:
            return node is None or not allocation.allows(node)
        except ModelError:
            return False


def _finding(claim: ClaimHead, found: Releasable, standings: Mapping[str, ConsumerState]) -> ReclaimableClaim:
    metadata = claim.metadata
    lasting = frozenset(uid for uid in found.consumers if standings[uid] not in ENDED)
    snapshot = metadata.annotations.get(SNAPSHOT_ANNOTATION)
    # That of a claim without an allocation is known to be there, and no more (app/dra_extender/ledger/state/kept_claims.py).
    ours = (FINALIZER in metadata.finalizers, "" if snapshot and claim.status.allocation is None else snapshot)
    state = (metadata.uid, claim.status.allocation, ours, found.reason, found.release, lasting)
    return ReclaimableClaim(found, standings, state)
