"""Which holders of devices to end so that a pod fits, each set tried before it is named."""

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from dra_extender.inspection.fewest_ends import fewest_ends
from dra_extender.inspection.holders import Holder
from dra_extender.inspection.why.report import HolderShare, NextStep
from dra_extender.inspection.why.trials import ClaimChanges, Trials

MOST_TOGETHER: Final = 24
"""Holders whose end is considered at once."""


class EndCost(NamedTuple):
    """Whether a PodDisruptionBudget forbids it, how many holders are ended, the highest priority of their pods: less is better."""

    forbidden: bool
    holders: int
    priority: int


class EndedHolders:
    """Finds which holders to end, with trials for one pod or its gang."""

    def __init__(self, trials: Trials, claims: ClaimChanges) -> None:
        self._trials = trials
        self._claims = claims

    def fewest(self, shares: Iterable[HolderShare], nodes: Sequence[str]) -> tuple[NextStep, EndCost] | None:
        """Find the smallest set of holders whose end lets the pod fit, and its cost; prefer low priorities, and what frees least.

        What is merely planned, held by the extender or with admin access, or has a member of the gang, cannot be ended.
        """
        order = self._in_order(share for share in shares if self._claims.can_be_ended(share.holder))
        leaving = [holder for holder in order if holder.leaving][:MOST_TOGETHER]
        staying = [holder for holder in order if not holder.leaving][:MOST_TOGETHER]
        after_all = self._try_end([*leaving, *staying], nodes)
        if after_all is None:
            return None
        verified = after_all.verified

        def suffices(holders: Sequence[Holder]) -> bool:
            step = None if self._trials.limit else self._try_end(holders, nodes)
            return step is not None and step.verified == verified

        awaited, ended = fewest_ends(leaving, staying, self._claims.may_be_ended, suffices)
        step = self._try_end([*awaited, *ended], nodes, again=True) or after_all
        return step, EndCost(
            not self._claims.may_be_ended(*ended), len(ended), max(map(self._claims.priority, ended), default=0)
        )

    def _in_order(self, shares: Iterable[HolderShare]) -> list[Holder]:
        """Return the holders, each once: those with the fewest pods first, then by priority, then those that free least.

        A gang needs the end of several: the largest ones are fewer.
        """
        amounts: dict[str, int] = {}
        by_claim: dict[str, Holder] = {}
        for share in shares:
            by_claim[share.holder.claim] = share.holder
            amounts[share.holder.claim] = sum(amount for _, amount in share.counters)

        def rank(holder: Holder) -> tuple[int, int, int, str]:
            amount, priority = amounts[holder.claim], self._claims.priority(holder)
            first, second = (-amount, priority) if self._trials.of_gang else (priority, amount)
            return len(holder.consumers), first, second, holder.claim

        return sorted(by_claim.values(), key=rank)

    def _try_end(self, holders: Sequence[Holder], nodes: Sequence[str], *, again: bool = False) -> NextStep | None:
        change = self._claims.ended(holders) if holders else None
        return None if change is None else self._trials.try_change(change, nodes, again=again)
