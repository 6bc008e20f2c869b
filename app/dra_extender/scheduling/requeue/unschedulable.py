"""The pods that filter rejected, and which change may help each (kube-scheduler: queueing hints)."""

import asyncio
from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from dra_extender.allocator.state.reasons import Code, Rejection
from dra_extender.ledger.ledger import Ledger
from dra_extender.model.pod import Pod
from dra_extender.scheduling.call_budget import CallBudget
from dra_extender.scheduling.evaluation.filter_result import FilterResult
from dra_extender.scheduling.ports.cluster import UNAVAILABLE_REASON, Clock, Events
from dra_extender.scheduling.requeue.event_notes import EventNotes
from dra_extender.telemetry.metrics import Metrics

_HELPED_BY_CLAIMS: Final = frozenset(
    {
        Code.CLAIM_NOT_CREATED,
        Code.CLAIM_MISSING,
        Code.CLAIM_DELETING,
        Code.CLAIM_FOREIGN,
        Code.CLAIM_FULLY_RESERVED,
        Code.CLAIM_CROWDED,
        Code.CLAIM_ON_TRIAL,
        Code.CLAIM_NOT_STARTED,
        Code.POD_GROUP_MISSING,
        Code.GANG_INCOMPLETE,
    }
)

_DELIVERY_SECONDS: Final = 60.0
"""A pod that the watch has not delivered by then was deleted while the watch was interrupted, after this process read it."""

_BLOCKED_BY_ALLOCATION: Final = frozenset({Code.CLAIM_ON_OTHER_NODE, Code.CLAIM_NODE_OPERATIONS})
_HELPED_BY_HOLDS: Final = frozenset({Code.CLAIM_HELD_ELSEWHERE, Code.GANG})


class EvaluatedNodes:
    """The nodes that kube-scheduler offered for a pod: `names`, or all but these with `all_but`, once it has shrunk."""

    __slots__ = ("_existing", "_nodes", "all_but", "names")

    def __init__(self, nodes: Mapping[str, object], existing: Mapping[str, object]) -> None:
        """Keep the keys of `nodes`; `existing` are all nodes of the cluster."""
        self._nodes: Mapping[str, object] | None = nodes
        self._existing = existing
        self.names = frozenset[str]()
        self.all_but = False

    def shrink(self) -> None:
        """Keep the names of these nodes or of all other nodes, whichever are fewer; leave out nodes that were created since."""
        nodes, existing = self._nodes, self._existing
        if nodes is None:
            return
        self.all_but = len(nodes) * 2 >= len(existing)
        self.names = frozenset(existing.keys() - nodes) if self.all_but else frozenset(nodes)
        self._nodes, self._existing = None, {}

    def among(self, nodes: Iterable[str]) -> Sequence[str]:
        """Return the nodes that kube-scheduler offered, out of these."""
        self.shrink()
        names, all_but = self.names, self.all_but
        return [node for node in nodes if (node in names) is not all_but]


class ChangeCounts(NamedTuple):
    """Counts of the changes of each kind that the ledger has recorded."""

    devices: int
    claims: int
    classes: int
    holds: int


@dataclass(frozen=True, slots=True)
class UnschedulablePod:
    """A pod that was rejected on these nodes, and how many `changes` of each kind there had been at that moment.

    `helped_by_holds`, `helped_by_claims`: whether the end of a hold, or a change of a claim, may make it schedulable.
    `blocked_by_allocation`: whether a claim that is allocated for other nodes is among the reasons.
    `lacking`: the reason that names the members which its gang lacks, if that is one.
    `recorded`: the time of the rejection, `since`: that of the first one (monotonic).
    """

    pod: Pod
    nodes: EvaluatedNodes
    changes: ChangeCounts
    helped_by_holds: bool
    helped_by_claims: bool
    blocked_by_allocation: bool
    lacking: Rejection | None
    recorded: float
    since: float

    def queueing_hint(self, now: ChangeCounts) -> str | None:
        """Return the kind of change since the rejection that may make the pod schedulable; None if there is none."""
        then = self.changes
        if now.devices != then.devices:
            return "devices"
        if now.classes != then.classes:
            return "classes"
        if self.helped_by_holds and now.holds != then.holds:
            return "holds"
        return "claims" if self.helped_by_claims and now.claims != then.claims else None

    def concerns_all_nodes(self, now: ChangeCounts) -> bool:
        """Return whether the change may make the pod fit on nodes that have not changed themselves."""
        if self.helped_by_holds or self.helped_by_claims or self.blocked_by_allocation:
            return True
        return now.classes != self.changes.classes


