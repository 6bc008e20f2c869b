"""List and watch of one kind, from the bytes of the API server to the ledger's sink.

`Reflector` lists, follows the watch, resumes and retries; `EventDispatcher` delivers each version of an object once.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from collections.abc import Set as AbstractSet
from contextlib import aclosing
from http import HTTPStatus
from sys import intern
from typing import Final, TypeVar

import msgspec
import structlog

from dra_extender.kube.client.backoff import Backoff, SleepAndJitter
from dra_extender.kube.client.errors import (
    ApiCallError,
    ApiStatus,
    RequestIntent,
    ResponseTooLongError,
    StreamSilentError,
    cut,
    read_status,
)
from dra_extender.kube.client.objects import ResourceKind
from dra_extender.kube.client.settings import KubeSettings
from dra_extender.kube.client.transport import ApiCall, ApiTransport
from dra_extender.ledger.sinks import EventSink
from dra_extender.model.api_json import ModelError, decode_any
from dra_extender.model.metadata import IdentifiedObject, ObjectIdentity, version_number
from dra_extender.runtime.supervision import UNREADY_AFTER
from dra_extender.scheduling.ports.cluster import Clock
from dra_extender.telemetry.observer import Observer

T = TypeVar("T")

PROMPT_SECONDS: Final = 2.0
"""The longest pause after a 403 at first: an API server that has just started loads its roles within seconds."""
_PROMPT_REFUSALS: Final = 30
FIRST_PAGE: Final = 16
PAGE_BYTES: Final = 4 * 2**20
"""The target size of a page.  Servers limit pages by objects only, so the number follows from the sizes of earlier objects."""
MOST_BYTES: Final = 8 * PAGE_BYTES
"""The limit for a page of several objects; a longer page is requested again with fewer objects."""
LONGEST_LINE: Final = 64 * 2**20
"""Bytes of one event of a watch."""
_GROWTH: Final = 4
_SHRINKING: Final = 16
_AT_ONCE: Final = 2**18
_GRACE_SECONDS: Final = 30.0
"""The server closes a watch after the requested time; we close it this much later."""
_MOST_MESSAGES: Final = 100
"""Messages about unreadable objects are kept for `/readyz`; beyond this many, only their number is."""

Key = tuple[str, str]
"""(namespace, name) of an object; the namespace may be empty."""

_LOG = structlog.get_logger(__name__)


class WatchEvent(msgspec.Struct, frozen=True, gc=False):
    """One event: ADDED, MODIFIED, DELETED, BOOKMARK, or ERROR with a Status; and the object as it was sent."""

    type: str
    object: msgspec.Raw


class _ListMeta(msgspec.Struct, frozen=True, gc=False):
    resource_version: str = msgspec.field(default="", name="resourceVersion")
    next_page: str | None = msgspec.field(default=None, name="continue")


class Page(msgspec.Struct, frozen=True, gc=False):
    """A page of a list: raw objects, in the server's order, and the version of the whole list."""

    metadata: _ListMeta = _ListMeta()
    items: list[msgspec.Raw] | None = None


_EVENT = msgspec.json.Decoder(WatchEvent)
_PAGE = msgspec.json.Decoder(Page)
_HEAD = msgspec.json.Decoder(IdentifiedObject)


