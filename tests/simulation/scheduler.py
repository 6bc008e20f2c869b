"""kube-scheduler as the service meets it: informers that lag, a queue with backoff, one pod at a time, bindings in parallel."""

import asyncio
import heapq
import random
from contextlib import suppress
from typing import Any, Final

import aiohttp
import msgspec
from dra_extender.scheduling.ports.cluster import ClusterError
from dra_extender.simulator.apiserver.objects import Json, Key, StoredKind, key_of, part
from dra_extender.simulator.apiserver.store import Change, Store
from dra_extender.simulator.scheduler.extender_client import ExtenderClient, ExtenderFailure
from dra_extender.simulator.scheduler.in_tree import InTreeFilters

from tests.simulation.loop import SimulationLoop
from tests.simulation.views import View

SCHEDULER_NAME: Final = "dra-extender-scheduler"
_HTTP_SECONDS: Final = 5.0
"""httpTimeout of the shipped configuration for every verb but bind."""
_BACKOFF_SECONDS, _LONGEST_BACKOFF = 1.0, 10.0
_FLUSH_SECONDS, _UNSCHEDULABLE_SECONDS = 30.0, 300.0
_WAKING: Final = (StoredKind.CLAIM, StoredKind.CLASS, StoredKind.NODE, StoredKind.POD_GROUP)
"""Kinds whose changes requeue pods that an extender rejected; slices and taint rules do not."""


class HttpTransport:
    """Calls of the extender over HTTP, as Go's client makes them: connections are kept, one that broke is an error."""

    def __init__(self, url: str, bind_seconds: float) -> None:
        self._url = url
        self._seconds = {"bind": bind_seconds}
        self._session: aiohttp.ClientSession | None = None

    async def post(self, verb: str, body: bytes) -> tuple[int, bytes]:
        """POST to this verb.  Raises OSError when there is no answer."""
        if self._session is None:
            self._session = aiohttp.ClientSession(trust_env=False)
        headers = {"Content-Type": "application/json"}
        limit = aiohttp.ClientTimeout(total=self._seconds.get(verb, _HTTP_SECONDS))
        try:
            async with self._session.post(f"{self._url}/{verb}", data=body, headers=headers, timeout=limit) as answer:
                return answer.status, await answer.read()
        except (aiohttp.ClientError, TimeoutError) as problem:
            raise OSError(f"{type(problem).__name__}: {problem}") from problem


class _Queued(msgspec.Struct):
    """A pod that is not bound: how often it was tried, and since when it has waited."""

    key: Key
    uid: str
    attempts: int = 0
    since: float = 0.0
    backs_off_until: float = 0.0
    moved: bool = False


