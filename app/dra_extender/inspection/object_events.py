"""Warning Events about objects, as far as they were read: what controllers and schedulers say of pods, claims and their owners."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Final

import msgspec

from dra_extender.model.api_json import ModelError, Value, decode
from dra_extender.model.event import EventObject, EventSeries
from dra_extender.model.metadata import seconds_of

FAILED_SCHEDULING: Final = "FailedScheduling"
"""The reason of the Events in which schedulers say why a pod is not placed."""
_LONGEST: Final = 2_048


_DECODER: Final = msgspec.json.Decoder(EventObject)


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


def _object_event(event: EventObject) -> ObjectEvent:
    about, series = event.involved_object, event.series or EventSeries()
    times = (series.last_observed_time, event.last_timestamp, event.event_time, event.first_timestamp)
    return ObjectEvent(
        kind=about.kind,
        namespace=about.namespace,
        name=about.name,
        uid=about.uid,
        reason=event.reason,
        message=event.message[:_LONGEST].strip(),
        reporter=event.reporting_component or event.source.component,
        last=next((seconds for time in times if (seconds := seconds_of(time)) is not None), None),
    )


class ObjectEvents:
    """Events by the object that they are about."""

    def __init__(self, objects: Iterable[bytes]) -> None:
        """Read the Events (API JSON, core v1); those that cannot be read count as absent."""
        self._by_object: defaultdict[tuple[str, str, str], list[ObjectEvent]] = defaultdict(list)
        for data in objects:
            with suppress(ModelError):
                event = _object_event(decode("Event", _DECODER, data))
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