class Reflector:
    """Keeps a sink in step with one kind: lists it, then follows its watch, until cancelled.

    The watch resumes from the last version seen.  When the server no longer knows that version, the kind is listed again and
    only the differences are delivered.  Every failure is retried with backoff.  Objects are delivered one at a time, with a turn
    of the event loop after each.  `refusals` counts the 403 responses since the last other outcome, `forbidden_since` is when
    (monotonic) the first of them came; `failures` counts the failures of any kind since the last contact.
    """

    def __init__(
        self,
        transport: ApiTransport,
        kind: ResourceKind,
        sink: EventSink,
        settings: KubeSettings,
        clock: Clock,
        *,
        observer: Observer,
        chance: SleepAndJitter | None = None,
        namespace: str | None = None,
    ) -> None:
        """`namespace`: of a kind with namespaces, the objects of this one; None: of all."""
        self.kind = kind
        self.synced = asyncio.Event()
        self.last_contact = clock.monotonic()
        self.last_error: str | None = None
        self.refusals = 0
        self.failures = 0
        self.forbidden_since: float | None = None
        self._transport = transport
        self._path = kind.path(namespace)
        self._settings = settings
        self._clock = clock
        self._observer = observer
        self._chance = chance or SleepAndJitter()
        self._backoff = Backoff(self._chance.number)
        self._dispatcher = EventDispatcher(kind.plural, sink, observer)
        self._version = ""
        self._asked = False
        self._stumbles = 0
        self._watching: asyncio.Timeout | None = None

    async def keep_watching(self) -> None:
        """List and watch until cancelled; raise nothing else."""
        while True:
            try:
                while self._asked or not self._version:
                    await self._list()
                await self._watch()
            except ApiCallError as failed:
                if failed.gone:
                    self._version = ""
                    self._observer.relisting(self.kind.plural, "gone")
                self._count(failed)
                await self._pause(failed.kind_of_failure, str(failed), failed.retry_after)
            except Exception as problem:  # noqa: BLE001 - ending would leave the ledger in the past, unnoticed
                _LOG.exception("reflector failed", kind=self.kind.plural)
                self._stumbles += 1
                if self._stumbles >= UNREADY_AFTER:
                    # The same version has failed so often that only a new list can help.
                    self._version = ""
                self._observer.background_failed(f"watch-{self.kind.plural}")
                await self._pause("internal", f"{type(problem).__name__}: {problem}")

    def relist(self) -> None:
        """List again at once; `synced` is set again when a list that began after this call has been delivered."""
        self.synced.clear()
        self._asked = True
        self._observer.relisting(self.kind.plural, "asked")
        if self._watching is not None:
            self._watching.reschedule(0)

    def health(self) -> str | None:
        """Return what is wrong; None if the objects are listed and the server is in contact."""
        last_error = f" ({self.last_error})" if self.last_error else ""
        if not self.synced.is_set():
            return f"{self.kind.plural} are not listed yet{last_error}"
        if self._stumbles >= UNREADY_AFTER:
            return f"{self.kind.plural} cannot be followed: {self._stumbles} failures in a row{last_error}"
        silent = self._clock.monotonic() - self.last_contact
        if silent > self._settings.watch.silence:
            return f"nothing was heard of {self.kind.plural} for {silent:.0f} s{last_error}"
        return None

    def notes(self) -> Mapping[str, str]:
        """Return the objects that cannot be read."""
        sentence = self._dispatcher.unreadable()
        return {f"unreadable-{self.kind.plural}": sentence} if sentence else {}

    async def _list(self) -> None:
        started = self._clock.monotonic()
        self._asked = False
        self._version = ""
        self._dispatcher.begin_list()
        present: set[Key] = set()
        version = ""
        settings = self._settings
        pages = list_pages(self._transport, self.kind, self._path, settings.watch.page, settings.timeouts.page)
        async with aclosing(pages):
            async for page in pages:
                self._in_contact()
                version = page.metadata.resource_version
                for item in page.items or ():
                    data = bytes(item)
                    key = self._dispatcher.deliver(read_meta(data), data)
                    if key is not None:
                        present.add(key)
                    await asyncio.sleep(0)
        for key in self._dispatcher.missing_from(present):
            self._dispatcher.vanished(key)
            await asyncio.sleep(0)
        self._dispatcher.complete()
        self._observer.listed(self.kind.plural, len(self._dispatcher), self._clock.monotonic() - started)
        if not self._asked:
            self._version = version
            self._stumbles = 0
            self.synced.set()

    async def _watch(self) -> None:
        """Follow the watch after the version seen last, until the server ends it."""
        settings, kind = self._settings.watch, self.kind.plural
        seconds = int(settings.shortest + (settings.longest - settings.shortest) * self._chance.number())
        query = {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": self._version,
            "timeoutSeconds": str(seconds),
        }
        call = ApiCall(RequestIntent("watch", kind), "GET", self._path, seconds + _GRACE_SECONDS, query=query)
        has_events = False
        try:
            async with asyncio.timeout(None) as self._watching, self._transport.stream(call, settings.stall) as pieces:
                self._in_contact()
                async for line in lines(pieces):
                    try:
                        event = await in_turns(_EVENT, line)
                    except Exception:  # noqa: BLE001 - whatever a line does to the decoder must not end the watch
                        event = None
                    self._in_contact()
                    if event is None:
                        self._dispatcher.pass_over_line()
                    else:
                        self._take(event)
                        has_events = True
                    await asyncio.sleep(0)
        except StreamSilentError:
            # No failure: servers need not send bookmarks, and a quiet kind has no other events.
            return
        except TimeoutError:
            # Only `relist` ends it this way.
            return
        finally:
            self._watching = None
        if not has_events:
            await self._pause("closed", "the server ended a watch at once")

    def _take(self, event: WatchEvent) -> None:
        self._observer.watch_event(self.kind.plural, event.type)
        if event.type == "ERROR":
            status = read_status(0, bytes(event.object))
            pause = status.details.retry_after_seconds if status.details else None
            raise ApiCallError(RequestIntent("watch", self.kind.plural), status, retry_after=pause or 0.0)
        data = bytes(event.object)
        meta = read_meta(data)
        version = meta.resource_version if meta else ""
        if 0 < version_number(version) < version_number(self._version):
            # The server's store was restored from a backup: our version is not part of its history.
            sentence = f"the server's version went back from {self._version} to {version}"
            raise ApiCallError(
                RequestIntent("watch", self.kind.plural), ApiStatus(code=HTTPStatus.GONE, message=sentence)
            )
        if event.type == "DELETED":
            self._dispatcher.removed(meta)
        elif event.type != "BOOKMARK":
            self._dispatcher.deliver(meta, data)
        self._stumbles = 0
        # After the delivery, so that an interruption repeats an event rather than losing it.
        self._version = version or self._version
        self._backoff.reset()

    def _in_contact(self) -> None:
        self.last_contact = self._clock.monotonic()
        self.last_error = None
        self.failures = 0
        self.refusals, self.forbidden_since = 0, None

    def _count(self, failed: ApiCallError) -> None:
        if not failed.forbidden:
            self.refusals, self.forbidden_since = 0, None
            return
        if not self.refusals:
            # The server answers again, so earlier failures say nothing about how long to wait.
            self.forbidden_since = self._clock.monotonic()
            self._backoff.reset()
        self.refusals += 1

    async def _pause(self, reason: str, sentence: str, at_least: float = 0.0) -> None:
        self.last_error = sentence
        self.failures += 1
        self._observer.watch_failed(self.kind.plural, reason)
        pause = self._backoff.next(at_least)
        if 0 < self.refusals <= _PROMPT_REFUSALS:
            pause = max(min(pause, PROMPT_SECONDS), at_least)
        _LOG.warning("watch failed", kind=self.kind.plural, problem=sentence, again_in_seconds=round(pause, 1))
        await self._chance.sleep(pause)


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


