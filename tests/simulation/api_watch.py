"""Lists and watches: the history of the store, pages that are consistent, streams of events."""

import base64
import re
from asyncio import AbstractEventLoop, TimerHandle
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

import msgspec
from dra_extender.simulator.apiserver.objects import Json, Key, StoredKind
from dra_extender.simulator.apiserver.store import Change, Store, WatchEventType

from tests.simulation.api_requests import ApiRequest, StatusError, bad_request
from tests.simulation.http_server import HttpConnection

HISTORY: Final = 20_000
BOOKMARK_SECONDS: Final = 60.0
_BEFORE_THE_END: Final = 2.0
_DEFAULT_SECONDS: Final = 1800.0
_MOST_WAITING: Final = 1000
"""Events for a watcher that does not read; then the server ends its watch."""
_FIELDS: Final[dict[StoredKind, tuple[str, ...]]] = {
    StoredKind.POD: (
        "spec.nodeName",
        "spec.schedulerName",
        "spec.restartPolicy",
        "status.phase",
        "status.nominatedNodeName",
    ),
    StoredKind.SLICE: ("spec.nodeName", "spec.driver"),
    StoredKind.EVENT: (
        "type",
        "reason",
        "source",
        "reportingController",
        "regarding.kind",
        "regarding.name",
        "regarding.uid",
    ),
}
_ELSEWHERE: Final = {"source": "source.component"}
"""Where the value of a field is that selectors name otherwise."""
_TERM: Final = re.compile(r"\s*(!?)([\w./-]+)\s*(?:(=|==|!=)\s*([\w./-]*)|(in|notin)\s*\(([^)]*)\))?\s*$")

Matches = Callable[[bytes | None], bool]


def matcher(request: ApiRequest) -> Matches | None:
    """Whether an object is selected by the labels and fields of a request; None if all are.

    Raises:
        StatusError: 400, for a selector that the kind does not have.
    """
    kind, query = request.kind, request.http.query
    labels, fields = query.get("labelSelector", ""), query.get("fieldSelector", "")
    if not labels and not fields:
        return None
    assert kind is not None
    by_label = [_term(term) for term in re.split(r",(?![^(]*\))", labels) if term]
    by_field = [_term(term) for term in fields.split(",") if term]
    known = ("metadata.name", "metadata.namespace", *_FIELDS.get(kind, ()))
    for name, *_ in by_field:
        if name not in known:
            raise bad_request(f"field label not supported: {name}")

    def matches(data: bytes | None) -> bool:
        if data is None:
            return False
        thing = msgspec.json.decode(data)
        found = thing["metadata"].get("labels") or {}
        return all(_holds(term, found.get(term[0])) for term in by_label) and all(
            _holds(term, str(_at(thing, _ELSEWHERE.get(term[0], term[0])) or "")) for term in by_field
        )

    return matches


def _term(text: str) -> tuple[str, str, tuple[str, ...]]:
    """Name, operator and values of a part of a selector."""
    found = _TERM.match(text)
    if found is None:
        raise bad_request(f"unable to parse requirement: {text!r}")
    absent, name, operator, value, of_set, values = found.groups()
    if of_set:
        return name, of_set, tuple(each.strip() for each in values.split(","))
    if operator:
        return name, "notin" if operator == "!=" else "in", (value,)
    return name, "absent" if absent else "exists", ()


def _holds(term: tuple[str, str, tuple[str, ...]], value: str | None) -> bool:
    _, operator, values = term
    match operator:
        case "in":
            return value in values
        case "notin":
            return value not in values
        case "exists":
            return value is not None
    return value is None


def _at(thing: Json, path: str) -> Any:
    for step in path.split("."):
        thing = thing.get(step) or {}
    return thing


class _Token(NamedTuple):
    """Where a list goes on: the version that it shows, and the last object of the page before."""

    version: int
    after: str


