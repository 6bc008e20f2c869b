"""The entry of `reservedFor` that a pod gets in a crowded claim of its PodGroup: its own, its group's, or none for now.

Up to OWN_ENTRIES pods have entries of their own.  Further pods have their group's entry, on nodes that are known to start them with
it; on another node one pod of each namespace at a time tries.  That pod gets its own entry if it does not start in time
(`GroupEntryWatch`).  There is always room for it: no other pod gets the entries that may be needed so.
"""

import asyncio
from collections.abc import Iterable, Sequence
from typing import Final

import structlog

from dra_extender.allocator.state.reasons import Code, Rejection
from dra_extender.ledger.claim_record import ClaimRecord
from dra_extender.ledger.group_entry_trials import GroupEntrySupport, GroupEntryTrial
from dra_extender.ledger.ledger import Ledger
from dra_extender.ledger.pod_groups import START_LABEL, GroupEntryPolicy, known_on
from dra_extender.model.api_json import ModelError
from dra_extender.model.node import Node
from dra_extender.model.pod import Pod
from dra_extender.model.pod_group import is_group
from dra_extender.model.resource_claim import MAX_RESERVATIONS, OWN_ENTRIES, read_claim
from dra_extender.scheduling.claims.lookup import FoundClaim, consumer_of, gang_of, is_crowded, named_claims
from dra_extender.scheduling.claims.writer import ClaimWriter
from dra_extender.scheduling.ports.cluster import Cluster, ClusterError, NotFoundError
from dra_extender.scheduling.ports.errors import RetryableError
from dra_extender.scheduling.ports.options import Options
from dra_extender.telemetry.metrics import Metrics

UNABLE_SECONDS: Final = 600.0
"""How long a node on which a pod did not start is not tried again for its namespace: the pod may have failed for other reasons."""
_SLOW_TIMES: Final = 4
"""Factor by which a trial is longer while its node has not started all pods with entries of their own, either."""
_TICK_SECONDS: Final = 0.5
_AGAIN_SECONDS: Final = 5.0
_ADVICE: Final = (
    f"where kubelets have the gate DRAWorkloadResourceClaims, label the node {START_LABEL}=true "
    "or set scheduling.reserve_for_pod_groups: always"
)
_LOG = structlog.get_logger(__name__)


def why_crowded_out(claim: FoundClaim, pod: Pod, node: Node, ledger: Ledger) -> Rejection | None:
    """Return why a crowded claim keeps the pod off this node; None if there is an entry with which it may start there."""
    group, head = claim.group, claim.record.claim
    if group is None or not is_crowded(claim, ledger):
        return None
    starts = ledger.group_entry_trials
    ability = starts.support_on(pod.namespace, node, pod.uid)
    if ability is GroupEntrySupport.ON_TRIAL:
        return Rejection(code=Code.CLAIM_ON_TRIAL, claim=claim.label)
    free_entries, detail = starts.free_entries(head, pod.uid), ""
    if ability is GroupEntrySupport.UNABLE and free_entries <= 0:
        detail = f"a pod did not start there; {_ADVICE}"
        if known_on(node) is False:
            detail = f"its label {START_LABEL} says so"
    elif ability is GroupEntrySupport.UNKNOWN:
        # The group needs an entry, and the pod one of its own if it does not start.
        needed = 1 if head.reserved_by(group.uid) else 2
        gang = gang_of(pod, ledger)
        if gang is not None and not ledger.pods.has_running_member(*gang.metadata.key):
            detail = f"nothing is found out by members of a gang of which none is bound; {_ADVICE}"
        elif free_entries < needed:
            detail = f"there is no entry left for a pod that would find out; {_ADVICE}"
    return Rejection(code=Code.CLAIM_CROWDED, claim=claim.label, detail=detail) if detail else None


def most_entries(claim: FoundClaim, pod: Pod, node: Node | None, ledger: Ledger) -> int:
    """Return how many entries the claim may have with this consumer, without those that are kept for pods on trial."""
    if is_group(claim.consumer) or claim.group is None or not _is_automatic(ledger):
        return MAX_RESERVATIONS
    unable = (
        node is not None
        and ledger.group_entry_trials.support_on(pod.namespace, node, pod.uid) is GroupEntrySupport.UNABLE
    )
    return MAX_RESERVATIONS if unable else OWN_ENTRIES


def reserved_through_group(claims: Iterable[FoundClaim], node: Node, ledger: Ledger) -> frozenset[str]:
    """Return UIDs of the claims in which a pod on this node has only its group's entry; none if the node's label says so."""
    if not _is_automatic(ledger) or known_on(node) is not None:
        return frozenset()
    return frozenset(claim.uid for claim in claims if claim.group == claim.consumer)


def _is_automatic(ledger: Ledger) -> bool:
    return ledger.pod_groups.entry_policy is GroupEntryPolicy.AUTO and ledger.pod_groups.ends_entries


def why_full(claim: FoundClaim, ledger: Ledger) -> str:
    """Return which setting stands in the way of more pods, if one does."""
    groups = ledger.pod_groups
    if not groups.have_claims:
        return "features.pod_group_claims is off"
    if claim.group is None:
        return "pods of a PodGroup with this claim in its spec.resourceClaims may be more"
    if groups.entry_policy is GroupEntryPolicy.NEVER:
        return "scheduling.reserve_for_pod_groups is never"
    if groups.entry_policy is GroupEntryPolicy.AUTO and not groups.ends_entries:
        return f"scheduling.reclaim_enabled is off, so that nobody would end a reservation for the PodGroup; {_ADVICE}"
    return "there is no room for the entry of the PodGroup"


