"""A small kube-scheduler: one pod at a time, in-tree rules first, then the extender, until nothing moves any more."""

import asyncio
import difflib
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from dra_extender.model.api_json import ModelError
from dra_extender.nodefit.node_fit import aggregated
from dra_extender.runtime.supervision import is_set_within
from dra_extender.simulator.apiserver.cluster import MemoryCluster
from dra_extender.simulator.apiserver.objects import Json, Key, StoredKind, key_of, part, set_condition
from dra_extender.simulator.apiserver.store import Change, WatchEventType
from dra_extender.simulator.controllers.claims import ClaimController, is_finished
from dra_extender.simulator.scheduler.extender_client import ExtenderClient, ExtenderFailure, ExtenderTransport
from dra_extender.simulator.scheduler.gang_queue import Unit, units, with_mates
from dra_extender.simulator.scheduler.in_tree import InTreeFilters

STARTED: Final = "PodReadyToStartContainers"
SCHEDULER_NAME: Final = "dra-extender-scheduler"
_RETRIES: Final = 5
_BACKOFF_SECONDS: Final = 0.05
"""Before a pod is tried again after an error, for each error in a row."""
_BIND_SECONDS: Final = 1.0
"""A bind that takes longer fails and is tried again."""
_WAKE_SECONDS: Final = 1.0
"""After a change of a slice, which wakes no pod, as long as the service may take to call `wake`."""
_MOST_ROUNDS: Final = 50
_RETRY_ALL: Final = (StoredKind.CLAIM, StoredKind.CLASS, StoredKind.NODE, StoredKind.POD_GROUP)
_MISSPELT: Final = 0.7
_ONLY_WOKEN: Final = (StoredKind.SLICE, StoredKind.TAINT_RULE)


class PodBound(msgspec.Struct, frozen=True, tag="bound"):
    """The pod runs on this node."""

    pod: Key
    node: str


class PodWaiting(msgspec.Struct, frozen=True, tag="waiting"):
    """The pod is parked: the sentence of its FailedScheduling event, and the reason per node."""

    pod: Key
    message: str
    reasons: dict[str, str] = {}


class SchedulingFailed(msgspec.Struct, frozen=True, tag="failed"):
    """The attempt ended with an error (reason SchedulerError); the pod backs off and is tried again.

    `slow`: the time was up.  Then nothing is gained by trying again before something has happened.
    """

    pod: Key
    message: str
    slow: bool = False


Outcome = PodBound | PodWaiting | SchedulingFailed


class _Parked(msgspec.Struct):
    """When a pod was last tried: where the signals stood then, and how often it failed with an error since it last changed."""

    signals: int
    wakes: int
    outcome: Outcome
    failures: int = 0


class NotAtRestError(Exception):
    """Pods were tried again and again without coming to rest; the message names them."""


