"""A cache bounded by bytes, which owners such as namespaces share fairly."""

import heapq
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Final, Generic, NamedTuple, TypeVar

_K = TypeVar("_K", bound=Hashable)
_V = TypeVar("_V")

ENTRY_BYTES: Final = 400
"""What an entry of a `FairCache` takes beside its key and value, by measurement on CPython 3.12 to 3.14."""
_PARTS: Final = 8
_FREED: Final = 16


class _Share(NamedTuple):
    size: int
    owner: str


class FairCache(Generic[_K, _V]):
    """A least-recently-used cache of at most `max_bytes`, which owners share fairly.

    An entry belongs to the owner, such as a namespace, that put it.  A full cache evicts the oldest entries of the owner that
    holds the most bytes, so that an owner with many entries never evicts those of an owner with few.  Values larger than
    `max_bytes / parts` are not kept.
    """

    def __init__(
        self, max_bytes: int, *, parts: int = _PARTS, on_evict: Callable[[_K, _V], None] | None = None
    ) -> None:
        """Begin empty.

        Args:
            max_bytes: The most bytes of all entries together, by the sizes that `put` and `resize` state.
            parts: A value has at most one of so many equal parts of the cache.
            on_evict: Called with each entry that is evicted, after it is gone; not with entries that are dropped.
        """
        self.max_bytes = max_bytes
        self._largest = max_bytes // parts
        self.bytes_kept = 0
        self._on_evict = on_evict
        self._values: dict[_K, _V] = {}
        self._shares: dict[_K, _Share] = {}
        self._owners: dict[str, OrderedDict[_K, None]] = {}
        self._bytes: dict[str, int] = {}
        self.peek: Final[Callable[[_K], _V | None]] = self._values.get
        """Like `get`, but faster: the value does not count as used."""

    def __len__(self) -> int:
        return len(self._values)

    def __contains__(self, key: _K) -> bool:
        return key in self._values

    def get(self, key: _K) -> _V | None:
        """Return the value, which counts as used from now on; None if it is not kept."""
        share = self._shares.get(key)
        if share is None:
            return None
        self._owners[share.owner].move_to_end(key)
        return self._values[key]

    def put(self, key: _K, value: _V, size: int, owner: str = "") -> bool:
        """Keep a value of `size` bytes, key included; returns False if it is too large to be kept."""
        size += ENTRY_BYTES
        self.drop(key)
        if size > self._largest:
            return False
        self._values[key] = value
        self._shares[key] = _Share(size, owner)
        self._owners.setdefault(owner, OrderedDict())[key] = None
        self._count(owner, size)
        if self.bytes_kept > self.max_bytes:
            self._make_room(key)
        return True

    def resize(self, key: _K, size: int) -> None:
        """State the present size of a value that has grown; an entry that is not kept is ignored."""
        share = self._shares.get(key)
        if share is None:
            return
        size += ENTRY_BYTES
        self._count(share.owner, size - share.size)
        self._shares[key] = _Share(size, share.owner)
        if size > self._largest:
            self._evict(key)
        elif self.bytes_kept > self.max_bytes:
            self._make_room(key)

    def drop(self, key: _K) -> None:
        """Delete an entry, if there is one; `on_evict` is not called."""
        share = self._shares.pop(key, None)
        if share is not None:
            del self._values[key]
            del self._owners[share.owner][key]
            self._count(share.owner, -share.size)

    def _count(self, owner: str, size: int) -> None:
        self.bytes_kept += size
        total = self._bytes.get(owner, 0) + size
        if total:
            self._bytes[owner] = total
        else:
            del self._bytes[owner], self._owners[owner]

    def _evict(self, key: _K) -> None:
        value = self._values[key]
        self.drop(key)
        if self._on_evict is not None:
            self._on_evict(key, value)

    def _make_room(self, newest: _K) -> None:
        """Evict down to 15/16 of `max_bytes`, always from the owner that holds the most at that moment, never the newest entry."""
        target = self.max_bytes - self.max_bytes // _FREED
        largest = [(-size, owner) for owner, size in self._bytes.items()]
        heapq.heapify(largest)
        while self.bytes_kept > target and largest:
            owner = largest[0][1]
            oldest = next(iter(self._owners[owner]))
            if oldest != newest:
                self._evict(oldest)
            elif len(self._owners[owner]) > 1:
                self._owners[owner].move_to_end(newest)
                continue
            remaining = self._bytes.get(owner, 0) if oldest != newest else 0
            if remaining:
                heapq.heapreplace(largest, (-remaining, owner))
            else:
                heapq.heappop(largest)