class GroupEntryWatch:
    """Watches the pods that have no entry but their group's in a claim.

    A pod that starts proves that its kubelet accepts the entry, if the live claim has no other for the pod.  A pod that has not
    started after `pod_group_trial_seconds` gets an entry of its own, wherever it is bound.  The results are lost with the process:
    then one more pod on each node is on trial.
    """

    def __init__(
        self, ledger: Ledger, cluster: Cluster, writer: ClaimWriter, metrics: Metrics, options: Options
    ) -> None:
        self._ledger = ledger
        self._claims = cluster.claims
        self._clock = cluster.clock
        self._writer = writer
        self._metrics = metrics
        self._seconds = options.pod_group_trial_seconds
        # When each trial is over, by pod UID, and until when a node is not tried again for a namespace (monotonic).
        self._due: dict[str, float] = {}
        self._unable: dict[tuple[str, str], float] = {}

    async def keep_looking(self) -> None:
        self._due.clear()
        while True:
            await self.look()
            await asyncio.sleep(_TICK_SECONDS)

    async def look(self) -> None:
        """Go through all pods on trial once."""
        if self._ledger.pod_groups.entry_policy is not GroupEntryPolicy.AUTO or not self._ledger.pod_groups.have_claims:
            return
        # Bound pods of an earlier process, or of another scheduler, are on trial as well.
        for pod in self._ledger.group_entry_trials.unstarted():
            node = self._ledger.nodes.get(pod.node_name)
            if node is not None and known_on(node) is not True and (claims := self._relied_on(pod)):
                self._ledger.group_entry_trials.begin(pod, node, claims)
        for trial in self._ledger.group_entry_trials.started():
            await self._verify(trial)
        now = self._clock.monotonic()
        waiting = {trial.pod.uid: trial for trial in self._ledger.group_entry_trials.waiting()}
        self._due = {uid: self._due.get(uid, now + self._seconds) for uid in waiting}
        slow = {pod.node_name for pod in self._ledger.group_entry_trials.unstarted()}
        for uid, trial in waiting.items():
            extra = _SLOW_TIMES * self._seconds if trial.node in slow else 0.0
            if now >= self._due[uid] + extra:
                await self._reserve_for_pod(trial)
        for (namespace, name), until in list(self._unable.items()):
            if now >= until:
                del self._unable[namespace, name]
                self._ledger.group_entry_trials.allow_retry(namespace, name)
                self._ledger.hint_claims()

    def _relied_on(self, pod: Pod) -> frozenset[str]:
        """Return UIDs of the claims by name that are reserved for the pod's group and not for the pod."""
        return frozenset(
            record.claim.metadata.uid
            for entry, record in named_claims(pod, self._ledger)
            if (entry.resource_claim_name or entry.pod_group_resource_claim)
            and record.claim.status.allocation is not None
            and not record.claim.reserved_by(pod.uid)
            and any(
                is_group(consumer) and consumer.name == pod.pod_group for consumer in record.claim.status.reserved_for
            )
        )

    def _claims_of(self, trial: GroupEntryTrial) -> Sequence[ClaimRecord]:
        return [record for uid in sorted(trial.claims) if (record := self._ledger.claims.by_uid(uid)) is not None]

    async def _verify(self, trial: GroupEntryTrial) -> None:
        """Read from the live claims whether the pod started with no entry but its group's."""
        alone = False
        for record in self._claims_of(trial):
            try:
                live = read_claim(await self._claims.read(*record.claim.metadata.key))
            except NotFoundError:
                continue
            except (ClusterError, ModelError):
                return
            alone = alone or (live.metadata.uid == record.claim.metadata.uid and not live.reserved_by(trial.pod.uid))
        if not self._ledger.group_entry_trials.is_open(trial):
            return
        if not alone:
            self._ledger.group_entry_trials.end(trial.pod.uid)
        elif self._ledger.group_entry_trials.mark_able(trial):
            self._metrics.group_trials.labels("proven").inc()
            _LOG.info(
                "a kubelet starts pods that are reserved through their PodGroup", node=trial.node, pod=trial.pod.key
            )
        else:
            self._metrics.group_trials.labels("outdated").inc()
        self._ledger.hint_claims()

    async def _reserve_for_pod(self, trial: GroupEntryTrial) -> None:
        """Reserve the claims of a pod that has not started in time for itself, and try its node no more for a while."""
        pod, starts, now = trial.pod, self._ledger.group_entry_trials, self._clock.monotonic()
        starts.mark_unable(trial)
        self._unable[pod.namespace, trial.node] = now + UNABLE_SECONDS
        self._due[pod.uid] = now + _AGAIN_SECONDS
        succeeded = True
        for record in self._claims_of(trial):
            try:
                unserved = await self._writer.reserve(record, ((consumer_of(pod), MAX_RESERVATIONS),))
            except RetryableError as problem:
                _LOG.warning(
                    "a pod that does not start cannot be reserved for itself", pod=pod.key, problem=str(problem)
                )
                succeeded = False
                continue
            if unserved:
                succeeded = False
                self._metrics.group_trials.labels("full").inc()
                _LOG.warning(
                    "a pod does not start with the reservation of its PodGroup, and the claim has no room for its own",
                    pod=pod.key,
                    node=trial.node,
                    claim=record.claim.metadata.full_name,
                )
        if succeeded:
            starts.end(pod.uid)
            self._metrics.group_trials.labels("unable").inc()
            _LOG.warning(
                "a pod did not start with the reservation of its PodGroup, and is reserved by itself now",
                pod=pod.key,
                node=trial.node,
                seconds=self._seconds,
            )
        self._ledger.hint_claims()
