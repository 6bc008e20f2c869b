"""Paused searches, with a bound on their number and their memory."""

from collections.abc import Hashable
from typing import Final, NamedTuple

from dra_extender.allocator.allocate import Allocation
from dra_extender.runtime.caches import LruCache

_SEARCHES: Final = 16
_STATES: Final = 12_000
"""As many nogoods as one search keeps at most: all paused searches together take about as much memory as a running one."""

Question = tuple[bytes, str]
"""(signature of the demand, node)."""


class _Kept(NamedTuple):
    under: Hashable
    search: Allocation


class PausedSearches:
    """Keeps searches that were paused; the least recently paused goes first."""

    def __init__(self, searches: int = _SEARCHES, states: int = _STATES) -> None:
        """Keep at most so many searches, with at most so many nogoods in all; a single larger one is kept alone."""
        self._kept: LruCache[Question, _Kept] = LruCache(searches, weigh=_states_of, max_weight=states)

    def __len__(self) -> int:
        return len(self._kept)

    def __contains__(self, question: Question) -> bool:
        return question in self._kept

    def of(self, signature: bytes) -> int:
        """How many paused searches have this signature."""
        return sum(each[0] == signature for each in self._kept)

    def take(self, question: Question, under: Hashable) -> Allocation | None:
        """Remove and return the search for this question; None if there is none under an equal usage."""
        kept = self._kept.pop(question, None)
        return kept.search if kept is not None and kept.under == under else None

    def keep(self, question: Question, under: Hashable, search: Allocation) -> None:
        """Keep a search; `under` stands for the usage and the devices, which must be equal when it goes on."""
        self._kept[question] = _Kept(under, search)


def _states_of(paused: _Kept) -> int:
    return paused.search.nogood_count
