"""A cache bounded by its entries."""

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import TypeVar

_K = TypeVar("_K", bound=Hashable)
_V = TypeVar("_V")


class LruCache(OrderedDict[_K, _V]):
    """A dictionary that evicts the least recently used entries when it holds too many.

    Writing an entry uses it, and so does `use`; reading it any other way does not.  Lookups are those of `OrderedDict`, in C.
    The entry that was written last is never evicted.
    """

    def __init__(
        self,
        max_entries: int,
        *,
        weigh: Callable[[_V], int] | None = None,
        max_weight: int = 0,
        on_evict: Callable[[_K, _V], None] | None = None,
    ) -> None:
        """Begin empty.

        Args:
            max_entries: The most entries.
            weigh: The present weight of a value; all weights are read anew at each write.
            max_weight: The most that all values may weigh together, if there is `weigh`.
            on_evict: Called with each entry that is evicted, after it is gone; not with entries that are deleted.
        """
        super().__init__()
        self._max_entries = max_entries
        self._weigh = weigh
        self._max_weight = max_weight
        self._on_evict = on_evict

    def __setitem__(self, key: _K, value: _V) -> None:
        super().__setitem__(key, value)
        self.move_to_end(key)
        if len(self) > self._max_entries:
            self.evict()
        if self._weigh is not None:
            weight = sum(map(self._weigh, self.values()))
            while weight > self._max_weight and len(self) > 1:
                weight -= self._weigh(self.evict())

    def use(self, key: _K) -> _V | None:
        """Return the value, which counts as used from now on; None if there is none."""
        value = self.get(key)
        if value is not None:
            self.move_to_end(key)
        return value

    def evict(self) -> _V:
        """Evict the least recently used entry and return its value."""
        key, value = self.popitem(last=False)
        if self._on_evict is not None:
            self._on_evict(key, value)
        return value
