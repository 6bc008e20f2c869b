import asyncio
from collections import OrderedDict, deque
from typing import Generic, TypeVar

T = TypeVar("T")


class FairQueue(Generic[T]):
    """A queue with a lane for each key: the reader takes one item of each lane in turn.

    It holds at most `capacity` items over all lanes.  When it is full, the longest lane loses its newest item, so that a lane
    that is shorter than an equal share loses nothing.
    """

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._size = 0
        self._unfinished = 0
        self._lanes: OrderedDict[str, deque[T]] = OrderedDict()
        self._filled = asyncio.Event()
        self._finished = asyncio.Event()
        self._finished.set()

    def __len__(self) -> int:
        return self._size

    def put(self, lane: str, item: T) -> T | None:
        """Append the item to its lane, and return the item that had to go for it, which may be the same one."""
        lost = self._make_room(lane, item) if self._size >= self._capacity else None
        if lost is item:
            return item
        self._lanes.setdefault(lane, deque()).append(item)
        self._size += 1
        self._unfinished += 1
        self._filled.set()
        self._finished.clear()
        return lost

    async def filled(self) -> None:
        """Return when there is an item."""
        while not self._lanes:
            self._filled.clear()
            await self._filled.wait()

    async def get(self) -> T:
        """Return the oldest item of the lane whose turn it is; `task_done` follows."""
        await self.filled()
        key, lane = next(iter(self._lanes.items()))
        item = lane.popleft()
        self._size -= 1
        if lane:
            self._lanes.move_to_end(key)
        else:
            del self._lanes[key]
        return item

    def task_done(self) -> None:
        """Count an item that `get` returned as dealt with."""
        self._unfinished -= 1
        if not self._unfinished:
            self._finished.set()

    async def join(self) -> None:
        """Return when every item has been dealt with."""
        await self._finished.wait()

    def _make_room(self, lane: str, item: T) -> T:
        longest = max(self._lanes, key=lambda key: len(self._lanes[key]))
        if len(self._lanes[longest]) <= len(self._lanes.get(lane, ())) + 1:
            return item
        lost = self._lanes[longest].pop()
        self._size -= 1
        self.task_done()
        return lost
