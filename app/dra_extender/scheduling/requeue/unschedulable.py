import asyncio
from collections.abc import Container
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from dra_extender.ledger.ledger import Ledger
from dra_extender.model.pod import Pod
from dra_extender.model.rejection import Code
from dra_extender.scheduling.evaluation.result import FilterResult
from dra_extender.scheduling.ports.cluster import Clock, Events
from dra_extender.scheduling.requeue.asked_nodes import AskedNodes
from dra_extender.scheduling.requeue.messages import RejectionMessages
from dra_extender.scheduling.search_time.deadline import CallBudget
from dra_extender.telemetry.metrics import Metrics

REASON = "DevicesUnavailable"
_ABOUT_CLAIMS = frozenset(
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
"""A pod that the watch has not delivered by then was deleted in a gap of the watch, after it was read from the API server."""

_BY_ALLOCATION = frozenset({Code.CLAIM_ON_OTHER_NODE, Code.CLAIM_NODE_OPERATIONS})
_BY_HOLDS = frozenset({Code.CLAIM_HELD_ELSEWHERE, Code.GANG})


class SeenChanges(NamedTuple):
    """How many changes of each kind the ledger has recorded."""

    devices: int
    claims: int
    classes: int
    holds: int


@dataclass(frozen=True, slots=True)
class UnschedulablePod:
    """A pod that was rejected on these nodes, and how many changes of each kind had been `seen` at that moment.

    `recorded`: when that was (monotonic).
    """

    pod: Pod
    nodes: AskedNodes
    seen: SeenChanges
    by_holds: bool
    about_claims: bool
    by_allocation: bool
    recorded: float

    def queueing_hint(self, now: SeenChanges) -> str | None:
        """The kind of change since the rejection that may make the pod schedulable; None if there is none."""
        then = self.seen
        if now.devices != then.devices:
            return "devices"
        if now.classes != then.classes:
            return "classes"
        if self.by_holds and now.holds != then.holds:
            return "holds"
        return "claims" if self.about_claims and now.claims != then.claims else None

    def concerns_all_nodes(self, now: SeenChanges) -> bool:
        """Whether the change may make the pod fit on nodes that have not changed themselves."""
        return self.by_holds or self.about_claims or self.by_allocation or now.classes != self.seen.classes


class UnschedulablePods:
    """The pods that were rejected and have not been placed since, with the changes that may make each of them schedulable."""

    def __init__(
        self, ledger: Ledger, words: RejectionMessages, events: Events, metrics: Metrics, clock: Clock
    ) -> None:
        self._ledger = ledger
        self._clock = clock
        self._words = words
        self._events = events
        self._metrics = metrics
        self._refused: dict[str, UnschedulablePod] = {}

    def __len__(self) -> int:
        return len(self._refused)

    def __contains__(self, pod_uid: str) -> bool:
        return pod_uid in self._refused

    def record(self, pod: Pod, attempt: FilterResult, budget: CallBudget | None = None) -> None:
        """Record the rejection, and publish an Event on the pod with all details.

        A claim that is not generated from its template yet causes no Event: that happens to every such pod for a moment.
        The explanation is charged to `budget`.
        """
        reasons = attempt.why()
        codes = {each.rejection.code for each in reasons}
        asked = AskedNodes(attempt.texts, self._ledger.nodes)
        # There may be thousands of nodes, and only the waker reads them, after the answer.
        asyncio.get_running_loop().call_soon(asked.shrink)
        self._refused[pod.uid] = UnschedulablePod(
            pod=pod,
            nodes=asked,
            seen=self.changes(),
            by_holds=attempt.unsettled or bool(attempt.behind) or not codes.isdisjoint(_BY_HOLDS),
            about_claims=not codes.isdisjoint(_ABOUT_CLAIMS),
            by_allocation=not codes.isdisjoint(_BY_ALLOCATION),
            recorded=self._clock.monotonic(),
        )
        for each in reasons:
            self._metrics.rejected(each.rejection.code.name.lower(), each.nodes)
        self._metrics.waiting(len(self._refused))
        if codes - {Code.CLAIM_NOT_CREATED}:
            self._events.about_pod(pod, warning=True, reason=REASON, message=self._words(attempt, budget))

    def forget(self, pod_uid: str) -> None:
        """The pod was offered a node, was bound, or is gone."""
        if self._refused.pop(pod_uid, None) is not None:
            self._metrics.waiting(len(self._refused))

    def changes(self) -> SeenChanges:
        """How many changes of each kind there are by now."""
        changes = self._ledger.changes
        return SeenChanges(changes.devices, changes.claims, changes.classes, self._ledger.holds.ended)

    def any_queueing_hint(self) -> str | None:
        """A kind of change that may make some rejected pod schedulable; None if there is none."""
        now = self.changes()
        return next((help_ for each in self._refused.values() if (help_ := each.queueing_hint(now))), None)

    def all(self) -> tuple[UnschedulablePod, ...]:
        """Every pod that was rejected and has not been placed since."""
        return tuple(self._refused.values())

    def tied_down(self) -> tuple[Pod, ...]:
        """Pods that fit nowhere where a claim allocated for other nodes is among the reasons."""
        return tuple(each.pod for each in self._refused.values() if each.by_allocation)

    def advance(self, seen: SeenChanges, besides: Container[str] = ()) -> None:
        """Changes up to this seen need no further thought: kube-scheduler has been told of them, or they help nobody.

        Pods with the UIDs `besides` have still to be looked at.
        """
        for uid, each in self._refused.items():
            if uid in besides:
                continue
            latest = SeenChanges(*map(max, each.seen, seen))
            if latest != each.seen:
                self._refused[uid] = replace(each, seen=latest)

    def forget_resolved(self) -> None:
        """Forget pods that are bound, finished, being deleted or deleted, and pods that the watch does not deliver."""
        known, latest = self._ledger.pods, self._clock.monotonic() - _DELIVERY_SECONDS
        for uid, each in list(self._refused.items()):
            pod = known.by_uid(uid)
            if known.gone(uid) or (each.recorded <= latest if pod is None else not is_pending(pod)):
                self.forget(uid)


def is_pending(pod: Pod) -> bool:
    """Whether the pod waits for a node."""
    return not (pod.node_name or pod.finished or pod.deleting)
