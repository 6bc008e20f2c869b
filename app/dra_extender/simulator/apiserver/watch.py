"""The delivery of stored changes to sinks."""

import asyncio
from collections import deque
from collections.abc import Mapping

from dra_extender.ledger.sinks import EventSink
from dra_extender.model.api_json import ModelError
from dra_extender.simulator.apiserver.objects import StoredKind
from dra_extender.simulator.apiserver.store import Change, Store, WatchEventType


class StoreWatch:
    """Brings the store's changes to sinks: first what exists, then every change in the order of the writes.

    Unless by `deliver_at_once`, nothing is delivered inside a write: `deliver` does it on demand, or `keep_delivering` in a task of
    its own, as the connections of a real watch do.  `unreadable` says what a sink could not read.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._sinks: Mapping[str, EventSink] = {}
        self._queue: deque[Change] = deque()
        self._at_once = False
        self._arrived = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self.unreadable: list[str] = []
        store.subscribe(self._note)

    def attach(self, sinks: Mapping[str, EventSink]) -> None:
        """List every object into its sink (keys are plural names, unknown ones stay empty), report synced, follow from here."""
        self._queue.clear()
        self._sinks = sinks
        kinds = {str(kind): kind for kind in StoredKind}
        for name, sink in sinks.items():
            for data in self._store.keyed(kinds[name]).values() if name in kinds else ():
                self._announce(sink, data)
        for sink in sinks.values():
            sink.synced()
        self._idle.set()

    def deliver_at_once(self, sinks: Mapping[str, EventSink]) -> None:
        """Bring every later change to these sinks within the write; what exists is not listed."""
        self._sinks, self._at_once = sinks, True

    def deliver(self) -> int:
        """Deliver everything that waits; returns how many changes those were."""
        count = 0
        while self._queue:
            self._pass_on(self._queue.popleft())
            count += 1
        self._idle.set()
        return count

    async def keep_delivering(self) -> None:
        """Deliver one change at a time as they come, until cancelled."""
        while True:
            await self._arrived.wait()
            self._arrived.clear()
            while self._queue:
                self._pass_on(self._queue.popleft())
                await asyncio.sleep(0)
            self._idle.set()

    async def caught_up(self) -> None:
        """Return when everything is delivered, by `keep_delivering` or by a list."""
        await self._idle.wait()

    def _note(self, change: Change) -> None:
        if self._at_once:
            self._pass_on(change)
        elif self._sinks:
            self._queue.append(change)
            self._idle.clear()
            self._arrived.set()

    def _pass_on(self, change: Change) -> None:
        sink = self._sinks.get(change.key.kind)
        if sink is None:
            return
        if change.verb is WatchEventType.DELETED:
            sink.deleted(change.key.namespace, change.key.name, change.uid)
        else:
            self._announce(sink, change.data)

    def _announce(self, sink: EventSink, data: bytes) -> None:
        """Tell the sink of an object; a sink that cannot read it keeps what it knew of it, and the watch goes on."""
        try:
            sink.changed(data)
        except ModelError as problem:
            self.unreadable.append(str(problem))
