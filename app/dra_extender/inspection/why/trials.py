"""Tries changes: the service's own allocator decides about devices, node fit about the rest of the node."""

from collections.abc import Iterable, Sequence
from itertools import combinations
from typing import Final

from dra_extender.inspection.cluster_view import ClusterView, TrialView
from dra_extender.inspection.holders import Holder
from dra_extender.inspection.why.changes import ClaimChanges, ProposedChange
from dra_extender.inspection.why.report import DEVICES_AND_NODES, DEVICES_ONLY, HolderShare, NextStep
from dra_extender.model.pod import Pod
from dra_extender.model.pod_group import PodGroup

MOST_TRIALS: Final = 64
"""Changes that are tried for one pod."""
MOST_OF_GANGS: Final = 24
"""Changes that are tried for the members of a gang together."""
_MOST_NODES: Final = 64
"""Nodes on which a change is tried for a single pod."""
_MOST_NAMED: Final = 3
_MOST_SINGLE: Final = 8
_MOST_PAIRED: Final = 4
_MOST_TOGETHER: Final = 24


class Trials:
    """Tries changes for one pod, as many as MOST_TRIALS."""

    def __init__(self, view: ClusterView, pod: Pod, claims: ClaimChanges) -> None:
        self._view = view
        self._pod = pod
        self._claims = claims
        self._trial = TrialView(view)
        self._most = MOST_OF_GANGS if _is_in_gang(view, pod) else MOST_TRIALS
        self._left = self._most
        self._gang = _is_in_gang(view, pod)

    @property
    def limit(self) -> str:
        """That the limit was reached, as a sentence; empty if it was not."""
        return "" if self._left > 0 else f"{self._most} changes were tried, which is the limit"

    def first(self, changes: Iterable[ProposedChange | None], nodes: Sequence[str]) -> NextStep | None:
        """The first of these changes after which the pod fits; one that helps with devices alone if no other does."""
        of_devices: NextStep | None = None
        for each in changes:
            found = None if each is None else self.of(each, nodes)
            if found is not None and found.verified == DEVICES_AND_NODES:
                return found
            of_devices = of_devices or found
        return of_devices

    def of(self, change: ProposedChange, nodes: Sequence[str]) -> NextStep | None:
        """On which of these nodes the pod fits after the change; None if on none, or if the limit is reached."""
        if self._left <= 0:
            return None
        self._left -= 1
        with self._trial.changed(change.changes):
            return self._gang_fits(change) if self._gang else self._fits(change, nodes[:_MOST_NODES])

    def _fits(self, change: ProposedChange, nodes: Sequence[str]) -> NextStep | None:
        fitting = sorted(self._view.try_on(self._pod, nodes).fits)
        usable = [name for name in fitting if self._usable(self._pod, name, change)]
        verified = DEVICES_AND_NODES if usable else DEVICES_ONLY
        named = tuple((usable or fitting)[:_MOST_NAMED])
        return NextStep(text=change.text, nodes=named, verified=verified) if fitting else None

    def _gang_fits(self, change: ProposedChange) -> NextStep | None:
        """Whether as many members as the gang needs get devices at once; each by itself may use its node."""
        planned = self._view.extender.gang_account(self._pod, tuple(self._view.ledger.nodes), partly=False)
        if planned is None:
            return None
        with planned as account:
            placed = account.placed
        if not placed or len(placed) < account.needed:
            return None
        usable = all(self._usable(each.pod, each.node, change) for each in placed)
        nodes = tuple(dict.fromkeys(each.node for each in placed))
        verified = DEVICES_AND_NODES if usable else DEVICES_ONLY
        return NextStep(text=change.text, nodes=nodes[:_MOST_NAMED], verified=verified)

    def _usable(self, pod: Pod, node: str, change: ProposedChange) -> bool:
        """Whether kube-scheduler's other filters let the pod on the node; False where they cannot be judged."""
        fit = self._view.node_fit
        needs = None if fit is None else fit.needs(pod.key)
        return fit is not None and needs is not None and not fit.refusals(needs, node, released=change.ended)

    def ends(self, shares: Sequence[HolderShare], nodes: Sequence[str]) -> NextStep | None:
        """The end of as few as possible of these holders, and of those the ones that free least."""
        amounts = {each.holder.claim: sum(amount for _, amount in each.counters) for each in shares}
        by_claim = {
            each.holder.claim: each.holder
            for each in shares
            if not (each.holder.admin or each.holder.planned or each.holder.until is not None)
        }
        holders = sorted(by_claim.values(), key=lambda each: (len(each.consumers), amounts[each.claim], each.claim))
        few = [
            *([each] for each in holders[:_MOST_SINGLE]),
            *map(list, combinations(holders[:_MOST_PAIRED], 2)),
        ]
        found = self.first((self._claims.ended(each) for each in few), nodes)
        if found is not None or len(holders) <= 2:  # noqa: PLR2004 - pairs were tried
            return found
        return self._fewest(holders[:_MOST_TOGETHER], nodes)

    def _fewest(self, holders: Sequence[Holder], nodes: Sequence[str]) -> NextStep | None:
        """All of these holders less each that need not end; None if all are not enough."""
        needed = list(holders)
        found = self.first((self._claims.ended(needed),), nodes)
        for each in reversed(holders) if found is not None else ():
            fewer = [other for other in needed if other is not each]
            step = self.first((self._claims.ended(fewer),), nodes) if fewer else None
            if step is not None and found is not None and step.verified == found.verified:
                needed, found = fewer, step
        return found


def _is_in_gang(view: ClusterView, pod: Pod) -> bool:
    group: PodGroup | None = None
    if pod.pod_group is not None:
        group = view.ledger.pod_groups.get(pod.namespace, pod.pod_group)
    return group is not None and group.min_count is not None