class History:
    """What was written lately, in order.  Versions up to `compacted` are forgotten; `last` is the version of each kind."""

    def __init__(self, store: Store) -> None:
        self.compacted = 0
        self.last: dict[StoredKind, int] = {}
        self._store = store
        self._changes: deque[Change] = deque()
        store.subscribe(self._note)

    def compact(self, version: int | None = None) -> None:
        """Forget the changes up to a version, by default all."""
        self.compacted = self._store.version if version is None else version
        while self._changes and self._changes[0].version <= self.compacted:
            self._changes.popleft()

    def since(self, version: int) -> Iterator[Change]:
        """The changes after a version, oldest first."""
        if self._changes and version < self._changes[-1].version:
            yield from (change for change in list(self._changes) if change.version > version)

    def state(self, kind: StoredKind, version: int) -> dict[Key, bytes]:
        """The objects of a kind as they were at a version that is not forgotten."""
        found = self._store.keyed(kind)
        for change in reversed(list(self.since(version))):
            if change.key.kind is not kind:
                continue
            if change.before is None:
                found.pop(change.key, None)
            else:
                found[change.key] = change.before
        return found

    def page(self, request: ApiRequest) -> bytes:
        """The list, or the page of it, that is asked for.

        Raises:
            StatusError: 410 when the list goes on from a version that is forgotten, 504 for one that is not reached yet.
        """
        query, kind = request.http.query, request.kind
        assert kind is not None
        limit, matches = int(query.get("limit") or 0), matcher(request)
        token = _read_token(query["continue"]) if query.get("continue") else None
        version = self._version(query, token)
        objects = self.state(kind, version)
        named = sorted(
            (f"{key.namespace}/{key.name}", data)
            for key, data in objects.items()
            if request.namespace in ("", key.namespace) and (matches is None or matches(data))
        )
        begin = bisect_right(named, token.after, key=lambda each: each[0]) if token else 0
        end = len(named) if not limit else min(len(named), begin + limit)
        metadata: Json = {"resourceVersion": str(version)}
        if end < len(named):
            metadata["continue"] = _written_token(_Token(version, named[end - 1][0]))
            if matches is None:
                metadata["remainingItemCount"] = len(named) - end
        return msgspec.json.encode(
            {
                "kind": f"{kind.singular}List",
                "apiVersion": request.group_version,
                "metadata": metadata,
                "items": [_item(data) for _, data in named[begin:end]],
            }
        )

    def _version(self, query: dict[str, str], token: _Token | None) -> int:
        if token is not None:
            if token.version < self.compacted:
                fresh = _written_token(_Token(self._store.version, token.after))
                raise StatusError(
                    410,
                    "Expired",
                    "The provided continue parameter is too old to display a consistent list result. You can start a new list "
                    "without the continue parameter, or use the continue token in this response to retrieve the remainder "
                    "of the results.",
                    metadata={"continue": fresh},
                )
            return token.version
        asked, current = int(query.get("resourceVersion") or 0), self._store.version
        if asked > current:
            raise StatusError(
                504,
                "Timeout",
                f"Too large resource version: {asked}, current: {current}",
                [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}],
                retry_after=1,
            )
        if query.get("resourceVersionMatch") == "Exact":
            if asked < self.compacted:
                raise expired(asked, self.compacted)
            return asked
        return current

    def _note(self, change: Change) -> None:
        self.last[change.key.kind] = change.version
        self._changes.append(change)
        if len(self._changes) > HISTORY:
            self.compacted = self._changes.popleft().version


def _item(data: bytes) -> dict[str, msgspec.Raw]:
    """An object as lists have it: kind and version stand once, at the list."""
    found = msgspec.json.decode(data, type=dict[str, msgspec.Raw])
    del found["kind"], found["apiVersion"]
    return found


def _written_token(token: _Token) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode(token)).decode()


def _read_token(text: str) -> _Token:
    try:
        return msgspec.json.decode(base64.urlsafe_b64decode(text), type=_Token)
    except (ValueError, msgspec.MsgspecError) as problem:
        raise bad_request(f"continue key is not valid: {problem}") from problem


def expired(version: int, oldest: int) -> StatusError:
    """The refusal of a version that is forgotten."""
    return StatusError(410, "Expired", f"too old resource version: {version} ({oldest})")


