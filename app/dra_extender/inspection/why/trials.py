"""Trials of changes, for one pod or its gang."""

from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Final

import msgspec

from dra_extender.allocator.state.reasons import Code, Rejection
from dra_extender.inspection.cluster_view import ClusterView
from dra_extender.inspection.why.changes import ProposedChange, ProposedStep, together
from dra_extender.inspection.why.report import DEVICES_AND_NODES, DEVICES_ONLY, EXAMPLES
from dra_extender.model.pod import Pod
from dra_extender.nodefit.node_fit import NodeRefusal, aggregated, reported
from dra_extender.nodefit.pod_needs import PodNeeds
from dra_extender.scheduling.claims.lookup import gang_of

if TYPE_CHECKING:
    from dra_extender.scheduling.gang.plans import GangDiagnosis

MOST_TRIALS: Final = 96
"""Changes that are tried for one pod."""
MOST_OF_GANGS: Final = 48
"""Changes that are tried for the members of a gang together."""
SECONDS: Final = 30.0
"""Time after which no further change is tried."""
_MOST_NODES: Final = 64
"""Nodes on which a change is tried for a single pod."""


class Trials:
    """Tries changes for one pod or its gang, as many as MOST_TRIALS or MOST_OF_GANGS."""

    def __init__(self, view: ClusterView, pod: Pod) -> None:
        self._view = view
        self.pod = pod
        self.of_gang = gang_of(pod, view.ledger) is not None
        self._most = MOST_OF_GANGS if self.of_gang else MOST_TRIALS
        self._left = self._most
        self._share_used = False
        self._end = view.monotonic + SECONDS
        self._applied: tuple[ProposedChange, ...] = ()
        self._known: dict[Hashable, ProposedStep | None] = {}

    @property
    def limit(self) -> str:
        """Say in a sentence which limit was reached; empty if none was."""
        if self._left <= 0:
            return f"{self._most} changes were tried, which is the limit"
        return f"changes were tried for {SECONDS:g} s, which is the limit" if self._view.monotonic > self._end else ""

    @property
    def note(self) -> str:
        """Say what `limit` says, or that the share of a reason was used up."""
        return self.limit or (f"changes against one reason took its share of {self._most}" if self._share_used else "")

    @contextmanager
    def shared(self, reasons: int) -> Iterator[None]:
        """Limit the trials inside the `with` to an equal share of all trials, for one of `reasons` reasons."""
        before = self._left
        self._left = share = min(before, max(1, self._most // max(1, reasons)))
        try:
            yield
        finally:
            self._share_used |= self._left <= 0 < before
            self._left += before - share

    def first_that_helps(self, changes: Iterable[ProposedChange | None], nodes: Sequence[str]) -> ProposedStep | None:
        """Return the first of these changes after which the pod fits; one that helps only with devices if no other does."""
        of_devices: ProposedStep | None = None
        for change in changes:
            step = None if change is None else self.try_change(change, nodes)
            if step is not None and step.helps:
                return step
            of_devices = of_devices or step
        return of_devices

    def try_change(self, change: ProposedChange, nodes: Sequence[str]) -> ProposedStep | None:
        """Return on which of these nodes the pod fits after the change; None if on none, or if a limit is reached.

        What was tried before, in any order, is known and counts towards no limit.
        """
        combined, nodes = together((*self._applied, change)), () if self.of_gang else tuple(nodes[:_MOST_NODES])
        key = combined.effect, nodes
        if key not in self._known:
            if self.limit:
                return None
            self._left -= 1
            with self._view.changed(change.changes):
                if self.of_gang:
                    self._known[key] = self._gang_fits(combined)
                else:
                    fitting = sorted(self._view.evaluate(self.pod, self._open(nodes)).fits)
                    fit = self._view.pod_fit(self.pod, combined.ended)
                    usable = [] if fit is None else [name for name in fitting if not fit.refusals(name)]
                    self._known[key] = _step(combined, usable or fitting, usable=bool(usable)) if fitting else None
        known = self._known[key]
        return None if known is None else known._replace(change=combined)

    @contextmanager
    def within(self, change: ProposedChange) -> Iterator[None]:
        """Apply this change to all trials inside the `with`."""
        before, self._applied = self._applied, (*self._applied, change)
        try:
            with self._view.changed(change.changes):
                yield
        finally:
            self._applied = before

    @property
    def applied_change(self) -> ProposedChange:
        return together(self._applied)

    def _gang_fits(self, change: ProposedChange) -> ProposedStep | None:
        """Return whether the pod and enough other members of its gang get devices at once and fit on their nodes together."""
        nodes = self._open(self._view.ledger.nodes)
        with planned_gang(self._view, self.pod, nodes, change.ended, partly=False) as diagnosis:
            if diagnosis is None:
                return None
        placed, unplaced = diagnosis.placed, {pod.uid for pod in diagnosis.waiting}
        unplaced.update(pod.uid for pod, _ in diagnosis.unready)
        if not placed or len(placed) < diagnosis.needed or self.pod.uid in unplaced:
            return None
        with on_their_nodes(self._view, diagnosis, change.ended) as refused:
            usable = self._view.node_fit is not None and refused is None
        return _step(change, tuple(dict.fromkeys(member.node for member in placed)), usable=usable)

    def _open(self, nodes: Iterable[str]) -> tuple[str, ...]:
        """Return the nodes that are not closed to the pod: not ready, cordoned, tainted, or being deleted."""
        fit = self._view.pod_fit(self.pod)
        return tuple(name for name in nodes if fit is None or not fit.is_closed(name))


def _step(change: ProposedChange, nodes: Sequence[str], *, usable: bool) -> ProposedStep:
    return ProposedStep(change, tuple(nodes[:EXAMPLES]), DEVICES_AND_NODES if usable else DEVICES_ONLY)


@contextmanager
def planned_gang(
    view: ClusterView, pod: Pod, nodes: Sequence[str], ended: Collection[str] = (), *, partly: bool = True
) -> Iterator["GangDiagnosis | None"]:
    """Plan the pod's gang when the pods `ended` are gone, and hold its devices inside the `with`; None if it is in no gang.

    `partly`: as many members as fit are placed if not all fit.
    """
    usable = view.offer_gang(pod, ended)
    planned = view.extender.diagnose_gang(pod, nodes, partly=partly)
    with planned or nullcontext() as diagnosis:
        yield None if diagnosis is None else _with_stranded(view, diagnosis, usable, ended)
    view.hold_again()


def _with_stranded(
    view: ClusterView, diagnosis: "GangDiagnosis", usable: Mapping[str, Sequence[str]], ended: Collection[str]
) -> "GangDiagnosis":
    """Return the diagnosis without the decided members that no node takes: the extender places no member that needs no devices."""
    stranded = [pod for pod in diagnosis.decided if usable.get(pod.uid) == [] and not view.ledger.holds.of_pod(pod.uid)]
    unready = [*diagnosis.unready, *((pod, _no_node(view, pod, ended)) for pod in stranded)]
    diagnosis = diagnosis._replace(
        needed=diagnosis.needed + len(stranded),
        decided=tuple(pod for pod in diagnosis.decided if pod not in stranded),
        unready=tuple(sorted(unready, key=lambda entry: entry[0].name)),
    )
    if stranded and diagnosis.cannot_start:
        placed = (member.pod for member in diagnosis.placed)
        diagnosis = diagnosis._replace(placed=(), waiting=(*placed, *diagnosis.waiting))
    return diagnosis


def _no_node(view: ClusterView, pod: Pod, ended: Collection[str]) -> Rejection:
    fit, nodes = view.pod_fit(pod, ended), view.ledger.nodes
    reasons = [] if fit is None else [text for name in nodes for text in reported(fit.refusals(name))]
    return Rejection(code=Code.NO_NODE, detail=aggregated(len(nodes), reasons))


@contextmanager
def on_their_nodes(
    view: ClusterView, diagnosis: "GangDiagnosis", ended: Collection[str] = ()
) -> Iterator[tuple[Pod, str, NodeRefusal] | None]:
    """Count members on their nodes inside the `with`, when the pods `ended` (`namespace/name`) are gone.

    A decided member that is not bound takes the first node that lets it in.  Yield the first member that kube-scheduler's other
    filters keep from its node beside those before it, its node, and why; None if there is none.
    """
    added, refused = list[PodNeeds](), None
    try:
        for pod, node in (*diagnosis.placed, *((pod, "") for pod in diagnosis.decided if not pod.node_name)):
            fit = view.pod_fit(pod, ended)
            if fit is None or not view.ledger.nodes:
                continue
            nodes = [node] if node else view.ledger.nodes
            refusals = {name: fit.refusals(name) for name in nodes}
            name = next((name for name in nodes if not refusals[name]), next(iter(nodes)))
            if refusals[name]:
                refused = pod, name, refusals[name][0]
                break
            added.append(fit.needs)
            view.count_pod(msgspec.structs.replace(fit.needs, node=name))
        yield refused
    finally:
        for needs in added:
            view.count_pod(needs)
