"""Warning Events about objects, as far as they were read: what controllers and schedulers say of pods, claims and their owners."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Final

import msgspec

from dra_extender.model.api_json import ModelError, Value, decode
from dra_extender.model.metadata import seconds_of

FAILED_SCHEDULING: Final = "FailedScheduling"
"""The reason of the Events in which schedulers say why a pod is not placed."""
_LONGEST: Final = 2_048


class _ObjectReference(Value, frozen=True):
    kind: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""


class _Series(Value, frozen=True):
    count: int = 0
    last_observed_time: str | None = None


class _Source(Value, frozen=True):
    component: str = ""


class _WireEvent(Value, frozen=True):
    involved_object: _ObjectReference = _ObjectReference()
    reason: str = ""
    message: str = ""
    reporting_component: str = ""
    source: _Source = _Source()
    count: int = 0
    series: _Series | None = None
    event_time: str | None = None
    first_timestamp: str | None = None
    last_timestamp: str | None = None

    def event(self) -> "ObjectEvent":
        about, series = self.involved_object, self.series or _Series()
        times = (series.last_observed_time, self.last_timestamp, self.event_time, self.first_timestamp)
        return ObjectEvent(
            kind=about.kind,
            namespace=about.namespace,
            name=about.name,
            uid=about.uid,
            reason=self.reason,
            message=self.message[:_LONGEST].strip(),
            reporter=self.reporting_component or self.source.component,
            last=next((seconds for each in times if (seconds := seconds_of(each)) is not None), None),
        )


_DECODER: Final = msgspec.json.Decoder(_WireEvent)


class ObjectEvent(Value, frozen=True, rename=None):
    """What `reporter` said of an object, at last at `last` (seconds since the epoch)."""

    kind: str
    namespace: str
    name: str
    uid: str
    reason: str
    message: str = ""
    reporter: str = ""
    last: float | None = None


class ObjectEvents:
    """Events by the object that they are about."""

    def __init__(self, objects: Iterable[bytes]) -> None:
        """Read the Events (API JSON, core v1); those that cannot be read count as absent."""
        self._by_object: defaultdict[tuple[str, str, str], list[ObjectEvent]] = defaultdict(list)
        for data in objects:
            with suppress(ModelError):
                event = decode("Event", _DECODER, data).event()
                self._by_object[event.kind, event.namespace, event.name].append(event)

    def about(self, kind: str, namespace: str, name: str, uid: str = "") -> Sequence[ObjectEvent]:
        """Return the Events about an object, the newest first; with `uid`, none about an earlier object of the name."""
        known = self._by_object.get((kind, namespace, name), ())
        own = [event for event in known if not uid or event.uid in ("", uid)]
        return sorted(own, key=lambda event: -(event.last or 0.0))

    def reporters(self, reason: str) -> frozenset[str]:
        """Return who reported Events with this reason."""
        return frozenset(
            event.reporter for events in self._by_object.values() for event in events if event.reason == reason
        )
