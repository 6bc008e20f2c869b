"""The smallest set of pods, or of holders of devices, whose end lets something fit.

Ending further candidates never hurts: a set that suffices still suffices together with others.  `defrag/search` answers another
question, the fewest pods to move: moved pods also have to land, so that a larger set may fail where a smaller set is enough.
"""

from bisect import bisect_left
from collections.abc import Callable, Sequence
from itertools import combinations, islice
from typing import Final, TypeVar

T = TypeVar("T")

MOST_SETS: Final = 1_000
"""Sets of one size that are tried."""


def fewest_ends(
    leaving: Sequence[T],
    staying: Sequence[T],
    may_be_ended: Callable[[T], bool],
    suffices: Callable[[Sequence[T]], bool],
) -> tuple[Sequence[T], Sequence[T]]:
    """Return the candidates to wait for, and the smallest set of candidates to end; the end of all candidates has to suffice.

    Args:
        leaving: Candidates that leave by themselves; waiting for them costs nothing.
        staying: Candidates that would have to be ended, the preferred candidates first.
        may_be_ended: Returns whether a candidate may be ended; a candidate that may not is left out if the others are enough.
        suffices: Returns whether something fits after the end of a set.  If it returns False because a limit is reached, the answer
            is larger than necessary, but not wrong.
    """
    allowed = [candidate for candidate in staying if may_be_ended(candidate)]
    if len(allowed) < len(staying) and suffices([*leaving, *allowed]):
        staying = allowed
    ended: Sequence[T] = ()
    if not (leaving and suffices(leaving)):
        ended = _fewest(staying, lambda some: suffices([*leaving, *some]))
    return irreducible(leaving, lambda some: suffices([*some, *ended])), ended


def irreducible(candidates: Sequence[T], suffices: Callable[[Sequence[T]], bool]) -> Sequence[T]:
    """Return a subset that suffices and of which no candidate can be left out; keep those that come first if possible.

    All candidates together have to suffice.
    """
    for candidate in reversed(candidates):
        fewer = [other for other in candidates if other is not candidate]
        if suffices(fewer):
            candidates = fewer
    return candidates


def _fewest(candidates: Sequence[T], suffices: Callable[[Sequence[T]], bool]) -> Sequence[T]:
    """Return the smallest set of candidates that was found to suffice; all candidates together have to suffice."""
    first = 1 + bisect_left(range(1, len(candidates)), True, key=lambda number: suffices(candidates[:number]))
    fewest = irreducible(candidates[:first], suffices)
    while len(fewest) > 1:
        smaller = next(filter(suffices, islice(combinations(candidates, len(fewest) - 1), MOST_SETS)), None)
        if smaller is None:
            break
        fewest = smaller
    return fewest
