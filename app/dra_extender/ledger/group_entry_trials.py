"""The kubelets that start pods whose claims are reserved only for their PodGroup, and the pods that try it.

A kubelet accepts the pod's own entry in `reservedFor` always, and that of its PodGroup only with the gate
DRAWorkloadResourceClaims, which no object of the API reports.  So one pod that has only its group's entry is bound to a node: when
it starts, the kubelet is known to accept the entry until the node reboots or its kubelet has another version.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple, Self

from dra_extender.ledger.claims import ClaimIndex
from dra_extender.ledger.pod_groups import known_on
from dra_extender.ledger.set_index import discard_member
from dra_extender.model.node import Node
from dra_extender.model.pod import Pod
from dra_extender.model.resource_claim import MAX_RESERVATIONS, ClaimHead


class Kubelet(NamedTuple):
    """One run of a node's kubelet in one version, as far as the API distinguishes runs."""

    node_uid: str
    boot_id: str
    version: str

    @classmethod
    def on(cls, node: Node) -> Self:
        return cls(node.uid, node.boot_id, node.kubelet_version)


class GroupEntrySupport(StrEnum):
    """Whether a pod starts on a node if only its PodGroup is in `reservedFor`."""

    ABLE = "able"
    UNABLE = "unable"
    ON_TRIAL = "on trial"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class GroupEntryTrial:
    """A pod that was bound, or is being bound, to a node with nothing but its group's entry in these claims (UIDs)."""

    pod: Pod
    node: str
    kubelet: Kubelet
    claims: frozenset[str]


