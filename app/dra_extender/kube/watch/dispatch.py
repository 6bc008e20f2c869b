"""The way from an object of a watch to its sink: each version once, and no object stops the others."""

from collections.abc import Set as AbstractSet
from sys import intern

import msgspec
import structlog

from dra_extender.kube.client.errors import cut
from dra_extender.ledger.sinks import EventSink
from dra_extender.model.api_json import ModelError, decode_any
from dra_extender.model.metadata import IdentifiedObject, ObjectIdentity
from dra_extender.telemetry.observer import Observer

_LOG = structlog.get_logger(__name__)
# Messages about unreadable objects are kept for `/readyz`; beyond this many, only their number is.
_MOST_MESSAGES = 100

Key = tuple[str, str]
"""(namespace, name) of an object; the namespace may be empty."""


_HEAD = msgspec.json.Decoder(IdentifiedObject)


def read_meta(data: bytes) -> ObjectIdentity | None:
    """Return the identity of the object in `data`; None if it cannot be read."""
    try:
        return decode_any(_HEAD, data).metadata
    except Exception:  # noqa: BLE001 - whatever one object does to the decoder must not stop the others
        return None


class EventDispatcher:
    """Calls a sink for each object of one kind that is new to it.

    It keeps (resourceVersion, UID) of each delivered object and nothing else.  No object can stop it: one that cannot be read is
    counted, logged and named in `unreadable`.
    """

    def __init__(self, kind: str, sink: EventSink, observer: Observer) -> None:
        self._kind = kind
        self._sink = sink
        self._observer = observer
        self._delivered: dict[Key, tuple[str, str]] = {}
        self._unreadable: dict[Key, str] = {}
        self._nameless = 0

    def __len__(self) -> int:
        """Return the number of delivered objects that still exist."""
        return len(self._delivered)

    def deliver(self, meta: ObjectIdentity | None, data: bytes) -> Key | None:
        """Deliver an object unless this version of it was delivered before.  Returns its key, None if it has no name."""
        if meta is None or not meta.name:
            self._pass_over(None, "an object without a readable name")
            return None
        key = (intern(meta.namespace), meta.name)
        version = (meta.resource_version, meta.uid)
        before = self._delivered.get(key)
        if before == version:
            return key
        if before is not None and before[1] != meta.uid:
            self.vanished(key)
        self._delivered[key] = version
        try:
            self._sink.changed(data)
        except ModelError as problem:
            self._pass_over(key, str(problem))
        except Exception as problem:  # noqa: BLE001 - a fault in the sink must not cost all other objects
            _LOG.exception("object was not delivered", kind=self._kind, namespace=key[0], name=key[1])
            self._pass_over(key, f"{type(problem).__name__}: {problem}")
        else:
            self._unreadable.pop(key, None)
        return key

    def removed(self, meta: ObjectIdentity | None) -> None:
        if meta is None or not meta.name:
            self._pass_over(None, "a deleted object without a readable name")
        else:
            self.vanished((meta.namespace, meta.name))

    def vanished(self, key: Key) -> None:
        """Deliver the deletion of an object if the sink knows the object."""
        self._unreadable.pop(key, None)
        delivered = self._delivered.get(key)
        if delivered is None:
            return
        try:
            self._sink.deleted(key[0], key[1], delivered[1])
        except Exception as problem:  # noqa: BLE001 - as above
            _LOG.exception("deletion was not delivered", kind=self._kind, namespace=key[0], name=key[1])
            # It stays known, so that the next list tries again.
            self._pass_over(key, f"its deletion could not be taken in: {type(problem).__name__}: {problem}")
        else:
            del self._delivered[key]

    def missing_from(self, present: AbstractSet[Key]) -> list[Key]:
        return [key for key in self._delivered if key not in present]

    def begin_list(self) -> None:
        try:
            self._sink.listing()
        except Exception:  # noqa: BLE001 - as above
            _LOG.exception("beginning of a list was not delivered", kind=self._kind)

    def complete(self) -> None:
        """Tell the sink that everything that exists has been delivered."""
        self._nameless = 0
        try:
            self._sink.synced()
        except Exception:  # noqa: BLE001 - as above
            _LOG.exception("end of a list was not delivered", kind=self._kind)

    def unreadable(self) -> str | None:
        """Return a sentence about the objects that cannot be read at present; None if there are none."""
        count = len(self._unreadable) + self._nameless
        if not count:
            return None
        last = next(reversed(self._unreadable.items()), None)
        example = f", such as {'/'.join(filter(None, last[0]))}: {last[1]}" if last else ""
        return f"{count} of the {self._kind} cannot be read{example}"

    def pass_over_line(self) -> None:
        """Count a line of a watch that is no event."""
        self._pass_over(None, "a line of a watch is no event")

    def _pass_over(self, key: Key | None, problem: str) -> None:
        self._observer.unreadable(self._kind)
        _LOG.warning("unreadable object skipped", kind=self._kind, object=key, problem=cut(problem))
        if key is None or (len(self._unreadable) >= _MOST_MESSAGES and key not in self._unreadable):
            self._nameless += 1
        else:
            self._unreadable[key] = cut(problem)
