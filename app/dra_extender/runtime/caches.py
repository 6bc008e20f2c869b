"""What is kept of other people's texts: bounded in bytes, and shared fairly between those whose texts they are."""

import heapq
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Final, Generic, NamedTuple, TypeVar

_K = TypeVar("_K", bound=Hashable)
_V = TypeVar("_V")

ENTRY_BYTES: Final = 400
"""What an entry takes beside its key and value, by measurement on CPython 3.12 to 3.14."""
_LARGEST: Final = 8
_FREED: Final = 16


class _Share(NamedTuple):
    size: int
    owner: str


class FairCache(Generic[_K, _V]):
    """A least-recently-used cache of at most `max_bytes`; one caller at a time.

    An entry belongs to the owner (a namespace) that put it.  When the cache is full, the owner that holds the most loses its
    oldest entries first, so an owner with much never drives out one with little.  A value that is too
    large is not kept.
    """

    def __init__(
        self, max_bytes: int, *, largest: int = _LARGEST, forgotten: Callable[[_K, _V], None] | None = None
    ) -> None:
        """Begin with nothing.

        Args:
            max_bytes: Bytes for all entries together, by the sizes that are given with them.
            largest: Which part of that a single entry may take, as in "an eighth".
            forgotten: Learns of every entry that makes room for others.
        """
        self.max_bytes = max_bytes
        self._largest = max_bytes // largest
        self.held = 0
        self._forgotten = forgotten
        self._values: dict[_K, _V] = {}
        self._shares: dict[_K, _Share] = {}
        self._owners: dict[str, OrderedDict[_K, None]] = {}
        self._bytes: dict[str, int] = {}
        self.peek: Final[Callable[[_K], _V | None]] = self._values.get
        """As `get`, but faster: the value does not count as used."""

    def __len__(self) -> int:
        return len(self._values)

    def __contains__(self, key: _K) -> bool:
        return key in self._values

    def get(self, key: _K) -> _V | None:
        """The value, which counts as used from now on; None if it is not kept."""
        share = self._shares.get(key)
        if share is None:
            return None
        self._owners[share.owner].move_to_end(key)
        return self._values[key]

    def put(self, key: _K, value: _V, size: int, owner: str = "") -> bool:
        """Keep a value of `size` bytes, key included; returns whether it is kept."""
        size += ENTRY_BYTES
        self.drop(key)
        if size > self._largest:
            return False
        self._values[key] = value
        self._shares[key] = _Share(size, owner)
        self._owners.setdefault(owner, OrderedDict())[key] = None
        self._count(owner, size)
        if self.held > self.max_bytes:
            self._make_room(key)
        return True

    def resize(self, key: _K, size: int) -> None:
        """Tell the present size of a value that has grown since; nothing happens if it is not kept."""
        share = self._shares.get(key)
        if share is None:
            return
        size += ENTRY_BYTES
        self._count(share.owner, size - share.size)
        self._shares[key] = _Share(size, share.owner)
        if size > self._largest:
            self._forget(key)
        elif self.held > self.max_bytes:
            self._make_room(key)

    def drop(self, key: _K) -> None:
        """Forget an entry, if there is one, without a word to `forgotten`."""
        share = self._shares.pop(key, None)
        if share is not None:
            del self._values[key]
            del self._owners[share.owner][key]
            self._count(share.owner, -share.size)

    def held_by(self, owner: str) -> int:
        """The bytes that the entries of an owner take."""
        return self._bytes.get(owner, 0)

    def _count(self, owner: str, size: int) -> None:
        self.held += size
        left = self._bytes.get(owner, 0) + size
        if left:
            self._bytes[owner] = left
        else:
            del self._bytes[owner], self._owners[owner]

    def _forget(self, key: _K) -> None:
        value = self._values[key]
        self.drop(key)
        if self._forgotten is not None:
            self._forgotten(key, value)

    def _make_room(self, newest: _K) -> None:
        """Free a little more than what is too much, always from the owner that holds the most at that moment."""
        wanted = self.max_bytes - self.max_bytes // _FREED
        largest = [(-size, owner) for owner, size in self._bytes.items()]
        heapq.heapify(largest)
        while self.held > wanted and largest:
            owner = largest[0][1]
            oldest = next(iter(self._owners[owner]))
            if oldest != newest:
                self._forget(oldest)
            elif len(self._owners[owner]) > 1:
                self._owners[owner].move_to_end(newest)
                continue
            left = self._bytes.get(owner, 0) if oldest != newest else 0
            if left:
                heapq.heapreplace(largest, (-left, owner))
            else:
                heapq.heappop(largest)