class GroupEntryTrials:
    """What is known of each node's kubelet, and the pods that have not started yet with only their group's entry.

    ABLE holds for all namespaces, because only the kubelet writes that a pod has started.  UNABLE holds for one namespace, because
    the author of a pod can write a spec that never starts.
    """

    def __init__(self, nodes: Mapping[str, Node], claims: ClaimIndex) -> None:
        self._nodes = nodes
        self._claims = claims
        self._proven: dict[str, Kubelet] = {}
        self._unable: dict[tuple[str, str], Kubelet] = {}
        self._trials: dict[str, GroupEntryTrial] = {}
        self._by_claim: dict[str, set[str]] = {}
        self._by_namespace_and_node: dict[tuple[str, str], set[str]] = {}
        # By claim: the pods on trial that may need an entry of their own, and the state of the claim for which that was computed.
        self._kept_free: dict[str, tuple[ClaimHead | None, frozenset[str]]] = {}
        self._unstarted: dict[str, Pod] = {}
        self._started: dict[str, GroupEntryTrial] = {}

    def support_on(self, namespace: str, node: Node, pod_uid: str = "") -> GroupEntrySupport:
        """Return what is known for pods of this namespace; a trial of the pod itself does not count."""
        support = self._known_support(namespace, node)
        if support is not GroupEntrySupport.UNKNOWN:
            return support
        tried = self._by_namespace_and_node.get((namespace, node.name), ())
        return GroupEntrySupport.ON_TRIAL if len(tried) > (pod_uid in tried) else GroupEntrySupport.UNKNOWN

    def begin(self, pod: Pod, node: Node, claims: Collection[str]) -> None:
        """Begin the trial of a pod that goes to this node with nothing but its group's entry in these claims (UIDs)."""
        before = self._trials.get(pod.uid)
        if before is not None and (before.node, before.claims) == (node.name, claims):
            return
        self.end(pod.uid)
        trial = GroupEntryTrial(pod, node.name, Kubelet.on(node), frozenset(claims))
        self._trials[pod.uid] = trial
        self._kept_free.clear()
        self._by_namespace_and_node.setdefault((pod.namespace, node.name), set()).add(pod.uid)
        for claim in trial.claims:
            self._by_claim.setdefault(claim, set()).add(pod.uid)

    def end(self, pod_uid: str) -> None:
        trial = self._trials.pop(pod_uid, None)
        self._started.pop(pod_uid, None)
        if trial is None:
            return
        self._kept_free.clear()
        discard_member(self._by_namespace_and_node, (trial.pod.namespace, trial.node), pod_uid)
        for claim in trial.claims:
            discard_member(self._by_claim, claim, pod_uid)

    def bind_failed(self, pod_uid: str) -> None:
        """End the trial of a pod whose bind has failed as far as is known; the watch shows if it is bound nevertheless."""
        if pod_uid not in self._unstarted:
            self.end(pod_uid)

    def pod_seen(self, pod: Pod) -> None:
        """Take in a pod event: the pod may have started, or may never start."""
        if pod.pod_group is None or not pod.claims:
            return
        uid = pod.uid
        if pod.ending:
            self.gone(uid)
        elif pod.node_name:
            trial = self._trials.get(uid)
            if trial is not None and trial.node != pod.node_name:
                self.end(uid)
                trial = None
            if not pod.has_started:
                self._unstarted[uid] = pod
                self._started.pop(uid, None)
                return
            self._unstarted.pop(uid, None)
            if trial is not None:
                self._started[uid] = trial

    def gone(self, pod_uid: str) -> None:
        """End the trial of a pod that is finished or deleted."""
        self._unstarted.pop(pod_uid, None)
        self.end(pod_uid)

    def unstarted(self) -> Iterable[Pod]:
        """Return the bound members of PodGroups that have not started and are on no trial yet."""
        return [pod for uid, pod in self._unstarted.items() if uid not in self._trials]

    def waiting(self) -> Iterable[GroupEntryTrial]:
        """Return the trials of pods that are bound and have not started."""
        return [trial for uid, trial in self._trials.items() if uid in self._unstarted]

    def started(self) -> Iterable[GroupEntryTrial]:
        """Return the trials of pods that have started, by the pods that the watch delivered."""
        return list(self._started.values())

    def is_open(self, trial: GroupEntryTrial) -> bool:
        return self._trials.get(trial.pod.uid) is trial

    def mark_able(self, trial: GroupEntryTrial) -> bool:
        """Record that the pod has started with only its group's entry; returns whether the kubelet that runs now has proved it."""
        self.end(trial.pod.uid)
        node = self._nodes.get(trial.node)
        if node is None or Kubelet.on(node) != trial.kubelet:
            return False
        self._proven[trial.node] = trial.kubelet
        self._unable.pop((trial.pod.namespace, trial.node), None)
        return True

    def mark_unable(self, trial: GroupEntryTrial) -> None:
        self._kept_free.clear()
        self._unable[trial.pod.namespace, trial.node] = trial.kubelet

    def allow_retry(self, namespace: str, node: str) -> None:
        self._kept_free.clear()
        self._unable.pop((namespace, node), None)

    def node_seen(self) -> None:
        """Take in a node event: its label, its boot or its kubelet's version may have changed."""
        self._kept_free.clear()

    def node_gone(self, node: str) -> None:
        self._kept_free.clear()
        self._proven.pop(node, None)
        self._unable = {key: kubelet for key, kubelet in self._unable.items() if key[1] != node}

    def entries_kept_free(self, claim_uid: str, excluding: str = "") -> int:
        """Return how many entries pods on trial may need in this claim, the pod with the UID `excluding` excepted."""
        if claim_uid not in self._by_claim:
            return 0
        record = self._claims.by_uid(claim_uid)
        claim = None if record is None else record.claim
        kept_free = self._kept_free.get(claim_uid)
        if kept_free is None or kept_free[0] is not claim:
            # Callers ask for each of thousands of nodes.
            reserved = () if claim is None else {consumer.uid for consumer in claim.status.reserved_for}
            pods = (uid for uid in self._by_claim[claim_uid] if uid not in reserved and self._may_not_start(uid))
            kept_free = self._kept_free[claim_uid] = claim, frozenset(pods)
        return len(kept_free[1]) - (excluding in kept_free[1])

    def free_entries(self, claim: ClaimHead, consumer_uid: str, limit: int = MAX_RESERVATIONS) -> int:
        """Return how many more entries this consumer may use, so that some stay free for pods on trial; may be negative."""
        least = min(limit, MAX_RESERVATIONS - self.entries_kept_free(claim.metadata.uid, consumer_uid))
        return least - len(claim.status.reserved_for)

    def _may_not_start(self, pod_uid: str) -> bool:
        """Return whether the pod may not start with only its group's entry."""
        trial = self._trials[pod_uid]
        node = self._nodes.get(trial.node)
        return node is None or self._known_support(trial.pod.namespace, node) is not GroupEntrySupport.ABLE

    def _known_support(self, namespace: str, node: Node) -> GroupEntrySupport:
        """Return what is known without open trials."""
        supported = known_on(node)
        if supported is not None:
            return GroupEntrySupport.ABLE if supported else GroupEntrySupport.UNABLE
        kubelet = Kubelet.on(node)
        if self._unable.get((namespace, node.name)) == kubelet:
            return GroupEntrySupport.UNABLE
        return GroupEntrySupport.ABLE if self._proven.get(node.name) == kubelet else GroupEntrySupport.UNKNOWN
