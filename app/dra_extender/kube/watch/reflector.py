"""A list and watch without end: it resumes, lists again, and retries."""

import asyncio
from collections.abc import Mapping
from contextlib import aclosing
from http import HTTPStatus
from typing import Final

import structlog

from dra_extender.kube.client.errors import ApiCallError, ApiStatus, RequestIntent, StreamSilentError, read_status
from dra_extender.kube.client.objects import ResourceKind
from dra_extender.kube.client.retry import Backoff, SleepAndJitter
from dra_extender.kube.client.settings import KubeSettings
from dra_extender.kube.client.transport import ApiTransport
from dra_extender.kube.watch.dispatch import EventDispatcher, Key, read_meta
from dra_extender.kube.watch.list_watch import WatchEvent, list_pages, watch_events
from dra_extender.ledger.sinks import EventSink
from dra_extender.model.metadata import version_number
from dra_extender.runtime.supervision import UNREADY_AFTER
from dra_extender.scheduling.ports.cluster import Clock
from dra_extender.telemetry.observer import Observer

PROMPT_SECONDS: Final = 2.0
"""The longest pause after a 403 at first: an API server that has just started loads its roles within seconds."""
_PROMPT_REFUSALS: Final = 30

_LOG = structlog.get_logger(__name__)


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
        watch = self._settings.watch
        seconds = int(watch.shortest + (watch.longest - watch.shortest) * self._chance.number())
        events = watch_events(
            self._transport,
            self.kind,
            self._path,
            self._version,
            seconds=seconds,
            silence=watch.stall,
            opened=self._in_contact,
        )
        has_events = False
        try:
            async with asyncio.timeout(None) as self._watching, aclosing(events):
                async for event in events:
                    self._in_contact()
                    if isinstance(event, bytes):
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
