"""Allocations whose claim was deleted while pods use the devices.

The API server lets the owner of a claim remove its finalizers and delete it, whatever runs on its devices.  The devices stay
counted until the last of these pods has ended.  None of this is stored: a restart forgets it.
"""

from collections.abc import Iterable, Mapping, Sequence

from dra_extender.ledger.claim_record import ClaimRecord, Orphan
from dra_extender.ledger.pods import PodIndex
from dra_extender.model.api_json import ModelError
from dra_extender.model.node import Node
from dra_extender.model.pod import Pod
from dra_extender.model.pod_group import is_group
from dra_extender.model.resource_claim import ClaimHead, ConsumerReference


class Orphans:
    """The allocations of deleted claims whose devices pods still use, by claim UID and by pod.

    Other modules only read `by_pod`.

    A pod keeps at most one allocation for each claim name: a claim that is made anew under the name of a deleted one has another
    UID, and the pod runs on the devices of the first.
    """

    def __init__(self) -> None:
        self._by_claim: dict[str, Orphan] = {}
        self.by_pod: dict[str, dict[tuple[str, str], str]] = {}

    def __len__(self) -> int:
        return len(self._by_claim)

    def all(self) -> Iterable[Orphan]:
        return self._by_claim.values()

    def of_pod(self, pod_uid: str) -> tuple[Orphan, ...]:
        return tuple(self._by_claim[uid] for uid in self.by_pod.get(pod_uid, {}).values())

    def adopt(self, record: ClaimRecord, users: Iterable[str]) -> Orphan | None:
        """Keep the stored allocation of this deleted claim for its users; None if no pod uses it."""
        key, uid = record.claim.metadata.key, record.claim.metadata.uid
        pods = {pod for pod in users if key not in self.by_pod.get(pod, {})}
        if not pods or not record.holdings:
            return None
        record.orphaned = True
        for pod in pods:
            self.by_pod.setdefault(pod, {})[key] = uid
        orphan = self._by_claim[uid] = Orphan(record, pods)
        return orphan

    def disown(self, claim_uid: str) -> Orphan | None:
        """Remove the allocation of a claim that exists after all; returns what was kept of it."""
        orphan = self._by_claim.pop(claim_uid, None)
        for pod in () if orphan is None else orphan.pods:
            claims = {key: uid for key, uid in self.by_pod.pop(pod).items() if uid != claim_uid}
            if claims:
                self.by_pod[pod] = claims
        return orphan

    def leave(self, pod_uid: str) -> tuple[Orphan, ...]:
        """Remove a pod that uses nothing any more; forgets and returns the allocations that no pod uses now."""
        used = self.by_pod.pop(pod_uid, None)
        if not used:
            return ()
        ended = []
        for uid in used.values():
            orphan = self._by_claim[uid]
            orphan.pods.discard(pod_uid)
            if not orphan.pods:
                ended.append(self._by_claim.pop(uid))
        return tuple(ended)


def users_of(claim: ClaimHead, pods: PodIndex, nodes: Mapping[str, Node]) -> Iterable[str]:
    """Yield the UIDs of the pods that run on the devices of this claim, as far as the API shows.

    Those are pods for which it is reserved, or which name it and belong to the PodGroup for which it is reserved, and that are
    bound, or are just being bound by this process, to a node on which the allocation is usable.
    """
    for consumer in claim.status.reserved_for:
        for pod in _pods_of(consumer, claim, pods):
            if not pod.finished and _runs_on(pod, claim, pods, nodes):
                yield pod.uid


def _pods_of(consumer: ConsumerReference, claim: ClaimHead, pods: PodIndex) -> Sequence[Pod]:
    """Return the pods that may use the claim through this reservation."""
    if is_group(consumer):
        members = pods.members(claim.metadata.namespace, consumer.name)
        name = claim.metadata.name
        # An entry after a draft of KEP-5729 names the claim only through its group.
        return [
            pod
            for pod in members
            if pod.extended_claim == name
            or any(name == entry.resource_claim_name or entry.pod_group_resource_claim for entry in pod.claims)
            or any(name == status.resource_claim_name for status in pod.claim_statuses)
        ]
    pod = pods.by_uid(consumer.uid)
    # A claim that was made for extended resources for which the pod uses another claim is not the pod's.
    uses_another = pod is None or (bool(claim.extended_for) and pod.extended_claim not in ("", claim.metadata.name))
    return [] if pod is None or uses_another else [pod]


def _runs_on(pod: Pod, claim: ClaimHead, pods: PodIndex, nodes: Mapping[str, Node]) -> bool:
    if not pod.node_name:
        return pods.is_being_bound(pod.uid)
    node, allocation = nodes.get(pod.node_name), claim.status.allocation
    try:
        return allocation is not None and allocation.usable_on(pod.node_name, {} if node is None else node.labels)
    except ModelError:
        return True
