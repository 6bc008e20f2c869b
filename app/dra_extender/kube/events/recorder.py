import asyncio

import msgspec
import structlog

from dra_extender.kube.client.errors import ApiCallError
from dra_extender.kube.client.objects import ApiObjects
from dra_extender.kube.client.observer import Observer
from dra_extender.kube.client.resources import EVENTS
from dra_extender.kube.client.settings import KubeSettings
from dra_extender.kube.client.transport import JSON, MERGE_PATCH, ApiTransport
from dra_extender.kube.events.fair_queue import FairQueue
from dra_extender.kube.events.series import RecentSeries, Series
from dra_extender.model.pod import Pod
from dra_extender.runtime.token_bucket import TokenBucket, TokenBuckets
from dra_extender.scheduling.ports.cluster import Clock, ClusterError

SAME_SECONDS = 600.0
QUEUE = 1000
MOST_SERIES = 4096
MOST_SERIES_OF_NAMESPACE = 512
# Per pod: five at once, then one in half a minute.  Per namespace: fifty at once, then ten a second.  Over all namespaces: a
# hundred at once, then twenty-five a second, in equal shares for the namespaces that have something to write.
POD_BURST, POD_RATE = 5.0, 1 / 30
NAMESPACE_BURST, NAMESPACE_RATE = 50.0, 10.0
BURST, RATE = 100.0, 25.0

_LOG = structlog.get_logger(__name__)
_NOT_FOUND = 404


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
        self._queue: FairQueue[Series] = FairQueue(QUEUE)

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
        lost = self._queue.put(pod.namespace, series)
        if lost is not None:
            lost.queued = False
            self._observer.pod_event("overflowed")

    async def run(self) -> None:
        """Write until cancelled; raises nothing else."""
        while True:
            series = await self._next()
            series.queued = False
            try:
                await self._write(series)
                self.last_error = None
            except (ApiCallError, ClusterError) as problem:
                self._failed(series, str(problem))
            except Exception as problem:  # noqa: BLE001 - a fault with one Event must not end all others
                self._failed(series, f"{type(problem).__name__}: {problem}")
            finally:
                self._queue.task_done()

    async def flush(self) -> None:
        """Return when what was recorded so far is written or given up; needs `run` beside it."""
        await self._queue.join()

    async def _next(self) -> Series:
        """Return the next Event, once the limit of all namespaces lets one pass."""
        await self._queue.filled()
        while not self._all.take(now := self._clock.monotonic()):  # noqa: ASYNC110 - it waits for time, not for a state
            await asyncio.sleep(self._all.wait(now))
        return await self._queue.get()

    async def _write(self, series: Series) -> None:
        """Store the count of the series: in the Event object that there is, else in a new one."""
        if series.stored:
            try:
                await self._send("patch", series, series.as_repeated(), MERGE_PATCH)
            except ApiCallError as failed:
                if failed.status is None or failed.status.code != _NOT_FOUND:
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
