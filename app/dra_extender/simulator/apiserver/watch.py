import asyncio
from collections import deque
from collections.abc import Mapping

from dra_extender.ledger.updates.sink import Feed
from dra_extender.model.api_json import ModelError
from dra_extender.simulator.apiserver.objects import StoredKind
from dra_extender.simulator.apiserver.store import Change, Store, WatchEventType


class StoreWatch:
    """Brings the store's changes to feeds: first what exists, then every change in the order of the writes.

    Nothing is delivered inside a write.  Deliver on demand with `deliver`, or let `run` do it in a task of its own, as the
    connections of a real watch do.  `unreadable` says what a feed could not read.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._feeds: Mapping[str, Feed] = {}
        self._queue: deque[Change] = deque()
        self._arrived = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self.unreadable: list[str] = []
        store.subscribe(self._note)

    @property
    def behind(self) -> int:
        """How many changes are still to be delivered."""
        return len(self._queue)

    def attach(self, feeds: Mapping[str, Feed]) -> None:
        """List every object into its feed (keys are plural names, unknown ones stay empty), report synced, follow from here."""
        self._queue.clear()
        self._feeds = feeds
        known = {str(kind): kind for kind in StoredKind}
        for name, feed in feeds.items():
            for data in self._store.data(known[name]) if name in known else ():
                self._announce(feed, data)
        for feed in feeds.values():
            feed.synced()

    def deliver(self) -> int:
        """Deliver everything that waits; returns how many changes those were."""
        count = 0
        while self._queue:
            self._pass_on(self._queue.popleft())
            count += 1
        self._idle.set()
        return count

    async def run(self) -> None:
        """Deliver one change at a time as they come, until cancelled."""
        while True:
            await self._arrived.wait()
            self._arrived.clear()
            while self._queue:
                self._pass_on(self._queue.popleft())
                await asyncio.sleep(0)
            self._idle.set()

    async def caught_up(self) -> None:
        """Return when `run` has delivered everything."""
        await self._idle.wait()

    def _note(self, change: Change) -> None:
        if self._feeds:
            self._queue.append(change)
            self._idle.clear()
            self._arrived.set()

    def _pass_on(self, change: Change) -> None:
        feed = self._feeds.get(change.key.kind)
        if feed is None:
            return
        if change.verb is WatchEventType.DELETED:
            feed.deleted(change.key.namespace, change.key.name, change.uid)
        else:
            self._announce(feed, change.data)

    def _announce(self, feed: Feed, data: bytes) -> None:
        """A feed that cannot read an object keeps what it knew of it; the watch goes on."""
        try:
            feed.changed(data)
        except ModelError as problem:
            self.unreadable.append(str(problem))