class SchedulingLoop:
    """Schedules the pods of a cluster through an extender, those that name one of `scheduler_names`.

    A rejected pod is parked and retried when something happens that wakes pods rejected by an extender in kube-scheduler: a
    claim, class, node or PodGroup changes, a bound pod comes, changes or goes, the pod itself changes, or the service calls `wake`.
    The loop is at rest when for `quiet_seconds` nothing was stored and the service did not call `wake`.
    """

    def __init__(
        self,
        cluster: MemoryCluster,
        transport: ExtenderTransport,
        *,
        scheduler_names: Sequence[str] = (SCHEDULER_NAME,),
        quiet_seconds: float = 0.0,
        observe: Callable[[Outcome], None] = lambda _: None,
    ) -> None:
        """`observe` is told the outcome of each attempt."""
        self._cluster = cluster
        self._store = cluster.store
        self._in_tree = InTreeFilters(self._store.peek_all, classes_serve=cluster.keeps_extended_claims)
        self._extender = ExtenderClient(transport)
        self._controller = ClaimController(cluster.store)
        self._scheduler_names = tuple(scheduler_names)
        self._quiet_seconds = quiet_seconds
        self._observe = observe
        self._changed = asyncio.Event()
        self._wakes_before_slices: int | None = None
        self._parked: dict[str, _Parked] = {}
        self._signals = 0
        self._own: dict[str, int] = {}
        self._states: dict[str, bytes] = {}
        cluster.store.subscribe(self._note)
        cluster.waker.subscribe(self._changed.set)

    @property
    def scheduler_names(self) -> tuple[str, ...]:
        return self._scheduler_names

    @property
    def controller(self) -> ClaimController:
        return self._controller

    def outcome(self, uid: str) -> Outcome | None:
        parked = self._parked.get(uid)
        return parked.outcome if parked is not None else None

    async def run_until_idle(self) -> None:
        """Schedule until every pod is bound or parked.

        Raises:
            NotAtRestError: pods were still being retried after the allowed number of rounds.
        """
        for _ in range(_MOST_ROUNDS):
            self._controller.reconcile()
            await self._cluster.watch.caught_up()
            queue = self._queue() or await self._queue_after_slices()
            if not queue and not await self._changes_within_quiet_seconds():
                return
            for unit in units(self._store, queue):
                if unit.is_gang:
                    await self._try_gang(unit)
                else:
                    await self._try(unit.pods[0])
                self._controller.reconcile()
                await self._cluster.watch.caught_up()
        names = ", ".join(str(key) for key in self._queue())
        raise NotAtRestError(
            f"the scheduling loop did not come to rest within {_MOST_ROUNDS} rounds; still retried: {names}"
        )

    async def _queue_after_slices(self) -> list[Key]:
        """What there is to try once the service has answered a change of slices; only parked pods can be waiting for that."""
        calls, self._wakes_before_slices = self._wakes_before_slices, None
        if calls is None or not self._parked:
            return []
        await self._cluster.waker.called_since(calls, _WAKE_SECONDS)
        return self._queue()

    async def _changes_within_quiet_seconds(self) -> bool:
        """Wait until something is stored or the service calls `wake`; return False if neither happens in time."""
        self._changed.clear()
        return await is_set_within(self._changed, self._quiet_seconds)

    def _queue(self) -> list[Key]:
        """Return pods to try now: highest priority first, then the oldest.  With one member of a gang all that wait are tried."""
        pending = [pod for pod in self._store.peek_all(StoredKind.POD) if self._is_pending(pod)]
        waiting = with_mates(pending, lambda pod: self._is_due(pod["metadata"]["uid"]))
        waiting.sort(key=lambda pod: -(pod["spec"].get("priority") or 0))
        return [key_of(StoredKind.POD, pod) for pod in waiting]

    def _is_due(self, uid: str) -> bool:
        parked = self._parked.get(uid)
        if parked is None:
            return True
        if isinstance(parked.outcome, SchedulingFailed) and parked.failures < _RETRIES:
            return True
        signals = self._signals + self._own.get(uid, 0)
        return parked.signals != signals or parked.wakes != self._cluster.waker.calls

    async def _try(self, key: Key) -> None:
        pod = self._store.find(key)
        if pod is None or not self._is_pending(pod):
            return
        failures = self._failures(pod)
        if 0 < failures < _RETRIES:
            await asyncio.sleep(_BACKOFF_SECONDS * failures)
        before = self._signals_before(pod)
        self._record(pod, before, await self._bind(pod, await self._choice(pod)))

    async def _try_gang(self, unit: Unit) -> None:
        """One cycle for all waiting members: each is given a node, and only if enough have one they are bound, all at once."""
        pods = [pod for key in unit.pods if (pod := self._store.find(key)) is not None and self._is_pending(pod)]
        failures = max((count for count in map(self._failures, pods) if count < _RETRIES), default=0)
        await asyncio.sleep(_BACKOFF_SECONDS * failures)
        before = [self._signals_before(pod) for pod in pods]
        choices = [await self._choice(pod, unit.wait) for pod in pods]
        if sum(isinstance(choice, PodBound) for choice in choices) >= unit.needed and unit.wait is None:
            outcomes = await asyncio.gather(*map(self._bind, pods, choices))
        else:
            outcomes = [
                PodWaiting(choice.pod, "not enough members of the PodGroup fit")
                if isinstance(choice, PodBound)
                else choice
                for choice in choices
            ]
        for pod, signals, outcome in zip(pods, before, outcomes, strict=True):
            self._record(pod, signals, outcome)

    def _is_pending(self, pod: Json) -> bool:
        spec = pod["spec"]
        ours = spec.get("schedulerName") in self._scheduler_names and not spec.get("nodeName")
        return (
            ours
            and not spec.get("schedulingGates")
            and not is_finished(pod)
            and "deletionTimestamp" not in pod["metadata"]
        )

    def _failures(self, pod: Json) -> int:
        before = self._parked.get(pod["metadata"]["uid"])
        return before.failures if before is not None and isinstance(before.outcome, SchedulingFailed) else 0

    def _signals_before(self, pod: Json) -> tuple[int, int]:
        """Return where the signals stand before an attempt: what happens during it counts as a reason to try again."""
        return self._signals + self._own.get(pod["metadata"]["uid"], 0), self._cluster.waker.calls

    def _record(self, pod: Json, signals: tuple[int, int], outcome: Outcome) -> None:
        uid, failures = pod["metadata"]["uid"], self._failures(pod)
        self._observe(outcome)
        if isinstance(outcome, PodBound):
            self._parked.pop(uid, None)
            # As a kubelet with every gate does; the service may learn from the start and wake other pods.
            if pod["spec"].get("schedulingGroup") and self._store.find(outcome.pod) is not None:
                self._wakes_before_slices = self._cluster.waker.calls
                self._store.edit_unchecked(
                    outcome.pod, lambda pod: set_condition(pod, {"type": STARTED, "status": "True"})
                )
            return
        self._parked[uid] = _Parked(*signals, outcome, _failures_after(outcome, failures))
        if self._store.find(outcome.pod) is None:
            return
        # A changed text is a change of the pod, and so one more attempt.
        reason = "Unschedulable" if isinstance(outcome, PodWaiting) else "SchedulerError"
        condition = {"type": "PodScheduled", "status": "False", "reason": reason, "message": outcome.message}

        def report(pod: Json) -> None:
            set_condition(pod, condition)
            if reason == "SchedulerError":
                pod["status"].pop("nominatedNodeName", None)

        self._store.edit_unchecked(outcome.pod, report)

    async def _choice(self, pod: Json, wait: str | None = None) -> Outcome:
        """Return the node for the pod; with `wait` the pod is not to be tried, for this reason."""
        key = key_of(StoredKind.POD, pod)
        if wait is not None:
            return PodWaiting(key, wait)
        try:
            return await self._choose(pod)
        except (ExtenderFailure, ModelError) as failure:
            return SchedulingFailed(key, str(failure))

    async def _bind(self, pod: Json, choice: Outcome) -> Outcome:
        key = key_of(StoredKind.POD, pod)
        if not isinstance(choice, PodBound):
            return choice
        try:
            async with asyncio.timeout(_BIND_SECONDS):
                await self._extender.bind(pod, choice.node)
        except TimeoutError:
            return SchedulingFailed(key, f"bind: no answer within {_BIND_SECONDS:g} s", slow=True)
        except ExtenderFailure as failure:
            return SchedulingFailed(key, str(failure))
        stored = self._store.find(key)
        if stored is not None and not stored["spec"].get("nodeName"):
            return SchedulingFailed(key, f"bind reported success, but the pod is not assigned to {choice.node}")
        return choice

    async def _choose(self, pod: Json) -> PodBound | PodWaiting:
        key = key_of(StoredKind.POD, pod)
        fitting, reasons = self._in_tree.judge(pod)
        nodes, reason_texts = len(fitting) + len(reasons), [text for texts in reasons.values() for text in texts]
        by_node = {name: ", ".join(texts) for name, texts in reasons.items()}
        nominated = part(pod, "status").get("nominatedNodeName")
        if nominated in fitting:
            answer = await self._extender.filter(pod, [str(nominated)])
            if answer.nodes:
                return PodBound(key, str(nominated))
        if fitting:
            answer = await self._extender.filter(pod, fitting)
            dropped = set(fitting) - set(answer.nodes)
            refused = {name: reason for name, reason in answer.reasons.items() if name in dropped}
            by_node.update(refused)
            reason_texts += refused.values()
            fitting = list(answer.nodes)
        if not fitting:
            return PodWaiting(key, aggregated(nodes, reason_texts), by_node)
        if len(fitting) == 1:
            return PodBound(key, fitting[0])
        scores = await self._extender.prioritize(pod, fitting)
        return PodBound(key, min(fitting, key=lambda name: (-scores[name], name)))

    def _note(self, change: Change) -> None:
        self._changed.set()
        if change.key.kind in _RETRY_ALL:
            self._signals += 1
        elif change.key.kind in _ONLY_WOKEN:
            self._wakes_before_slices = self._cluster.waker.calls
        elif change.key.kind is StoredKind.POD:
            pod: Json = msgspec.json.decode(change.data)
            if pod["spec"].get("nodeName"):
                self._signals += 1
            if change.verb is WatchEventType.DELETED:
                self._own.pop(change.uid, None)
                self._parked.pop(change.uid, None)
                self._states.pop(change.uid, None)
            elif self._states.get(change.uid) != (state := _state(pod)):
                self._states[change.uid] = state
                self._own[change.uid] = self._own.get(change.uid, 0) + 1


def _failures_after(outcome: Outcome, before: int) -> int:
    """Errors in a row; after a slow one as many as end the retries."""
    if not isinstance(outcome, SchedulingFailed):
        return 0
    return _RETRIES if outcome.slow else before + 1


def _state(pod: Json) -> bytes:
    """Return the parts of a pod whose change makes the scheduler try it again; a nomination is no such part."""
    status = {name: value for name, value in part(pod, "status").items() if name != "nominatedNodeName"}
    meta = {name: pod["metadata"].get(name) for name in ("labels", "annotations", "deletionTimestamp")}
    return msgspec.json.encode((meta, pod["spec"], status))


def foreign_scheduler(name: str, scheduler_names: Sequence[str]) -> str:
    """Return why a pod of this scheduler is not scheduled where only those of `scheduler_names` are, and what to do."""
    close = difflib.get_close_matches(name, scheduler_names, n=1, cutoff=_MISSPELT)
    default_hint = f"write schedulerName: {scheduler_names[0]}, or use --scheduler-name {name}"
    hint = f"did you mean {close[0]!r}?" if close else default_hint
    return (
        f"the pod is for scheduler {name!r}, and only pods for {', '.join(scheduler_names)} are scheduled here; {hint}"
    )