class Scheduler:
    """Schedules pods of SCHEDULER_NAME through the extender at a URL."""

    def __init__(self, loop: SimulationLoop, store: Store, view: View, url: str, bind_seconds: float) -> None:
        self._loop = loop
        self._store = store
        self._view = view
        self._in_tree = InTreeFilters(view.all, classes_serve=True)
        self._extender = ExtenderClient(HttpTransport(url, bind_seconds))
        self._random = random.Random(f"scheduler {loop.random.random()}")
        self._active: list[tuple[int, float, int, str]] = []
        self._pods: dict[str, _Queued] = {}
        self._in_flight: dict[str, _Queued] = {}
        self._unschedulable: dict[str, _Queued] = {}
        self._changed = asyncio.Event()
        self._bindings: set[asyncio.Task[None]] = set()
        self.attempts = 0
        for pod in view.all(StoredKind.POD):
            self._saw_pod(None, pod)
        view.subscribe(self._saw)

    async def run(self) -> None:
        """Schedule, one pod after the other, for ever."""
        self._flush()
        while True:
            while not self._active:
                self._changed.clear()
                await self._changed.wait()
            uid = heapq.heappop(self._active)[-1]
            queued = self._pods.get(uid)
            if queued is not None and uid not in self._in_flight and uid not in self._unschedulable:
                await self._schedule(queued)

    async def _schedule(self, queued: _Queued) -> None:
        pod = self._view.find(queued.key)
        if pod is None or not _is_pending(pod) or pod["metadata"]["uid"] != queued.uid:
            self._pods.pop(queued.uid, None)
            return
        self.attempts += 1
        queued.attempts += 1
        queued.moved = False
        self._in_flight[queued.uid] = queued
        try:
            node, why = await self._choose(pod)
        except ExtenderFailure as failure:
            self._failed(queued, pod, str(failure))
            return
        if node is None:
            self._rejected(queued, pod, why)
            return
        self._view.assume(pod, node)
        task = asyncio.get_running_loop().create_task(self._bind(queued, pod, node))
        self._bindings.add(task)
        task.add_done_callback(self._bindings.discard)

    async def _choose(self, pod: Json) -> tuple[str | None, str]:
        fitting, reasons = self._in_tree.judge(pod)
        nominated = part(pod, "status").get("nominatedNodeName")
        if nominated in fitting:
            answer = await self._extender.filter(pod, [str(nominated)])
            if answer.nodes:
                return str(nominated), ""
        if fitting:
            answer = await self._extender.filter(pod, fitting)
            fitting = list(answer.nodes)
            why = "; ".join(sorted(set(answer.reasons.values())))
        else:
            why = "; ".join(sorted({text for texts in reasons.values() for text in texts}))
        if len(fitting) < 2:
            return (fitting[0], "") if fitting else (None, why)
        scores = await self._extender.prioritize(pod, fitting)
        best = max(scores.values())
        return self._random.choice([node for node in fitting if scores[node] == best]), ""

    async def _bind(self, queued: _Queued, pod: Json, node: str) -> None:
        try:
            await self._extender.bind(pod, node)
        except ExtenderFailure as failure:
            self._view.forget(pod)
            self._failed(queued, pod, str(failure))
        else:
            self._in_flight.pop(queued.uid, None)
            self._pods.pop(queued.uid, None)

    def _rejected(self, queued: _Queued, pod: Json, why: str) -> None:
        """Park it until something happens that may help; what has happened meanwhile counts."""
        self._in_flight.pop(queued.uid, None)
        queued.since = self._loop.time()
        self._back_off(queued)
        if queued.uid in self._pods:
            self._unschedulable[queued.uid] = queued
            if queued.moved:
                self._move(queued)
        self._report(pod, "Unschedulable", why)

    def _failed(self, queued: _Queued, pod: Json, why: str) -> None:
        """Try it again after its backoff."""
        self._in_flight.pop(queued.uid, None)
        self._back_off(queued)
        if queued.uid in self._pods:
            self._loop.call_at(queued.backs_off_until, self._activate, queued)
        self._report(pod, "SchedulerError", why)

    def _back_off(self, queued: _Queued) -> None:
        seconds = min(_BACKOFF_SECONDS * 2.0 ** min(queued.attempts - 1, 10), _LONGEST_BACKOFF)
        queued.backs_off_until = self._loop.time() + seconds

    def _move(self, queued: _Queued) -> None:
        """Take it out of the unschedulable pods; it is active once its backoff is over."""
        if self._unschedulable.pop(queued.uid, None) is not None:
            self._loop.call_at(max(queued.backs_off_until, self._loop.time()), self._activate, queued)

    def _activate(self, queued: _Queued) -> None:
        pod = self._view.find(queued.key)
        if pod is not None and queued.uid in self._pods:
            place = (-(pod["spec"].get("priority") or 0), self._loop.time(), self._loop.number(), queued.uid)
            heapq.heappush(self._active, place)
            self._changed.set()

    def _flush(self) -> None:
        for queued in list(self._unschedulable.values()):
            if self._loop.time() - queued.since >= _UNSCHEDULABLE_SECONDS:
                self._move(queued)
        self._loop.call_later(_FLUSH_SECONDS, self._flush)

    def _report(self, pod: Json, reason: str, message: str) -> None:
        condition = {"type": "PodScheduled", "status": "False", "reason": reason, "message": message}
        with suppress(ClusterError):
            self._store.edit_unchecked(
                key_of(StoredKind.POD, pod), lambda stored: _set_condition(stored, pod, condition)
            )

    def _saw(self, change: Change, before: Json | None, after: Json | None) -> None:
        kind = change.key.kind
        if kind is StoredKind.POD:
            self._saw_pod(before, after)
        if kind in _WAKING or (kind is StoredKind.POD and part(after or before or {}, "spec").get("nodeName")):
            for queued in list(self._unschedulable.values()):
                self._move(queued)
            for queued in self._in_flight.values():
                queued.moved = True

    def _saw_pod(self, before: Json | None, after: Json | None) -> None:
        if before is not None and (after is None or before["metadata"]["uid"] != after["metadata"]["uid"]):
            self._drop(before["metadata"]["uid"])
        if after is None:
            return
        uid = after["metadata"]["uid"]
        if not _is_pending(after):
            self._drop(uid)
        elif uid not in self._pods:
            queued = self._pods[uid] = _Queued(key_of(StoredKind.POD, after), uid, since=self._loop.time())
            self._activate(queued)
        elif before is None or _scheduling_state(before) != _scheduling_state(after):
            self._move(self._pods[uid])

    def _drop(self, uid: str) -> None:
        self._pods.pop(uid, None)
        self._unschedulable.pop(uid, None)


def _is_pending(pod: Json) -> bool:
    spec = pod["spec"]
    return (
        spec.get("schedulerName") == SCHEDULER_NAME
        and not spec.get("nodeName")
        and not spec.get("schedulingGates")
        and "deletionTimestamp" not in pod["metadata"]
        and part(pod, "status").get("phase") not in ("Succeeded", "Failed")
    )


def _scheduling_state(pod: Json) -> Any:
    """The parts of a pod whose change has it tried again."""
    status = {
        name: value for name, value in part(pod, "status").items() if name not in ("nominatedNodeName", "conditions")
    }
    return pod["metadata"].get("labels"), pod["spec"], status


def _set_condition(stored: Json, pod: Json, condition: Json) -> None:
    if stored["metadata"]["uid"] == pod["metadata"]["uid"] and not stored["spec"].get("nodeName"):
        status = stored.setdefault("status", {})
        others = [each for each in status.get("conditions") or [] if each.get("type") != "PodScheduled"]
        status["conditions"] = [*others, condition]