class UnschedulablePods:
    """The pods that filter rejected and has not offered a node since."""

    def __init__(self, ledger: Ledger, notes: EventNotes, events: Events, metrics: Metrics, clock: Clock) -> None:
        self._ledger = ledger
        self._clock = clock
        self._notes = notes
        self._events = events
        self._metrics = metrics
        # In the order of their first rejections.
        self._rejected: dict[str, UnschedulablePod] = {}
        self.uids: Final = self._rejected.keys()

    def __len__(self) -> int:
        return len(self._rejected)

    def record(self, pod: Pod, result: FilterResult, budget: CallBudget | None = None) -> None:
        """Record the rejection, and publish an Event on the pod with all details.

        A claim that is not created from its template yet causes no Event: every such pod is in that state for a moment.  The cost
        of the note is charged to `budget`.
        """
        reasons = result.why()
        by_code = {reason.rejection.code: reason.rejection for reason in reasons}
        codes = by_code.keys()
        nodes = EvaluatedNodes(result.texts, self._ledger.nodes)
        # There may be thousands of nodes, and only the waker reads them, after the response.
        asyncio.get_running_loop().call_soon(nodes.shrink)
        earlier, now = self._rejected.get(pod.uid), self._clock.monotonic()
        self._rejected[pod.uid] = UnschedulablePod(
            pod=pod,
            nodes=nodes,
            changes=self.changes(),
            helped_by_holds=result.without_holds.multi_node
            or bool(result.without_holds.loose)
            or not codes.isdisjoint(_HELPED_BY_HOLDS),
            helped_by_claims=not codes.isdisjoint(_HELPED_BY_CLAIMS),
            blocked_by_allocation=not codes.isdisjoint(_BLOCKED_BY_ALLOCATION),
            lacking=by_code.get(Code.GANG_INCOMPLETE),
            recorded=now,
            since=now if earlier is None else earlier.since,
        )
        for reason in reasons:
            self._metrics.rejected_nodes.labels(reason.rejection.code.name.lower()).inc(reason.nodes)
        self._metrics.waiting_pods.set(len(self._rejected))
        if codes - {Code.CLAIM_NOT_CREATED}:
            self._events.about_pod(
                pod, warning=True, reason=UNAVAILABLE_REASON, message=self._notes.render(pod, result, budget)
            )

    def forget(self, pod_uid: str) -> None:
        """Forget a pod that was offered a node, was bound, or is gone."""
        if self._rejected.pop(pod_uid, None) is not None:
            self._metrics.waiting_pods.set(len(self._rejected))

    def publish(self) -> None:
        """Count the pods by scheduler, and for how long the first of them has waited, in the metrics."""
        first = next(iter(self._rejected.values()), None)
        self._metrics.waiting_pods_longest_seconds.set(0.0 if first is None else self._clock.monotonic() - first.since)
        by_profile = Counter(rejected.pod.scheduler_name for rejected in self._rejected.values())
        self._metrics.upstream.unschedulable(by_profile)

    def changes(self) -> ChangeCounts:
        changes = self._ledger.changes
        return ChangeCounts(changes.devices, changes.claims, changes.classes, self._ledger.holds.releases)

    def any_queueing_hint(self) -> str | None:
        """Return a kind of change that may make some rejected pod schedulable; None if there is none."""
        now = self.changes()
        return next((hint for pod in self._rejected.values() if (hint := pod.queueing_hint(now))), None)

    def all(self) -> tuple[UnschedulablePod, ...]:
        return tuple(self._rejected.values())

    def blocked_by_allocation(self) -> tuple[Pod, ...]:
        """Return pods that were rejected because a claim is allocated for other nodes, perhaps among other reasons."""
        return tuple(rejected.pod for rejected in self._rejected.values() if rejected.blocked_by_allocation)

    def advance(self, changes: ChangeCounts, deferred: Container[str] = ()) -> None:
        """Let changes up to `changes` give no queueing hint any more, except to pods with the `deferred` UIDs.

        kube-scheduler was woken for these changes, or no pod fits after them.
        """
        for uid, rejected in self._rejected.items():
            if uid not in deferred:
                latest = ChangeCounts(*map(max, rejected.changes, changes))
                if latest != rejected.changes:
                    self._rejected[uid] = replace(rejected, changes=latest)

    def forget_resolved(self) -> None:
        """Forget pods that are bound, finished, being deleted or deleted, and pods that the watch does not deliver."""
        pods, latest = self._ledger.pods, self._clock.monotonic() - _DELIVERY_SECONDS
        for uid, rejected in list(self._rejected.items()):
            pod = pods.by_uid(uid)
            if pods.was_deleted(uid) or (rejected.recorded <= latest if pod is None else not pod.waits_for_node):
                self.forget(uid)
