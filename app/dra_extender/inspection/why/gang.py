"""The plan of a gang for people: which members have a place, which one blocks the gang, why the others wait, and what helps."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Final

import msgspec

from dra_extender.allocator.state.reasons import Code
from dra_extender.inspection.cluster_view import ClusterView
from dra_extender.inspection.why.changes import ENDS, NO_GATES, ProposedChange, gates_text, with_fields
from dra_extender.inspection.why.names import existing_names
from dra_extender.inspection.why.next_steps import advice
from dra_extender.inspection.why.node_steps import NodeSteps
from dra_extender.inspection.why.reasons import Reasons
from dra_extender.inspection.why.report import (
    DEVICES_AND_NODES,
    Branch,
    GangMembers,
    GangReport,
    MemberState,
    NextStep,
    NodeReason,
)
from dra_extender.inspection.why.reported import meant_scheduler, scheduler_text
from dra_extender.inspection.why.trials import Trials
from dra_extender.model.api_json import listed, number_of
from dra_extender.model.pod import Pod
from dra_extender.scheduling.evaluation.result import FilterResult

if TYPE_CHECKING:
    from dra_extender.scheduling.gang.plans import GangDiagnosis

_MOST_NAMES: Final = 100
_HELD: Final = "held"
_MOST_HELPED: Final = 3
"""Members for which a step is named."""
_MOST_TRIED: Final = 2
"""Changes of one member that are tried."""
_MOST_CHANGED: Final = 64
"""Members that are tried with other specs."""


def gang_report(
    view: ClusterView, diagnosis: "GangDiagnosis", branches: Sequence[Branch], node_reasons: Sequence[NodeReason]
) -> GangReport:
    """Return the gang with its members by state; `branches` and `node_reasons` say why the first waiting member has no place."""
    group = diagnosis.group
    total = len(diagnosis.decided) + len(diagnosis.placed) + len(diagnosis.waiting) + len(diagnosis.unready)
    return GangReport(
        pod_group="/".join(group.metadata.key),
        min_count=group.min_count or 0,
        total=total,
        placed=len(diagnosis.decided) + len(diagnosis.placed),
        members=tuple(_members(view, diagnosis, blocker_text(branches, node_reasons))),
    )


def gang_summary(gang: GangReport) -> str:
    """E.g. `PodGroup ml/train: 5 of 8 placed, all 8 needed`, and the first member that cannot be placed if that decides."""
    needed = "all" if gang.min_count >= gang.total else "at least"
    exist = "" if gang.total >= gang.min_count else f", {gang.total} {'exists' if gang.total == 1 else 'exist'}"
    placed = f"{gang.placed} of {max(gang.total, gang.min_count)} placed"
    first = next(iter(gang.members), None)
    lacking = f"; {first.names[0]}: {first.text}" if first is not None and first.state is MemberState.UNREADY else ""
    return f"PodGroup {gang.pod_group}: {placed}, {needed} {gang.min_count} needed{exist}{lacking}"


def unready_summary(view: ClusterView, pod: Pod) -> str:
    """Return the summary of the pod's gang if no node takes the pod, and the gang cannot start without it; otherwise nothing."""
    refusal = view.ledger.member_fit.refusal(pod.uid)
    planned = view.extender.gang_account(pod, tuple(view.ledger.nodes), partly=False) if refusal else None
    if planned is None:
        return ""
    with planned as diagnosis:
        summary = gang_summary(gang_report(view, diagnosis, (), ())) if diagnosis.cannot_start else ""
    view.hold_again()
    return summary


