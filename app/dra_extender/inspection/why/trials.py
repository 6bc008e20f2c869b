"""Tries changes: the service's own allocator decides about devices, node fit about the rest of the node."""

from collections.abc import Collection, Container, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Final

import msgspec

from dra_extender.inspection.cluster_view import ClusterView, TrialView
from dra_extender.inspection.why.changes import ProposedChange, together
from dra_extender.inspection.why.report import DEVICES_AND_NODES, DEVICES_ONLY, NextStep
from dra_extender.model.pod import Pod
from dra_extender.model.pod_group import PodGroup
from dra_extender.nodefit.pod_needs import PodNeeds

if TYPE_CHECKING:
    from dra_extender.scheduling.gang.account import PlacedMember

MOST_TRIALS: Final = 96
"""Changes that are tried for one pod."""
MOST_OF_GANGS: Final = 48
"""Changes that are tried for the members of a gang together."""
SECONDS: Final = 30.0
"""Time after which no further change is tried."""
_MOST_NODES: Final = 64
"""Nodes on which a change is tried for a single pod."""
_MOST_NAMED: Final = 3


class Trials:
    """Tries changes for one pod or its gang, as many as MOST_TRIALS or MOST_OF_GANGS."""

    def __init__(self, view: ClusterView, pod: Pod) -> None:
        self._view = view
        self._pod = pod
        self._trial = TrialView(view)
        self.of_gang = _is_in_gang(view, pod)
        self._most = MOST_OF_GANGS if self.of_gang else MOST_TRIALS
        self._left = self._most
        self._share_used = False
        self._end = view.monotonic + SECONDS
        self._made: tuple[ProposedChange, ...] = ()

    @property
    def limit(self) -> str:
        """That a limit was reached, as a sentence; empty if none was."""
        if self._left <= 0:
            return f"{self._most} changes were tried, which is the limit"
        return f"changes were tried for {SECONDS:g} s, which is the limit" if self._view.monotonic > self._end else ""

    @property
    def note(self) -> str:
        """As `limit`, also where the share of a reason was used up."""
        return self.limit or (f"changes against one reason took its share of {self._most}" if self._share_used else "")

    @contextmanager
    def shared(self, reasons: int) -> Iterator[None]:
        """Inside, no more changes are tried than the share of one of so many reasons."""
        before = self._left
        self._left = share = min(before, max(1, self._most // max(1, reasons)))
        try:
            yield
        finally:
            self._share_used |= self._left <= 0 < before
            self._left += before - share

    def first(self, changes: Iterable[ProposedChange | None], nodes: Sequence[str]) -> NextStep | None:
        """The first of these changes after which the pod fits; one that helps with devices alone if no other does."""
        of_devices: NextStep | None = None
        for each in changes:
            found = None if each is None else self.of(each, nodes)
            if found is not None and found.verified == DEVICES_AND_NODES:
                return found
            of_devices = of_devices or found
        return of_devices

    def of(self, change: ProposedChange, nodes: Sequence[str], *, again: bool = False) -> NextStep | None:
        """On which of these nodes the pod fits after the change; None if on none, or if a limit is reached.

        `again`: the change was tried already, and counts towards no limit.
        """
        if not again:
            if self.limit:
                return None
            self._left -= 1
        with self._trial.changed(change.changes):
            made = together((*self._made, change))
            return self._gang_fits(made) if self.of_gang else self._fits(made, nodes[:_MOST_NODES])

    @contextmanager
    def within(self, change: ProposedChange) -> Iterator[None]:
        """Inside, the change has been made, and what is tried is tried in addition to it."""
        before, self._made = self._made, (*self._made, change)
        try:
            with self._trial.changed(change.changes):
                yield
        finally:
            self._made = before

    @property
    def made(self) -> ProposedChange:
        """What has been made already, as one change."""
        return together(self._made)

    def _fits(self, change: ProposedChange, nodes: Sequence[str]) -> NextStep | None:
        fitting = sorted(self._view.try_on(self._pod, self._open(nodes)).fits)
        usable = [name for name in fitting if self._usable(name, change)]
        verified = DEVICES_AND_NODES if usable else DEVICES_ONLY
        named = tuple((usable or fitting)[:_MOST_NAMED])
        return NextStep(text=change.text, nodes=named, verified=verified) if fitting else None

    def _gang_fits(self, change: ProposedChange) -> NextStep | None:
        """Return whether enough members of the gang get devices at once and fit on their nodes together."""
        nodes = self._open(self._view.ledger.nodes)
        self._view.offer_gang(self._pod, change.ended)
        planned = self._view.extender.gang_account(self._pod, nodes, partly=False)
        if planned is None:
            return None
        with planned as account:
            placed = account.placed
        if not placed or len(placed) < account.needed:
            return None
        usable = self._view.node_fit is not None and not refused_together(self._view, placed, change.ended)
        nodes = tuple(dict.fromkeys(each.node for each in placed))
        verified = DEVICES_AND_NODES if usable else DEVICES_ONLY
        return NextStep(text=change.text, nodes=nodes[:_MOST_NAMED], verified=verified)

    def _open(self, nodes: Iterable[str]) -> tuple[str, ...]:
        """Return the nodes that are not closed to the pod: not ready, cordoned, tainted, or being deleted."""
        return tuple(name for name in nodes if name not in self._closed)

    @cached_property
    def _closed(self) -> Container[str]:
        fit = self._view.node_fit
        needs = None if fit is None else fit.needs(self._pod.key)
        if fit is None or needs is None:
            return ()
        return {name for name in self._view.ledger.nodes if fit.is_closed(needs, name)}

    def _usable(self, node: str, change: ProposedChange) -> bool:
        """Whether kube-scheduler's other filters let the pod on the node; False where they cannot be judged."""
        fit = self._view.node_fit
        needs = None if fit is None else fit.needs(self._pod.key)
        return fit is not None and needs is not None and not fit.refusals(needs, node, released=change.ended)


def refused_together(view: ClusterView, placed: Sequence["PlacedMember"], ended: Collection[str] = ()) -> str:
    """Return which of these members kube-scheduler's other filters keep from its node beside those before it, and why.

    Empty if there is none, or if nothing is known.  The pods `ended` (`namespace/name`) are gone by then.
    """
    fit = view.node_fit
    added: list[PodNeeds] = []
    if fit is None:
        return ""
    try:
        for each in placed:
            needs = fit.needs(each.pod.key)
            refusals = () if needs is None else fit.refusals(needs, each.node, ended)
            if refusals:
                return f"{each.pod.name} does not fit on {each.node} beside the other members: {refusals[0].said}"
            if needs is not None:
                added.append(needs)
                fit.add(msgspec.structs.replace(needs, node=each.node))
    finally:
        for needs in added:
            fit.add(needs)
    return ""


def _is_in_gang(view: ClusterView, pod: Pod) -> bool:
    group: PodGroup | None = None
    if pod.pod_group is not None:
        group = view.ledger.pod_groups.get(pod.namespace, pod.pod_group)
    return group is not None and group.min_count is not None
