from dataclasses import dataclass
from typing import NamedTuple

from dra_extender.kube.client.resources import micro_time
from dra_extender.model.pod import Pod
from dra_extender.runtime.caches import LruCache
from dra_extender.scheduling.ports.cluster import shorten

_REASON_LIMIT = 128


class RegardingPod(NamedTuple):
    """The pod that an Event is about; the rest of the pod is not kept."""

    namespace: str
    name: str
    uid: str

    @property
    def key(self) -> str:
        """namespace/name, for messages."""
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
        """What makes two Events the same."""
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
        texts = self._namespaces.setdefault(pod.namespace, LruCache(self._of_namespace, on_evict=self._evicted))
        known = texts.get((pod.uid, kind, reason, note))
        if known is not None and now - known.last <= self._window:
            known.count += 1
            known.last = now
            texts.move_to_end(known.key)
            return known
        self._number += 1
        # As client-go names Events; the number keeps apart what one clock tick cannot.
        name = f"{pod.name[:220].rstrip('-.')}.{int(now * 1e6):x}.{self._number:x}"
        regarded = RegardingPod(pod.namespace, pod.name, pod.uid)
        made = Series(regarded, kind, reason, note, name, first=now, last=now)
        self._size += known is None
        texts[made.key] = made
        if self._size > self._capacity:
            max(self._namespaces.values(), key=len).evict()
        return made

    def forget(self, series: Series) -> None:
        """Begin a new series with the next record of this text."""
        texts = self._namespaces.get(series.pod.namespace)
        if texts is not None and texts.get(series.key) is series:
            del texts[series.key]
            self._removed(series.pod.namespace)

    def _evicted(self, _: _Key, series: Series) -> None:
        self._removed(series.pod.namespace)

    def _removed(self, namespace: str) -> None:
        self._size -= 1
        if not self._namespaces[namespace]:
            del self._namespaces[namespace]
