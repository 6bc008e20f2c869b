from collections.abc import Hashable
from typing import Final, NamedTuple

from dra_extender.allocator.allocate import Allocation
from dra_extender.runtime.caches import LruCache

_SEARCHES: Final = 16
_STATES: Final = 12_000
"""As many as one search remembers at most, so that all that are paused keep about as much memory as the one that runs."""

Question = tuple[bytes, str]
"""(signature of what is asked for, node)."""


class _Kept(NamedTuple):
    under: Hashable
    search: Allocation


class PausedSearches:
    """Searches that were paused, least recently paused first out: few, and with few states that they remember in all."""

    def __init__(self, searches: int = _SEARCHES, states: int = _STATES) -> None:
        """Keep at most so many, and at most one that alone remembers more than so many states."""
        self._kept: LruCache[Question, _Kept] = LruCache(searches, weigh=_states_of, max_weight=states)

    def __len__(self) -> int:
        return len(self._kept)

    def __contains__(self, question: Question) -> bool:
        return question in self._kept

    def of(self, signature: bytes) -> int:
        """How many there are of one signature."""
        return sum(each[0] == signature for each in self._kept)

    def take(self, question: Question, under: Hashable) -> Allocation | None:
        """The search for this question, if it was paused under equal circumstances; it is kept no longer."""
        kept = self._kept.pop(question, None)
        return kept.search if kept is not None and kept.under == under else None

    def keep(self, question: Question, under: Hashable, search: Allocation) -> None:
        """Keep a search; `under` says what must be the same for it to go on."""
        self._kept[question] = _Kept(under, search)


def _states_of(paused: _Kept) -> int:
    return paused.search.nogood_count
