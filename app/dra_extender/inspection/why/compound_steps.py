"""Several changes after which a pod fits that no single change helps: pairs first, then sets of three.

After each change of a set the allocator is asked anew, and the next change is one against what it says then: another request,
another claim, or kube-scheduler's own filters.
"""

from collections.abc import Sequence
from itertools import islice
from typing import Final

from dra_extender.inspection.cluster_view import ClusterView
from dra_extender.inspection.why.beside_steps import BesideSteps
from dra_extender.inspection.why.reasons import Reasons
from dra_extender.inspection.why.report import DEVICES_AND_NODES, NextStep
from dra_extender.inspection.why.trials import ProposedChange, Trials
from dra_extender.model.pod import Pod
from dra_extender.scheduling.evaluation.result import FilterResult

MOST_CHANGES: Final = 3
"""Changes of one set."""
SECONDS: Final = 2.0
"""Time after which no further set is begun."""
_MOST_NODES: Final = 16
"""Nodes on which a set is tried."""
_MOST_REASONS: Final = 4
_MOST_OF_A_REASON: Final = 6


class CompoundSteps:
    """Looks for sets of changes for one pod that is in no gang; its trials are those of the single changes."""

    def __init__(self, view: ClusterView, pod: Pod, trials: Trials) -> None:
        self._view = view
        self._pod = pod
        self._trials = trials
        self._end = view.monotonic + SECONDS

    def smallest_set(self, reasons: Reasons) -> NextStep | None:
        """Return the smallest set that was found; None if no set was, or the time or the trials are used up."""
        if self._trials.of_gang:
            return None
        for depth in range(1, MOST_CHANGES):
            found = self._after_one(reasons, depth)
            if found is not None:
                return found
        return None

    def _after_one(self, reasons: Reasons, further: int) -> NextStep | None:
        """Return a change against one of the reasons, and so many further ones."""
        for facts in reasons.known[:_MOST_REASONS]:
            for change in islice(reasons.changes(facts), _MOST_OF_A_REASON):
                if self._trials.limit or self._view.monotonic > self._end:
                    return None
                found = self._after(change, reasons, facts.nodes[:_MOST_NODES], further)
                if found is not None:
                    return found
        return None

    def _after(self, change: ProposedChange, before: Reasons, nodes: Sequence[str], further: int) -> NextStep | None:
        with self._trials.within(change):
            result = self._view.try_on(self._pod, nodes)
            if result.fits:
                return self._beside(result)
            if change.ended and before.same_on(result):
                # What ended was not in the way.
                return None
            reasons = Reasons(self._view, self._pod, result, self._trials)
            if further == 1:
                helps = (each for each in reasons.steps() if each.verified == DEVICES_AND_NODES)
                return next(helps, None)
            return self._after_one(reasons, further - 1)

    def _beside(self, result: FilterResult) -> NextStep | None:
        """Return what lets the pod use a node that has its devices after the changes."""
        made = self._trials.made
        beside = BesideSteps(self._view, self._pod, made.ended)
        return next(iter(beside.steps_on(tuple(result.fits), before=made.text)), None)
