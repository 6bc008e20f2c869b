"""Finds out which kubelets start pods that are reserved through their PodGroup alone, and reserves the others by themselves."""

import asyncio
from collections.abc import Sequence
from typing import Final

import structlog

from dra_extender.ledger.index.group_starts import GroupEntryTrial
from dra_extender.ledger.index.pod_groups import GroupReservation, known_on
from dra_extender.ledger.state.claim_record import ClaimRecord
from dra_extender.model.api_json import ModelError
from dra_extender.model.pod import Pod
from dra_extender.model.pod_group import is_group
from dra_extender.model.resource_claim import MAX_RESERVATIONS, read_claim
from dra_extender.scheduling.claims.lookup import consumer_of
from dra_extender.scheduling.claims.writer import ClaimWriter
from dra_extender.scheduling.ports.cluster import ClusterError, NotFoundError
from dra_extender.scheduling.ports.context import SchedulingContext
from dra_extender.scheduling.ports.errors import RetryableError

UNABLE_SECONDS: Final = 600.0
"""How long a node on which a pod did not start is not tried again for its namespace: the pod may have failed for other reasons."""
_SLOW_TIMES: Final = 4
"""Factor by which a trial is longer while its node has not started all pods with entries of their own, either."""
_TICK_SECONDS: Final = 0.5
_AGAIN_SECONDS: Final = 5.0

_LOG = structlog.get_logger(__name__)


class GroupTrials:
    """Watches the pods that have no entry but their group's in a claim.

    A pod that starts proves that its kubelet accepts the entry, if the live claim has no other for the pod.  A pod that has not
    started after `pod_group_trial_seconds` gets an entry of its own, wherever it is bound.  The results are lost with the process:
    then one more pod on each node is on trial.
    """

    def __init__(self, context: SchedulingContext, writer: ClaimWriter) -> None:
        self._ledger = context.ledger
        self._claims = context.cluster.claims
        self._clock = context.clock
        self._metrics = context.metrics
        self._seconds = context.options.pod_group_trial_seconds
        self._writer = writer
        # When each trial is over, by pod UID, and when each verdict of a namespace about a node is (monotonic).
        self._due: dict[str, float] = {}
        self._unable: dict[tuple[str, str], float] = {}

    async def keep_looking(self) -> None:
        """Look every half second until cancelled."""
        self._due.clear()
        while True:
            await self.look()
            await asyncio.sleep(_TICK_SECONDS)

    async def look(self) -> None:
        """Go through all pods on trial once."""
        if self._ledger.pod_groups.reservation is not GroupReservation.AUTO or not self._ledger.pod_groups.have_claims:
            return
        self._enter()
        for trial in self._ledger.group_starts.started():
            await self._verify(trial)
        now = self._clock.monotonic()
        waiting = {trial.pod.uid: trial for trial in self._ledger.group_starts.waiting()}
        self._due = {uid: self._due.get(uid, now + self._seconds) for uid in waiting}
        slow = {pod.node_name for pod in self._ledger.group_starts.unstarted()}
        for uid, trial in waiting.items():
            extra = _SLOW_TIMES * self._seconds if trial.node in slow else 0.0
            if now >= self._due[uid] + extra:
                await self._reserve_for_pod(trial)
        for (namespace, node), until in list(self._unable.items()):
            if now >= until:
                del self._unable[namespace, node]
                self._ledger.group_starts.allow_retry(namespace, node)
                self._ledger.hint_claims()

    def _enter(self) -> None:
        """Bound pods of an earlier process, or of another scheduler, are on trial as well."""
        for pod in self._ledger.group_starts.unstarted():
            node = self._ledger.nodes.get(pod.node_name)
            if node is not None and known_on(node) is not True and (claims := self._relied_on(pod)):
                self._ledger.group_starts.begin(pod, node, claims)

    def _relied_on(self, pod: Pod) -> frozenset[str]:
        """Return UIDs of the claims by name that are reserved for the pod's group and not for the pod."""
        found = set()
        recorded = {status.name: status.resource_claim_name for status in pod.claim_statuses}
        for entry in pod.claims:
            drafted = recorded.get(entry.name) if entry.pod_group_resource_claim else None
            record = self._ledger.claims.by_key(pod.namespace, entry.resource_claim_name or drafted or "")
            if record is None or record.claim.status.allocation is None or record.claim.reserved_by(pod.uid):
                continue
            if any(
                is_group(consumer) and consumer.name == pod.pod_group for consumer in record.claim.status.reserved_for
            ):
                found.add(record.claim.metadata.uid)
        return frozenset(found)

    def _claims_of(self, trial: GroupEntryTrial) -> Sequence[ClaimRecord]:
        """Return the claims of the trial that still exist."""
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
        if not self._ledger.group_starts.is_open(trial):
            return
        if not alone:
            self._ledger.group_starts.end(trial.pod.uid)
        elif self._ledger.group_starts.mark_able(trial):
            self._metrics.group_trials.labels("proven").inc()
            _LOG.info(
                "a kubelet starts pods that are reserved through their PodGroup", node=trial.node, pod=trial.pod.key
            )
        else:
            self._metrics.group_trials.labels("outdated").inc()
        self._ledger.hint_claims()

    async def _reserve_for_pod(self, trial: GroupEntryTrial) -> None:
        """Reserve the claims of a pod that has not started in time for itself, and try its node no more for a while."""
        pod, starts, now = trial.pod, self._ledger.group_starts, self._clock.monotonic()
        starts.mark_unable(trial)
        self._unable[pod.namespace, trial.node] = now + UNABLE_SECONDS
        self._due[pod.uid] = now + _AGAIN_SECONDS
        done = True
        for record in self._claims_of(trial):
            try:
                without = await self._writer.reserve(record, ((consumer_of(pod), MAX_RESERVATIONS),))
            except RetryableError as problem:
                _LOG.warning(
                    "a pod that does not start cannot be reserved for itself", pod=pod.key, problem=str(problem)
                )
                done = False
                continue
            if without:
                done = False
                self._metrics.group_trials.labels("full").inc()
                _LOG.warning(
                    "a pod does not start with the reservation of its PodGroup, and the claim has no room for its own",
                    pod=pod.key,
                    node=trial.node,
                    claim="/".join(record.claim.metadata.key),
                )
        if done:
            starts.end(pod.uid)
            self._metrics.group_trials.labels("unable").inc()
            _LOG.warning(
                "a pod did not start with the reservation of its PodGroup, and is reserved by itself now",
                pod=pod.key,
                node=trial.node,
                seconds=self._seconds,
            )
        self._ledger.hint_claims()
