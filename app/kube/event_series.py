from collections import OrderedDict
from dataclasses import dataclass

from app.kube.timestamps import micro_time
from app.model.pod import Pod

NOTE_LIMIT = 1024
_REASON_LIMIT = 128
_ELLIPSIS = "…".encode()


@dataclass(slots=True)
class Series:
    """One text about one pod, and how often it was said.  Times are wall clock seconds; `name` is that of the Event object."""

    pod: Pod
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
    def key(self) -> tuple[str, str, str, str]:
        """What makes two Events the same."""
        return (self.pod.uid, self.kind, self.reason, self.note)

    def as_new(self, controller: str, instance: str) -> dict[str, object]:
        """The Event object (events.k8s.io/v1) to create."""
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
        """The merge patch that stores the count of a series."""
        return {"series": {"count": self.count, "lastObservedTime": micro_time(self.last)}}


class RecentSeries:
    """The texts said lately: a text that comes again within `window` seconds of the last time continues its series.

    Holds at most `capacity`; the one unheard for longest is forgotten.
    """

    def __init__(self, window: float, capacity: int) -> None:
        self._window = window
        self._capacity = capacity
        self._number = 0
        self._series: OrderedDict[tuple[str, str, str, str], Series] = OrderedDict()

    def said(self, pod: Pod, kind: str, reason: str, message: str, now: float) -> Series:
        """The series of this text, counted once more, or begun."""
        reason, note = reason[:_REASON_LIMIT], shorten(message)
        known = self._series.get((pod.uid, kind, reason, note))
        if known is not None and now - known.last <= self._window:
            known.count += 1
            known.last = now
            self._series.move_to_end(known.key)
            return known
        self._number += 1
        # As client-go names Events; the number keeps apart what one clock tick cannot.
        name = f"{pod.name[:220].rstrip('-.')}.{int(now * 1e6):x}.{self._number:x}"
        made = Series(pod, kind, reason, note, name, first=now, last=now)
        self._series[made.key] = made
        self._series.move_to_end(made.key)
        if len(self._series) > self._capacity:
            self._series.popitem(last=False)
        return made

    def forget(self, series: Series) -> None:
        """The next same text begins anew."""
        if self._series.get(series.key) is series:
            del self._series[series.key]


def shorten(message: str) -> str:
    """The text, at most 1024 bytes long in UTF-8, which is what the API accepts; never cut inside a character."""
    data = message.encode(errors="replace")
    if len(data) <= NOTE_LIMIT:
        return data.decode()
    return data[: NOTE_LIMIT - len(_ELLIPSIS)].decode(errors="ignore") + _ELLIPSIS.decode()
