"""Events on pods through events.k8s.io/v1: series of one text, limits by pod and namespace, and their writer."""

import asyncio
from collections import OrderedDict, deque
from dataclasses import dataclass
from http import HTTPStatus
from typing import NamedTuple

import msgspec
import structlog

from dra_extender.kube.client.errors import ApiCallError
from dra_extender.kube.client.objects import EVENTS, ApiObjects, micro_time
from dra_extender.kube.client.settings import KubeSettings
from dra_extender.kube.client.transport import JSON, MERGE_PATCH, ApiTransport
from dra_extender.model.pod import Pod
from dra_extender.runtime.caches import LruCache
from dra_extender.runtime.token_bucket import TokenBucket, TokenBuckets
from dra_extender.scheduling.ports.cluster import Clock, ClusterError, shorten
from dra_extender.telemetry.observer import Observer

SAME_SECONDS = 600.0
QUEUE = 1000
MOST_SERIES = 4096
MOST_SERIES_OF_NAMESPACE = 512
# Per pod: five at once, then one in half a minute.  Per namespace: fifty at once, then ten a second.  Over all namespaces: a
# hundred at once, then twenty-five a second, in equal shares for the namespaces that have something to write.
POD_BURST, POD_RATE = 5.0, 1 / 30
NAMESPACE_BURST, NAMESPACE_RATE = 50.0, 10.0
BURST, RATE = 100.0, 25.0
_REASON_LIMIT = 128

_LOG = structlog.get_logger(__name__)


class RegardingPod(NamedTuple):
    """The pod that an Event is about; the rest of the pod is not kept."""

    namespace: str
    name: str
    uid: str

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"


_Key = tuple[str, str, str, str]


@dataclass(slots=True)
class Series:
    """One text about one pod, and how often it was recorded.  Times are wall clock seconds; `name` is that of the Event object."""

    pod: RegardingPod
    kind: str
    reason: str
    note: str
    name: str
    first: float
    last: float
    count: int = 1
    stored: int = 0
    queued: bool = False

    @property
    def key(self) -> _Key:
        """Return what makes two Events the same."""
        return (self.pod.uid, self.kind, self.reason, self.note)

    def as_new(self, controller: str, instance: str) -> dict[str, object]:
        """Return the Event object (events.k8s.io/v1) to create."""
        event: dict[str, object] = {
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {"namespace": self.pod.namespace, "name": self.name},
            "eventTime": micro_time(self.first),
            "reportingController": controller,
            "reportingInstance": instance,
            "action": "Scheduling",
            "type": self.kind,
            "reason": self.reason,
            "note": self.note,
            "regarding": {
                "apiVersion": "v1",
                "kind": "Pod",
                "namespace": self.pod.namespace,
                "name": self.pod.name,
                "uid": self.pod.uid,
            },
        }
        return event | self.as_repeated() if self.count > 1 else event

    def as_repeated(self) -> dict[str, object]:
        """Return the merge patch that stores the count of a series."""
        return {"series": {"count": self.count, "lastObservedTime": micro_time(self.last)}}


class RecentSeries:
    """The recent texts: a text that is recorded again within `window` seconds of the last time continues its series.

    Holds at most `capacity`, and at most `of_namespace` of one namespace.  At a limit, the least recently recorded text of
    that namespace, or of the namespace with most texts, is dropped.
    """

    def __init__(self, window: float, capacity: int, of_namespace: int) -> None:
        self._window = window
        self._capacity = capacity
        self._of_namespace = of_namespace
        self._number = 0
        self._size = 0
        self._namespaces: dict[str, LruCache[_Key, Series]] = {}

    def __len__(self) -> int:
        return self._size

    def record(self, pod: Pod, kind: str, reason: str, message: str, now: float) -> Series:
        """Return the series of this text: the known one with one more count, or a new one."""
        reason, note = reason[:_REASON_LIMIT], shorten(message)
        texts = self._namespaces.setdefault(
            pod.namespace, LruCache(self._of_namespace, on_evict=lambda _, series: self._removed(series.pod.namespace))
        )
        series = texts.get((pod.uid, kind, reason, note))
        if series is not None and now - series.last <= self._window:
            series.count += 1
            series.last = now
            texts.move_to_end(series.key)
            return series
        self._number += 1
        # As client-go names Events; the number keeps apart what one clock tick cannot.
        name = f"{pod.name[:220].rstrip('-.')}.{int(now * 1e6):x}.{self._number:x}"
        regarded = RegardingPod(pod.namespace, pod.name, pod.uid)
        new_series = Series(regarded, kind, reason, note, name, first=now, last=now)
        self._size += series is None
        texts[new_series.key] = new_series
        if self._size > self._capacity:
            max(self._namespaces.values(), key=len).evict()
        return new_series

    def forget(self, series: Series) -> None:
        """Begin a new series with the next record of this text."""
        texts = self._namespaces.get(series.pod.namespace)
        if texts is not None and texts.get(series.key) is series:
            del texts[series.key]
            self._removed(series.pod.namespace)

    def _removed(self, namespace: str) -> None:
        self._size -= 1
        if not self._namespaces[namespace]:
            del self._namespaces[namespace]