def gang_steps(view: ClusterView, pod: Pod, diagnosis: "GangDiagnosis", gang: GangReport) -> Iterator[NextStep]:
    """Yield how many members have to be created, and what helps other members than the pod without which the gang cannot start."""
    lacking = gang.min_count - gang.total
    if lacking > 0:
        yield NextStep(text=f"create {number_of(lacking, 'more member')} of PodGroup {gang.pod_group}")
    unready = [entry for entry in diagnosis.unready if entry[0].uid != pod.uid] if diagnosis.cannot_start else []
    for members, text, fields in _lacking_fields(view, pod, diagnosis) if diagnosis.cannot_start else ():
        steps = () if len(members) > _MOST_CHANGED else _tried(view, pod, members, text, fields)
        yield from steps or (NextStep(text=text),)
    for member, rejection in unready[:_MOST_HELPED]:
        if rejection.code is Code.NO_NODE:
            yield from _on_a_node(view, pod, member)
        elif text := advice(view, member, rejection):
            # Whether the gang fits then was not tried.
            yield NextStep(text=f"{member.name}: {text}", harmful=text.startswith(ENDS))


def _on_a_node(view: ClusterView, pod: Pod, member: Pod) -> Iterator[NextStep]:
    """Yield what lets a member go to a node, and the gang fit; less of a resource is not said unless the gang fits then."""
    node_steps, changes = NodeSteps(view, member), dict[str, Mapping[str, object]]()
    for beside in ({}, _needed_by_others(view, member)):
        for text, fields in islice(node_steps.spec_changes(beside), _MOST_TRIED):
            if text in changes:
                continue
            changes[text] = fields
            steps = _tried(view, pod, [member], f"{member.name}: {text}", fields)
            fitting = [step for step in steps if step.verified == DEVICES_AND_NODES]
            if fitting:
                yield from fitting
                return
    for step in node_steps.steps_on_all()[:1]:
        if "containers" not in changes.get(step.text, ()):
            yield msgspec.structs.replace(step, text=f"{member.name}: {step.text}", nodes=(), verified="")


def _needed_by_others(view: ClusterView, member: Pod) -> Mapping[str, int]:
    """Return what the other members of a gang that wait for a node need together, by resource."""
    needed: Counter[str] = Counter()
    for other in view.ledger.pods.members(member.namespace, member.pod_group or ""):
        needs = None if view.node_fit is None else view.node_fit.needs(other.key)
        if needs is not None and other.waits_for_node and other.uid != member.uid:
            needed.update(needs.amounts)
    return needed


def _lacking_fields(
    view: ClusterView, pod: Pod, diagnosis: "GangDiagnosis"
) -> Iterator[tuple[Sequence[Pod], str, Mapping[str, object]]]:
    """Yield members whose specs have to have other fields, with what to do about it: no scheduling gates, a scheduler that acts."""
    gated = [
        member for member, rejection in diagnosis.unready if rejection.code is Code.POD_GATED and member.uid != pod.uid
    ]
    if gated:
        yield gated, gates_text(gated), NO_GATES
    absent = [member for member, rejection in diagnosis.unready if rejection.code is Code.SCHEDULER_ABSENT]
    name = meant_scheduler(absent[0], view.acting_schedulers, pod.scheduler_name) if absent else None
    if name is not None:
        own = [member.uid for member in absent] == [pod.uid]
        names = "" if own else f"{listed([member.name for member in absent])}: "
        yield absent, names + scheduler_text(absent[0], name), {"schedulerName": name}


def _tried(
    view: ClusterView, pod: Pod, members: Sequence[Pod], text: str, fields: Mapping[str, object]
) -> Sequence[NextStep]:
    """Return what helps the gang if members have other fields in their specs, where needed with a further change."""
    change, trials = with_fields(view, members, text, fields), Trials(view, pod)
    step = trials.try_change(change, ())
    return (step,) if step is not None else _steps_after(view, pod, trials, change)


