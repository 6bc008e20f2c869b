"""Finds the fewest pods, or holders of devices, whose end lets something fit.

The end of more of them never hurts: a set that suffices still does with others.  `defrag/search` has the other question, the fewest
pods to move: they also have to land, so that a larger set may fail where a smaller one is enough.
"""

from bisect import bisect_left
from collections.abc import Callable, Sequence
from itertools import combinations, islice
from typing import Final, Generic, NamedTuple, TypeVar

T = TypeVar("T")

MOST_SETS: Final = 1_000
"""Sets of one size that are tried."""


class Ends(NamedTuple, Generic[T]):
    """Which ones to wait for, because they leave by themselves, and which ones to end."""

    awaited: Sequence[T]
    ended: Sequence[T]


def fewest_ends(
    leaving: Sequence[T],
    staying: Sequence[T],
    may_be_ended: Callable[[T], bool],
    suffices: Callable[[Sequence[T]], bool],
) -> Ends[T]:
    """Find the fewest to end; all of them together suffice.

    Args:
        leaving: They leave by themselves: they are waited for as far as needed, and cost nothing.
        staying: They would have to be ended, the preferred first.
        may_be_ended: Says whether one may be ended; those that may not are left out where the others are enough.
        suffices: Says whether something fits after the end of a set.  False where nothing more may be tried makes the answer
            larger, not wrong.
    """
    allowed = [candidate for candidate in staying if may_be_ended(candidate)]
    if len(allowed) < len(staying) and suffices([*leaving, *allowed]):
        staying = allowed
    ended: Sequence[T] = ()
    if not (leaving and suffices(leaving)):
        ended = _fewest(staying, lambda some: suffices([*leaving, *some]))
    return Ends(irreducible(leaving, lambda some: suffices([*some, *ended])), ended)


def irreducible(candidates: Sequence[T], suffices: Callable[[Sequence[T]], bool]) -> Sequence[T]:
    """Return candidates that suffice, of which none can be left out; all suffice, and the preferred ones come first and stay."""
    for candidate in reversed(candidates):
        fewer = [kept_candidate for kept_candidate in candidates if kept_candidate is not candidate]
        if suffices(fewer):
            candidates = fewer
    return candidates


def _fewest(candidates: Sequence[T], suffices: Callable[[Sequence[T]], bool]) -> Sequence[T]:
    """Return the smallest set of candidates that was found to suffice; all of them do."""
    first = 1 + bisect_left(range(1, len(candidates)), True, key=lambda number: suffices(candidates[:number]))
    fewest = irreducible(candidates[:first], suffices)
    while len(fewest) > 1:
        smaller = next(filter(suffices, islice(combinations(candidates, len(fewest) - 1), MOST_SETS)), None)
        if smaller is None:
            break
        fewest = smaller
    return fewest