class SeriesQueue(asyncio.Queue[Series]):
    """A queue with a lane for each namespace: the reader takes one series of each lane in turn."""

    def _init(self, maxsize: int) -> None:  # noqa: ARG002 - the hook's signature
        self._lanes: OrderedDict[str, deque[Series]] = OrderedDict()

    def qsize(self) -> int:
        return sum(map(len, self._lanes.values()))

    def empty(self) -> bool:
        return not self._lanes

    def _put(self, series: Series) -> None:
        self._lanes.setdefault(series.pod.namespace, deque()).append(series)

    def _get(self) -> Series:
        namespace, lane = next(iter(self._lanes.items()))
        series = lane.popleft()
        if lane:
            self._lanes.move_to_end(namespace)
        else:
            del self._lanes[namespace]
        return series

    def put_or_drop(self, series: Series) -> Series | None:
        """Append the series to its lane; return the series that was dropped for it, which may be the same one.

        If the queue is full, the longest lane loses its newest series, so that a lane that is shorter than an equal share loses
        nothing.
        """
        lost = None
        if self.full():
            longest = max(self._lanes.values(), key=len)
            if len(longest) <= len(self._lanes.get(series.pod.namespace, ())) + 1:
                return series
            lost = longest.pop()
            self.task_done()
        self.put_nowait(series)
        return lost


class KubeEvents:
    """Records Events on pods (`dra_extender.scheduling.ports.cluster.Events`) through events.k8s.io/v1, in the background.

    The same text about the same pod within ten minutes is one object with a count.  Each pod and each namespace has a rate limit:
    Events over it are dropped, and a dropped repetition is counted with the next one that passes.  Events over the limit of all
    namespaces together wait in a queue that serves namespaces in turn, so that no namespace can starve another.
    """

    def __init__(self, transport: ApiTransport, settings: KubeSettings, clock: Clock, observer: Observer) -> None:
        self.last_error: str | None = None
        self._api = ApiObjects(transport, settings)
        self._settings = settings
        self._clock = clock
        self._observer = observer
        self._recent = RecentSeries(SAME_SECONDS, MOST_SERIES, MOST_SERIES_OF_NAMESPACE)
        self._pods = TokenBuckets(POD_RATE, POD_BURST, MOST_SERIES)
        self._namespaces = TokenBuckets(NAMESPACE_RATE, NAMESPACE_BURST, MOST_SERIES)
        self._all = TokenBucket(RATE, BURST, clock.monotonic())
        self._queue = SeriesQueue(QUEUE)

    def about_pod(self, pod: Pod, *, warning: bool, reason: str, message: str) -> None:
        """Record an Event on the pod; returns at once and never raises."""
        series = self._recent.record(pod, "Warning" if warning else "Normal", reason, message, self._clock.now())
        if series.queued:
            # Not written yet: the writer will find the new count.
            return
        now = self._clock.monotonic()
        if not (self._pods.take(pod.uid, now) and self._namespaces.take(pod.namespace, now)):
            self._observer.pod_event("limited")
            return
        series.queued = True
        lost = self._queue.put_or_drop(series)
        if lost is not None:
            lost.queued = False
            self._observer.pod_event("overflowed")

    async def keep_writing(self) -> None:
        """Write queued Events until cancelled; raise nothing else."""
        while True:
            series = await self._queue.get()
            try:
                while not self._all.take(now := self._clock.monotonic()):  # noqa: ASYNC110 - it waits for time, not for a state
                    await asyncio.sleep(self._all.wait(now))
                series.queued = False
                await self._write(series)
                self.last_error = None
            except (ApiCallError, ClusterError) as problem:
                self._failed(series, str(problem))
            except Exception as problem:  # noqa: BLE001 - a fault with one Event must not end all others
                self._failed(series, f"{type(problem).__name__}: {problem}")
            finally:
                self._queue.task_done()

    async def flush(self) -> None:
        """Return when what was recorded so far is written or given up; needs `keep_writing` to run."""
        await self._queue.join()

    async def _write(self, series: Series) -> None:
        """Store the count of the series: in the Event object that there is, else in a new one."""
        if series.stored:
            try:
                await self._send("patch", series, series.as_repeated(), MERGE_PATCH)
            except ApiCallError as failed:
                if failed.code != HTTPStatus.NOT_FOUND:
                    raise
                # Events expire after an hour; the series continues in a new object of the same name.
            else:
                self._observer.pod_event("repeated")
                return
        await self._send("create", series, series.as_new(self._settings.identity, self._settings.instance), JSON)
        self._observer.pod_event("written")

    async def _send(self, verb: str, series: Series, body: object, content_type: str) -> None:
        count = series.count
        data = msgspec.json.encode(body)
        await self._api.send(
            self._api.call(verb, EVENTS, series.pod.namespace, series.name, data, content_type=content_type)
        )
        series.stored = count

    def _failed(self, series: Series, problem: str) -> None:
        self._observer.pod_event("failed")
        if problem != self.last_error:
            _LOG.warning("Event was not written", pod=series.pod.key, problem=problem)
        self.last_error = problem
        self._recent.forget(series)