def _steps_after(view: ClusterView, pod: Pod, trials: Trials, change: ProposedChange) -> Sequence[NextStep]:
    """Return what helps the gang together with a change after which one of its members still has no place."""
    nodes = tuple(view.ledger.nodes)
    with trials.within(change):
        view.offer_gang(pod)
        planned = view.extender.gang_account(pod, nodes)
        if planned is None:
            return ()
        with planned as diagnosis:
            blocker = None if diagnosis.cannot_start else next(iter(diagnosis.waiting), None)
            result = FilterResult() if blocker is None else view.extender.evaluate_without_gang(blocker, nodes)
            reasons = Reasons(
                view, blocker or pod, result, trials, names_pod=blocker is not None and blocker.uid != pod.uid
            )
        view.hold_again()
        return tuple(step for step in reasons.steps() if step.nodes)


def _members(view: ClusterView, diagnosis: "GangDiagnosis", blocker: str) -> Iterator[GangMembers]:
    unready = [
        GangMembers(
            state=MemberState.UNREADY,
            names=(pod.name,),
            text=rejection.text + existing_names(view, pod, rejection),
        )
        for pod, rejection in diagnosis.unready[:_MOST_NAMES]
    ]
    waiting, placed = _names(diagnosis.waiting), diagnosis.placed[:_MOST_NAMES]
    if diagnosis.cannot_start:
        yield from unready
        for members in _decided(view, diagnosis.decided):
            # What is held is released.
            yield msgspec.structs.replace(members, state=MemberState.WAITING) if members.text == _HELD else members
        if waiting:
            yield GangMembers(state=MemberState.WAITING, names=waiting)
        return
    yield from _decided(view, diagnosis.decided)
    if placed:
        names, nodes = zip(*((member.pod.name, member.node) for member in placed), strict=True)
        yield GangMembers(state=MemberState.PLACED, names=names, nodes=nodes)
    if waiting:
        blocks = diagnosis.needed > len(diagnosis.placed)
        state = MemberState.BLOCKED if blocks else MemberState.WAITING
        yield GangMembers(state=state, names=waiting[:1], text=blocker)
    if len(diagnosis.waiting) > 1:
        yield GangMembers(state=MemberState.WAITING, names=_names(diagnosis.waiting[1:]))
    yield from unready


def _names(pods: Sequence[Pod]) -> tuple[str, ...]:
    return tuple(pod.name for pod in pods[:_MOST_NAMES])


def _decided(view: ClusterView, decided: Sequence[Pod]) -> Iterator[GangMembers]:
    """Yield members that run, whose claims are allocated, or for which the running service holds devices until a time."""
    bound = [pod for pod in decided if pod.node_name]
    with_holds = [pod for pod in decided if not pod.node_name and view.ledger.holds.of_pod(pod.uid)]
    allocated = [pod for pod in decided if not pod.node_name and pod not in with_holds]
    if bound:
        nodes = tuple(pod.node_name for pod in bound[:_MOST_NAMES])
        yield GangMembers(state=MemberState.BOUND, names=_names(bound), nodes=nodes)
    if allocated:
        yield GangMembers(state=MemberState.ALLOCATED, names=_names(allocated))
    if with_holds:
        holds = [view.ledger.holds.of_pod(pod.uid) for pod in with_holds]
        ends = {hold.claim_uid: hold.until for hold in view.hold_report.holds}
        until = (ends[hold.claim_uid] for of_pod in holds for hold in of_pod if hold.claim_uid in ends)
        yield GangMembers(
            state=MemberState.PLACED,
            names=_names(with_holds),
            nodes=tuple(next(iter(of_pod[0].placements)) for of_pod in holds[:_MOST_NAMES]),
            text=_HELD,
            until=min(until, default=None),
        )


def blocker_text(branches: Sequence[Branch], node_reasons: Sequence[NodeReason] = ()) -> str:
    """Return the reason of the closest nodes, for each request, and beside devices."""
    blockers = [(branch.request or branch.claim, branch.reasons[0]) for branch in branches if branch.reasons]
    blockers += [("", reason) for reason in node_reasons[:1]]
    return "; ".join(
        f"{where}{': ' if where else ''}{reason.text} ({number_of(reason.nodes, 'node')})" for where, reason in blockers
    )
