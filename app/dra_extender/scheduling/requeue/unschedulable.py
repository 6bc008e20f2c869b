"""The pods that filter rejected, the notes of their Events, and which change may help each (kube-scheduler: queueing hints)."""

import asyncio
from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from dra_extender.allocator.demand.demand import Demand
from dra_extender.allocator.explain.selector_reasons import CUT
from dra_extender.allocator.state.reasons import Code, Rejection
from dra_extender.cel.budget import EXPLANATION_COST, Budget
from dra_extender.ledger.ledger import Ledger
from dra_extender.model.api_json import number_of
from dra_extender.model.pod import Pod
from dra_extender.runtime.caches import LruCache
from dra_extender.scheduling.evaluation.node_allocator import NodeAllocator
from dra_extender.scheduling.evaluation.result import FURTHER_REASONS, MOST_REASONS, FilterResult, RejectionGroup
from dra_extender.scheduling.ports.cluster import NOTE_BYTES, UNAVAILABLE_REASON, Clock, Events, joined_note
from dra_extender.scheduling.time_slices import CallBudget
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


_MOST_CACHED: Final = 200
_MOST_SELECTORS: Final = 2
_MOST_DEVICES: Final = 128
_MOST_EXPLAINED: Final = 4
_OVERDRAWN_DIVISOR: Final = 10


class EventNotes:
    """Renders the note about a rejection, at most NOTE_BYTES long; the same state gives the same note.

    Where no device matches, the message says what the selectors compared: searches do not find that out.  All reasons of a
    rejection together cost at most EXPLANATION_COST, and a tenth of it for a namespace whose share of time is overdrawn; the
    message says where it was cut.  The remaining time of the call does not matter.
    """

    def __init__(self, ledger: Ledger, allocator: NodeAllocator) -> None:
        self._ledger = ledger
        self._allocator = allocator
        self._unmet: LruCache[tuple[bytes, str, int, str, str, int], str] = LruCache(_MOST_CACHED)

    def render(self, pod: Pod, result: FilterResult, budget: CallBudget | None = None) -> str:
        """Render e.g. `3 of 3 nodes: claim "gpu", request "gpu": matching devices are in use: gpu-0 (on node-1). More: COMMAND`.

        It names as many reasons as the answer to kube-scheduler.  The cost is charged to `budget`.
        """
        groups = result.why()
        total, reasons = sum(group.nodes for group in groups), groups[:MOST_REASONS]
        allowed = EXPLANATION_COST // (_OVERDRAWN_DIVISOR if budget is not None and budget.overdrawn else 1)
        share = allowed // max(1, min(_MOST_EXPLAINED, sum(map(_has_no_match, reasons))))
        parts = []
        explained = 0
        for reason in reasons:
            text = reason.rejection.text
            if _has_no_match(reason):
                demand = result.demand if explained < _MOST_EXPLAINED else None
                unmet = "" if demand is None else self._unmet_selectors(reason, demand, share, budget)
                text = f"{text}: {unmet}" if unmet else text
                explained += 1
            on = f" (on {reason.example})" if reason.rejection.detail else ""
            parts.append(f"{reason.nodes} of {total} nodes: {text}{on}")
        if further := sum(group.nodes for group in groups[MOST_REASONS:]):
            parts.append(f"{further} of {total} nodes: {FURTHER_REASONS}")
        return with_why_command(parts, pod)

    def _unmet_selectors(self, reason: RejectionGroup, demand: Demand, share: int, budget: Budget | None) -> str:
        """Return what was false on most devices of the example: `2 devices: device.attributes[...].model is "A", wanted "B"`."""
        name, rejection = reason.example, reason.rejection
        key = (demand.signature, name, self._ledger.state.version(name), rejection.claim, rejection.request, share)
        text = self._unmet.get(key)
        if text is None:
            allowance = Budget(share, strict=True)
            text = self._unmet[key] = self._survey(reason, demand, allowance)
            if budget is not None:
                budget.spend(share - allowance.remaining)
        return text

    def _survey(self, reason: RejectionGroup, demand: Demand, allowance: Budget) -> str:
        node = self._ledger.nodes.get(reason.example)
        if node is None:
            return ""
        rejection = reason.rejection
        usage, only = self._ledger.usage(), (rejection.claim, rejection.request)
        surveyed = self._allocator.survey(demand, node, usage, budget=allowance, only=only, limit=_MOST_DEVICES)
        unmet = [
            f"{number_of(refused.devices, 'device')}: {refused.detail}"
            for request in surveyed
            for refused in request.refused
            if refused.code is Code.NO_MATCH and refused.detail
        ]
        skipped = sum(request.skipped for request in surveyed)
        parts = [*unmet[:_MOST_SELECTORS], *([f"{skipped} devices were not looked at"] if skipped else [])]
        return ", ".join(parts) or (CUT if allowance.remaining <= 0 else "")


def with_why_command(parts: Sequence[str], pod: Pod) -> str:
    """Join the parts to a note about a pod that waits, which ends with the command that explains more."""
    more = f". More: kubectl dra why {pod.name} -n {pod.namespace}"
    return joined_note(parts, "; ", NOTE_BYTES - len(more)) + more


def _has_no_match(reason: RejectionGroup) -> bool:
    return reason.rejection.code is Code.NO_MATCH


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
            helped_by_holds=result.multi_node_holds
            or bool(result.without_holds)
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
        return ChangeCounts(changes.devices, changes.claims, changes.classes, self._ledger.holds.ended)

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
            if pods.was_deleted(uid) or (rejected.recorded <= latest if pod is None else not is_pending(pod)):
                self.forget(uid)


def is_pending(pod: Pod) -> bool:
    return not (pod.node_name or pod.finished or pod.deleting)
