from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from dra_extender.model.api_json import Value
from dra_extender.model.fields import Mark, Name, Sentence, Time, Word


class ObjectReference(Value, frozen=True):
    """The object that an Event is about."""

    kind: Word = ""
    namespace: Name = ""
    name: Name = ""
    uid: Name = ""


class EventSeries(Value, frozen=True):
    """How often an Event was repeated, and when last."""

    count: int = 0
    last_observed_time: Time | None = None


class EventSource(Value, frozen=True):
    """The reporter of an Event."""

    component: Name = ""


class EventMeta(Value, frozen=True):
    """`metadata` of an Event."""

    name: Name = ""
    namespace: Name = ""
    uid: Name = ""


class EventObject(Value, frozen=True):
    """An Event as the API server sends it."""

    unread: ClassVar[Mapping[str, Any]] = {"metadata": EventMeta, "type": Word}
    involved_object: ObjectReference = ObjectReference()
    reason: Word = ""
    message: Sentence = ""
    reporting_component: Name = ""
    source: EventSource = EventSource()
    count: Annotated[int, Mark.LEFT_OUT] = 0
    series: EventSeries | None = None
    event_time: Time | None = None
    first_timestamp: Time | None = None
    last_timestamp: Time | None = None