class Watch:
    """One watch: what exists if it is to begin with that, then every change in the order of the writes, until its time is over."""

    def __init__(
        self, request: ApiRequest, connection: HttpConnection, store: Store, history: History, loop: AbstractEventLoop
    ) -> None:
        """Raises StatusError for a selector that the kind does not have."""
        assert request.kind is not None
        query = request.http.query
        self.kind = request.kind
        self.on_end: Callable[[], object] = lambda: None
        self._namespace = request.namespace
        self._matches = matcher(request)
        self._bookmarks = query.get("allowWatchBookmarks") in ("true", "1")
        self._initial = query.get("sendInitialEvents") in ("true", "1")
        self._asked = int(query.get("resourceVersion") or 0)
        self._begun_at = self._asked
        self._seconds = float(query.get("timeoutSeconds") or 0) or _DEFAULT_SECONDS
        self._group_version = request.group_version
        self._connection = connection
        self._store = store
        self._history = history
        self._loop = loop
        self._timers: list[TimerHandle] = []
        self._waiting: list[bytes] = []
        self._paused = False

    def begin(self) -> bool:
        """Send the head and what is known already; return whether the watch goes on."""
        self._connection.begin_stream()
        self._connection.on_resume = self._flush
        self._begun_at = max(self._asked, self._history.last.get(self.kind, 0))
        if self._asked and not self._initial:
            if self._asked < self._history.compacted:
                self._send("ERROR", msgspec.json.encode(expired(self._asked, self._history.compacted).body))
                self._connection.end_stream()
                return False
            for change in self._history.since(self._asked):
                if change.key.kind is self.kind:
                    self.tell(change)
        else:
            self._tell_all()
        end = self._loop.time() + self._seconds
        self._timers = [self._loop.call_at(end, self.end)]
        if self._bookmarks:
            self._plan_bookmark(end)
        return True

    def tell(self, change: Change) -> None:
        """Send an event about a change of its kind that is newer than the version asked for, if the watch is about the object."""
        if self._namespace not in ("", change.key.namespace):
            return
        if change.version <= self._asked:
            return
        verb, data = change.verb, change.data
        if self._matches is not None:
            was, matches = self._matches(change.before), self._matches(data) and verb is not WatchEventType.DELETED
            if not was and not matches:
                return
            if not matches and verb is not WatchEventType.DELETED:
                # The object goes out of sight: it is shown as it was, in the new version.
                data = _at_version(change.before or data, change.version)
            verb = (WatchEventType.MODIFIED if was else WatchEventType.ADDED) if matches else WatchEventType.DELETED
        self._send(verb, data)

    def hold(self) -> None:
        """Keep events back until `release`, as a slow network or server does."""
        self._paused = True

    def release(self) -> None:
        """Send what was kept back."""
        self._paused = False
        self._flush()

    def end(self) -> None:
        self.forget()
        self.release()
        self._connection.end_stream()

    def forget(self) -> None:
        """Plan nothing any more, and be told nothing."""
        for timer in self._timers:
            timer.cancel()
        self.on_end()

    def _tell_all(self) -> None:
        for _, data in sorted(self._store.keyed(self.kind).items()):
            change = Change(WatchEventType.ADDED, _key(self.kind, data), "", self._store.version, data)
            if self._matches is None or self._matches(data):
                self.tell_initial(change)
        self._asked = self._store.version
        if self._initial:
            self._bookmark({"k8s.io/initial-events-end": "true"})

    def tell_initial(self, change: Change) -> None:
        """Send an object that exists when the watch begins."""
        if self._namespace in ("", change.key.namespace):
            self._send(change.verb, change.data)

    def _plan_bookmark(self, end: float) -> None:
        now = self._loop.time()
        last = end - _BEFORE_THE_END
        when = min(now + BOOKMARK_SECONDS, last) if now < last else None
        if when is not None:
            self._timers[1:] = [self._loop.call_at(when, self._bookmark_again, end)]

    def _bookmark_again(self, end: float) -> None:
        self._bookmark({})
        self._plan_bookmark(end)

    def _bookmark(self, annotations: dict[str, str]) -> None:
        version = self._history.last.get(self.kind, 0)
        # A kind that is quiet gets no bookmarks.
        if version <= self._begun_at and not annotations:
            return
        metadata: Json = {"resourceVersion": str(max(version, self._begun_at)), "creationTimestamp": None}
        if annotations:
            metadata["annotations"] = annotations
        thing = {"kind": self.kind.singular, "apiVersion": self._group_version, "metadata": metadata}
        self._send("BOOKMARK", msgspec.json.encode(thing))

    def _send(self, event: str, data: bytes) -> None:
        line = b'{"type":"%b","object":%b}\n' % (event.encode(), data)
        self._waiting.append(line)
        self._flush()
        if len(self._waiting) > _MOST_WAITING:
            self._connection.abort()

    def _flush(self) -> None:
        """Send what waits, unless the watch is paused or the client does not read."""
        if self._paused or self._connection.congested:
            return
        waiting, self._waiting = self._waiting, []
        for line in waiting:
            self._connection.send_piece(line)


def _key(kind: StoredKind, data: bytes) -> Key:
    metadata = msgspec.json.decode(data)["metadata"]
    return Key(kind, metadata.get("namespace", ""), metadata["name"])


def _at_version(data: bytes, version: int) -> bytes:
    thing = msgspec.json.decode(data)
    thing["metadata"]["resourceVersion"] = str(version)
    return msgspec.json.encode(thing)
