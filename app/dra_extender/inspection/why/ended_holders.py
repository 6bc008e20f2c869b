"""The end of as few pods as possible of those that hold what is in the way.

To end more pods never makes the allocator refuse a node, so that a set is smallest if no set with one pod less suffices.
"""

from collections.abc import Iterable, Sequence
from itertools import combinations
from typing import Final, NamedTuple

from dra_extender.inspection.holders import Holder
from dra_extender.inspection.why.changes import ClaimChanges
from dra_extender.inspection.why.report import HolderShare, NextStep
from dra_extender.inspection.why.trials import Trials

MOST_TOGETHER: Final = 24
"""Holders whose end is considered at once."""


class EndedSet(NamedTuple):
    """The end of so many holders, which helps."""

    step: NextStep
    holders: int


class EndedHolders:
    """Finds which holders to end, with trials for one pod or its gang."""

    def __init__(self, trials: Trials, claims: ClaimChanges) -> None:
        self._trials = trials
        self._claims = claims

    def fewest(self, shares: Iterable[HolderShare], nodes: Sequence[str]) -> EndedSet | None:
        """The end of as few of these holders as trials can find, of equally many those that free least; None if all are not enough.

        What is merely planned, held by the extender or with admin access, or has a member of the gang, cannot be ended.
        """
        shares = (each for each in shares if self._claims.can_be_ended(each.holder))
        order = _ended_first(shares, largest=self._trials.of_gang)[:MOST_TOGETHER]
        whole = self._tried(order, nodes)
        if whole is None:
            return None
        needed = self._needed(order, whole, nodes)
        smaller = self._smaller(order, len(needed), whole, nodes)
        while smaller is not None:
            needed = smaller
            smaller = self._smaller(order, len(needed), whole, nodes)
        return EndedSet(self._tried(needed, nodes, again=True) or whole, len(needed))

    def _needed(self, order: Sequence[Holder], whole: NextStep, nodes: Sequence[str]) -> Sequence[Holder]:
        """The shortest beginning of the order that is enough, without those that are not needed in it."""
        sufficing, short = len(order), 0
        while sufficing - short > 1:
            middle = (sufficing + short) // 2
            if self._suffices(order[:middle], whole, nodes):
                sufficing = middle
            else:
                short = middle
        needed = list(order[:sufficing])
        # The last one is needed: the beginning without it is not enough.
        for each in needed[:-1]:
            fewer = [other for other in needed if other is not each]
            if self._suffices(fewer, whole, nodes):
                needed = fewer
        return needed

    def _smaller(
        self, order: Sequence[Holder], size: int, whole: NextStep, nodes: Sequence[str]
    ) -> Sequence[Holder] | None:
        """A set with one holder less that suffices; None if there is none, or no trial is left."""
        if size <= 1:
            return None
        for each in combinations(order, size - 1):
            if self._trials.limit:
                return None
            if self._suffices(each, whole, nodes):
                return each
        return None

    def _suffices(self, holders: Sequence[Holder], whole: NextStep, nodes: Sequence[str]) -> bool:
        found = self._tried(holders, nodes)
        return found is not None and found.verified == whole.verified

    def _tried(self, holders: Sequence[Holder], nodes: Sequence[str], *, again: bool = False) -> NextStep | None:
        change = self._claims.ended(holders) if holders else None
        return None if change is None else self._trials.of(change, nodes, again=again)


def _ended_first(shares: Iterable[HolderShare], *, largest: bool) -> list[Holder]:
    """The holders, each once: those with the fewest pods first, then those that free least, or most if `largest`.

    A gang needs the end of several: the largest ones are fewer.
    """
    amounts: dict[str, int] = {}
    by_claim: dict[str, Holder] = {}
    for each in shares:
        by_claim[each.holder.claim] = each.holder
        amounts[each.holder.claim] = sum(amount for _, amount in each.counters)
    sign = -1 if largest else 1
    return sorted(by_claim.values(), key=lambda each: (len(each.consumers), sign * amounts[each.claim], each.claim))