async def list_pages(
    transport: ApiTransport, kind: ResourceKind, path: str, limit: int, seconds: float
) -> AsyncGenerator[Page, None]:
    """Yield the pages of a consistent list of everything at `path`, of `limit` objects at most.

    When the continue token expires (410 on a later page), the list begins again, unpaged.

    Raises:
        ApiCallError: the server did not answer with a page.
    """
    token, size = "", min(limit, FIRST_PAGE)
    selected = {"fieldSelector": kind.selector} if kind.selector else {}
    while True:
        query = {**selected, "limit": str(size), **({"continue": token} if token else {})}
        try:
            page, read = await _page(transport, kind, path, query, seconds, MOST_BYTES if size > 1 else 0)
        except ResponseTooLongError:
            # Objects before these were small, which says nothing of these.
            size = max(1, size // _SHRINKING)
            continue
        except ApiCallError as failed:
            if not (token and failed.gone):
                raise
            _LOG.info("continue token of a list expired, listing in one page", kind=kind.plural)
            page, _ = await _page(transport, kind, path, selected, seconds, 0)
            yield page
            return
        yield page
        token = page.metadata.next_page or ""
        if not token:
            return
        size = next_size(size, len(page.items or ()), read, limit)


def next_size(size: int, objects: int, read: int, limit: int) -> int:
    """Return the objects to ask for after a page of at most `size` objects that had so many objects in so many bytes."""
    fitting = PAGE_BYTES * objects // max(read, 1)
    return max(1, min(limit, _GROWTH * size, fitting))


async def _page(
    transport: ApiTransport, kind: ResourceKind, path: str, query: dict[str, str], seconds: float, max_bytes: int
) -> tuple[Page, int]:
    """Return a page and its length; raises ResponseTooLongError if it has more than `max_bytes` (0 for any number)."""
    intent = RequestIntent("list", kind.plural)
    body = await transport.send(ApiCall(intent, "GET", path, seconds, query=query, max_bytes=max_bytes))
    try:
        # The authors of the objects decide what decoding costs: a long page must not block the event loop.
        return await in_turns(_PAGE, body), len(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as problem:
        raise ApiCallError(intent, None, f"the answer is not a list: {problem}") from problem


async def lines(pieces: AsyncIterator[bytes], longest: int = LONGEST_LINE) -> AsyncIterator[bytes]:
    """Yield the complete lines in a stream; what follows the last line break is part of a line that was cut off, and is dropped.

    aiohttp's own line reader stops at lines longer than its buffer, and a slice with many devices is one line.

    Raises:
        ApiCallError: a line is longer than `longest` bytes.
    """
    pieces_of_line: list[bytes] = []
    size = 0
    async for piece in pieces:
        *ends, incomplete = piece.split(b"\n")
        for end in ends:
            pieces_of_line.append(end)
            line = b"".join(pieces_of_line)
            pieces_of_line.clear()
            size = 0
            if line and not line.isspace():
                yield line
        if incomplete:
            pieces_of_line.append(incomplete)
            size += len(incomplete)
            if size > longest:
                raise ApiCallError(
                    RequestIntent("watch", "a stream"), None, f"one event is longer than {longest} bytes"
                )


async def in_turns(decoder: "msgspec.json.Decoder[T]", data: bytes) -> T:
    """Decode as `decode_any` does; long data in a thread, so that the event loop goes on."""
    if len(data) <= _AT_ONCE:
        return decode_any(decoder, data)
    return await asyncio.to_thread(decode_any, decoder, data)


def read_meta(data: bytes) -> ObjectIdentity | None:
    """Return the identity of the object in `data`; None if it cannot be read."""
    try:
        return decode_any(_HEAD, data).metadata
    except Exception:  # noqa: BLE001 - whatever one object does to the decoder must not stop the others
        return None
