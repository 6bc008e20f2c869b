"""The plan of a gang for people: which members have a place, which one blocks the gang, why the others wait, and what helps."""

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from dra_extender.allocator.state.reasons import Code, Rejection
from dra_extender.inspection.cluster_view import ClusterView, ObjectChange, needs_key
from dra_extender.inspection.why.advice import advice
from dra_extender.inspection.why.cause import OF_DEVICES, Distance, claims_key, distance, judge_nodes, unknown_labels
from dra_extender.inspection.why.changes import (
    ProposedChange,
    ProposedStep,
    advised,
    together,
    with_fields,
    without_gates,
)
from dra_extender.inspection.why.names import existing_names
from dra_extender.inspection.why.node_steps import NodeSteps
from dra_extender.inspection.why.reasons import Reasons
from dra_extender.inspection.why.report import (
    EXAMPLES,
    Branch,
    GangMembers,
    GangReport,
    MemberState,
    NodeReason,
)
from dra_extender.inspection.why.reported import meant_scheduler, scheduler_text
from dra_extender.inspection.why.trials import Trials, on_their_nodes, planned_gang
from dra_extender.model.api_json import listed, number_of
from dra_extender.model.pod import Pod
from dra_extender.nodefit.node_fit import CLOSED, CORDONED, NodeFilter
from dra_extender.scheduling.evaluation.filter_result import FilterResult
from dra_extender.simulator.apiserver.objects import StoredKind

if TYPE_CHECKING:
    from dra_extender.scheduling.gang.plans import GangDiagnosis

_HIDING: Final = frozenset({Code.NO_NODE, Code.POD_GATED, Code.SCHEDULER_ABSENT})
"""What keeps a member away before its devices are looked for."""
_MOST_NAMES: Final = 100
_MOST_HELPED: Final = 3
"""Members for which a step is named."""
_MOST_TRIED: Final = 2
"""Changes of one kind that are tried, and changes after which further ones are."""
_MOST_READYING: Final = 3
"""Changes that are made together."""
_MOST_WRONG: Final = 8
"""Different claims of waiting members that are looked at for what is wrong by itself."""
_MOST_OPENED: Final = 6
"""Cordoned nodes that are tried without the cordon."""
_MOST_CHANGED: Final = 64
"""Members that are tried with other specs."""


class GangAccount(NamedTuple):
    """The plan of a gang, and the reasons against the member that blocks it.

    `node_reasons`: the reasons beside devices against this member.  `crowded` says which member its node refuses beside the other
    members; empty if none.
    """

    diagnosis: "GangDiagnosis"
    gang: GangReport
    reasons: Reasons
    node_reasons: tuple[NodeReason, ...]
    crowded: str


def account_of_gang(
    view: ClusterView, pod: Pod, result: FilterResult, node_reasons: tuple[NodeReason, ...]
) -> GangAccount | None:
    """Plan the pod's gang, and find the reasons against the member that blocks it; return None if the pod is in no gang.

    `result` and `node_reasons` are those of the pod, which count where no other member blocks the gang.
    """
    nodes = tuple(view.ledger.nodes)
    with planned_gang(view, pod, nodes) as diagnosis:
        if diagnosis is None:
            return None
        own = next((obstacle for member, obstacle in diagnosis.unready if member.uid == pod.uid), None)
        if diagnosis.cannot_start and own is not None and own.claim:
            reasons = Reasons(view, pod, result)
        elif diagnosis.cannot_start:
            reasons = _hidden_reasons(view, pod, diagnosis, nodes) or Reasons(view, pod, FilterResult())
        elif diagnosis.waiting:
            blocker = diagnosis.waiting[0]
            alone = view.extender.evaluate_without_gang(blocker, nodes)
            node_reasons = judge_nodes(view, blocker, tuple(alone.fits)).reasons
            reasons = Reasons(view, blocker, alone, Trials(view, pod))
        else:
            reasons = Reasons(view, pod, FilterResult() if diagnosis.placed else result)
    with on_their_nodes(view, diagnosis) as refused:
        crowded = ""
        if refused is not None:
            member, node, refusal = refused
            crowded = f"{member.name} does not fit on {node} beside the other members: {refusal.description}"
    gang = _gang_report(view, diagnosis, reasons.branches(), node_reasons)
    return GangAccount(diagnosis, gang, reasons, node_reasons, crowded)


def _gang_report(
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
    if not view.ledger.member_fit.refusal(pod.uid):
        return ""
    with planned_gang(view, pod, tuple(view.ledger.nodes), partly=False) as diagnosis:
        if diagnosis is None or not diagnosis.cannot_start:
            return ""
        return gang_summary(_gang_report(view, diagnosis, (), ()))


def gang_steps(view: ClusterView, pod: Pod, diagnosis: "GangDiagnosis", gang: GangReport) -> Iterator[ProposedStep]:
    """Yield how many members have to be created, and what lets members go to a node without which the gang cannot start."""
    lacking = gang.min_count - gang.total
    if lacking > 0:
        yield advised(f"create {number_of(lacking, 'more member')} of PodGroup {gang.pod_group}")
    changes = [change for change in _readying(view, pod, diagnosis) if len(change.changes) <= _MOST_CHANGED]
    steps = list(_first_that_help(view, pod, Trials(view, pod), changes, _MOST_READYING))
    yield from steps
    if not diagnosis.cannot_start:
        return
    refused = [member for member, rejection in diagnosis.unready if rejection.code is Code.NO_NODE]
    if not steps:
        yield from map(ProposedStep, _lacking_fields(view, pod, diagnosis))
        for members in _alike(view, refused):
            yield from _untried(view, pod, members)
    by_rejection = dict[Rejection, list[Pod]]()
    for member, rejection in diagnosis.unready:
        by_rejection.setdefault(rejection, []).append(member)
    texts = ((advice(view, members[0], rejection), members) for rejection, members in by_rejection.items())
    of_others = ((text, name) for text, members in texts if text and (name := _names_beside(pod, members)))
    # Whether the gang fits then was not tried.
    yield from (advised(text, name) for text, name in islice(of_others, _MOST_HELPED))


def _readying(view: ClusterView, pod: Pod, diagnosis: "GangDiagnosis") -> Iterator[ProposedChange]:
    """Yield changes after which members of a gang may go to a node.

    Those are the members that cannot, otherwise the first that has no place, or that its node refuses beside the others.
    """
    if diagnosis.cannot_start:
        yield from _lacking_fields(view, pod, diagnosis)
        refused = [member for member, rejection in diagnosis.unready if rejection.code is Code.NO_NODE]
    else:
        refused = list(diagnosis.waiting[:1])
        for blocker in refused:
            alone = view.extender.evaluate_without_gang(blocker, tuple(view.ledger.nodes))
            yield from Reasons(view, blocker, alone, Trials(view, pod)).corrections()
    if refused:
        yield from _opening(view, pod, refused)
        return
    with on_their_nodes(view, diagnosis) as crowded:
        changes = [] if crowded is None else list(_opening(view, pod, crowded[:1]))
    yield from changes


def _opening(view: ClusterView, pod: Pod, refused: Sequence[Pod]) -> Iterator[ProposedChange]:
    """Yield changes after which nodes take these members, or members that need the same."""
    yield from _opened(view, refused)
    for members in _alike(view, refused):
        yield from _on_a_node(view, pod, members)
        yield from (step.change for step in NodeSteps(view, members[0]).steps_on_all() if step.change.only_ends)


def _first_that_help(
    view: ClusterView, pod: Pod, trials: Trials, changes: Sequence[ProposedChange], most: int
) -> Iterator[ProposedStep]:
    """Yield the first change after which the gang fits that harms nobody, and the first other one.

    If none helps alone, yield one with what helps after it; `most` changes together.
    """
    opened = [change for change in changes if {entry.kind for entry in change.changes} == {StoredKind.NODE}]
    # Further open nodes never hurt: where all of them do not help, none of them does.
    if opened and trials.try_change(opened[-1], ()) is None:
        tried = [change for change in changes if not any(change is other for other in opened)]
    else:
        tried = [*changes]
    by_harm = ([change for change in tried if change.harmful is harmful] for harmful in (False, True))
    steps = [step for same in by_harm if (step := trials.first_that_helps(same, ())) is not None]
    helping = [step for step in steps if step.helps]
    if helping:
        yield from helping
        return
    for change in changes[:_MOST_TRIED] if most else ():
        further = _steps_after(view, pod, trials, change, most - 1)
        if further:
            yield from further
            return


def _steps_after(
    view: ClusterView, pod: Pod, trials: Trials, change: ProposedChange, most: int
) -> Sequence[ProposedStep]:
    """Return what helps the gang together with a change after which one of its members still has no place."""
    nodes = tuple(view.ledger.nodes)
    with trials.within(change):
        with planned_gang(view, pod, nodes, trials.applied_change.ended) as diagnosis:
            if diagnosis is None:
                return ()
            blocker = None if diagnosis.cannot_start else next(iter(diagnosis.waiting), None)
            result = FilterResult() if blocker is None else view.extender.evaluate_without_gang(blocker, nodes)
            reasons = Reasons(view, blocker or pod, result, trials)
        steps = reasons.helping_steps()
        if steps or not most:
            return steps
        return tuple(_first_that_help(view, pod, trials, list(_readying(view, pod, diagnosis)), most))


def _opened(view: ClusterView, members: Sequence[Pod]) -> Iterator[ProposedChange]:
    """Yield cordoned nodes without the cordon: the first that a member would be nearest to, and so many more."""
    nearest = dict[str, Distance]()
    for fit in filter(None, map(view.pod_fit, members[:_MOST_HELPED])):
        for name in view.ledger.nodes:
            refusals = fit.refusals(name)
            if {refusal.filter for refusal in refusals} & CLOSED == {NodeFilter.UNSCHEDULABLE}:
                nearest[name] = min(nearest.get(name, distance(refusals)), distance(refusals))
    names = sorted(nearest, key=lambda name: (nearest[name], name))[:_MOST_OPENED]
    uncordoned = list(map(partial(_uncordoned, view), names))
    yield from uncordoned
    yield from (together(uncordoned[:number]) for number in range(2, len(uncordoned) + 1))


def _uncordoned(view: ClusterView, name: str) -> ProposedChange:
    before = view.stored(StoredKind.NODE, name) or {}
    spec = before.get("spec") or {}
    taints = [taint for taint in spec.get("taints") or () if taint.get("key") != CORDONED.key]
    after = {**before, "spec": {**spec, "unschedulable": False, "taints": taints}}
    return ProposedChange((f"uncordon {name}",), (ObjectChange(StoredKind.NODE, before, after),))


def _alike(view: ClusterView, members: Sequence[Pod]) -> Sequence[Sequence[Pod]]:
    """Return the members by what they need of a node."""
    by_needs = dict[bytes, list[Pod]]()
    for member in members:
        fit = view.pod_fit(member)
        if fit is not None:
            by_needs.setdefault(needs_key(fit.needs), []).append(member)
    return list(by_needs.values())[:_MOST_HELPED]


def _on_a_node(view: ClusterView, pod: Pod, members: Sequence[Pod]) -> Iterator[ProposedChange]:
    """Yield changes of members that need the same, after which they may go to a node: of the first one, and of all of them."""
    first = members[0]
    node_steps, texts = NodeSteps(view, first), set[str]()
    for beside in ({}, _needed_by_others(view, first)):
        for change, fields in islice(node_steps.spec_changes(beside), _MOST_TRIED):
            if change.text not in texts:
                texts.add(change.text)
                for some in (members[:1], members)[: len(members)]:
                    yield with_fields(view, some, change.of(_names_beside(pod, some)), fields)


def _untried(view: ClusterView, pod: Pod, members: Sequence[Pod]) -> Iterator[ProposedStep]:
    """Yield what lets members that need the same go to a node, whether or not the gang fits then.

    Less of a resource is not said.
    """
    node_steps = NodeSteps(view, members[0])
    changes = islice(node_steps.spec_changes({}), _MOST_TRIED)
    lowering = [change.text for change, fields in changes if "containers" in fields]
    for step in node_steps.steps_on_all()[:1]:
        if step.change.text not in lowering:
            yield ProposedStep(step.change.of(_names_beside(pod, members)))


def _names_beside(pod: Pod, members: Sequence[Pod]) -> str:
    """Return the names of members of which a text has to say whose it is; empty for the pod that was asked about."""
    return "" if [member.uid for member in members] == [pod.uid] else listed(sorted(member.name for member in members))


def _needed_by_others(view: ClusterView, member: Pod) -> Mapping[str, int]:
    """Return what the other members of a gang that wait for a node need together, by resource."""
    needed: Counter[str] = Counter()
    for other in view.ledger.pods.members(member.namespace, member.pod_group or ""):
        fit = view.pod_fit(other)
        if fit is not None and other.waits_for_node and other.uid != member.uid:
            needed.update(fit.needs.amounts)
    return needed


def _lacking_fields(view: ClusterView, pod: Pod, diagnosis: "GangDiagnosis") -> Iterator[ProposedChange]:
    """Yield members whose specs have to have other fields: no scheduling gates, a scheduler that acts."""
    gated = [
        member for member, rejection in diagnosis.unready if rejection.code is Code.POD_GATED and member.uid != pod.uid
    ]
    if gated:
        yield without_gates(view, gated)
    absent = [member for member, rejection in diagnosis.unready if rejection.code is Code.SCHEDULER_ABSENT]
    name = meant_scheduler(absent[0], view.acting_schedulers, pod.scheduler_name) if absent else None
    if name is not None:
        change = ProposedChange((scheduler_text(absent[0], name),)).of(_names_beside(pod, absent))
        yield with_fields(view, absent, change, {"schedulerName": name})


def _members(view: ClusterView, diagnosis: "GangDiagnosis", blocker: str) -> Iterator[GangMembers]:
    unready = _by_text(MemberState.UNREADY, _why_unready(view, diagnosis.unready))
    waiting, placed = _names(diagnosis.waiting), diagnosis.placed[:_MOST_NAMES]
    if diagnosis.cannot_start:
        yield from unready
        for members in _decided(view, diagnosis.decided):
            # What is held is released.
            waits = members.state is MemberState.PLACED
            yield msgspec.structs.replace(members, state=MemberState.WAITING) if waits else members
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
        first, *others = _wrong_by_themselves(view, diagnosis.waiting)
        alike = [pod for pod, text in others if text and text == first[1]]
        also = f"; the same for {number_of(len(alike), 'waiting member')}" if alike else ""
        yield GangMembers(state=state, names=waiting[:1], text=blocker + also)
        yield from _by_text(
            MemberState.WAITING, [(pod, "" if pod in alike else text) for pod, text in others], unnamed_last=True
        )
    yield from unready


def _by_text(
    state: MemberState, members: Iterable[tuple[Pod, str]], *, unnamed_last: bool = False
) -> Iterator[GangMembers]:
    """Yield members in one state by what is said of them, each text once with the number of members."""
    by_text = dict[str, list[Pod]]()
    for pod, text in members:
        by_text.setdefault(text, []).append(pod)
    for text in sorted(by_text, key=lambda text: unnamed_last and not text):
        pods = by_text[text]
        number = f" ({number_of(len(pods), 'member')})" if text and len(pods) > 1 else ""
        yield GangMembers(state=state, names=_names(pods), text=text + number)


def _why_unready(view: ClusterView, unready: Sequence[tuple[Pod, Rejection]]) -> Iterator[tuple[Pod, str]]:
    """Yield members with what keeps them away, names that exist, and which labels do not exist where no node takes them."""
    known = dict[Hashable, str]()
    for pod, rejection in unready:
        fit = view.pod_fit(pod) if rejection.code is Code.NO_NODE else None
        key = rejection, fit and needs_key(fit.needs)
        if key not in known:
            labels = [] if fit is None else list(islice(unknown_labels(view, pod), EXAMPLES))
            text = rejection.text + existing_names(view, pod, rejection)
            known[key] = "; ".join((text.removesuffix("."), *labels)) if labels else text
        yield pod, known[key]


def _hidden_reasons(view: ClusterView, pod: Pod, diagnosis: "GangDiagnosis", nodes: Sequence[str]) -> Reasons | None:
    """Return the reasons of devices against a member that may not go to a node for another reason; None if there are none.

    The pod itself comes first.  `nodes`: those that count.
    """
    hiding = (member for member, rejection in diagnosis.unready if rejection.code in _HIDING)
    for member in islice(sorted(hiding, key=lambda member: member.uid != pod.uid), _MOST_HELPED):
        alone = view.extender.evaluate_without_gang(member, nodes)
        if not alone.fits:
            return Reasons(view, member, alone, Trials(view, pod))
    return None


def _wrong_by_themselves(view: ClusterView, members: Sequence[Pod]) -> Iterator[tuple[Pod, str]]:
    """Yield members with what keeps each away whatever devices are free, such as a misspelt name; empty if nothing does."""
    known = dict[Hashable, str]()
    for member in members:
        key = claims_key(view, member), tuple(member.extended_requests)
        if key not in known and len(known) < _MOST_WRONG:
            known[key] = _wrong_by_itself(view, member)
        yield member, known.get(key, "")


def _wrong_by_itself(view: ClusterView, member: Pod) -> str:
    nodes, rejections = tuple(view.ledger.nodes), list[Rejection]()
    # What one node says of devices is enough to know that the claims are right.
    for some_nodes in (nodes[:1], nodes):
        alone = view.extender.evaluate_without_gang(member, some_nodes)
        rejections = [group.rejection for group in alone.why()] if not alone.fits else []
        if not rejections or not rejections[0].claim or rejections[0].code in OF_DEVICES:
            return ""
    return rejections[0].text + existing_names(view, member, rejections[0])


def _names(pods: Sequence[Pod]) -> tuple[str, ...]:
    return tuple(pod.name for pod in pods[:_MOST_NAMES])


def _decided(view: ClusterView, decided: Sequence[Pod]) -> Iterator[GangMembers]:
    """Yield members that run, have their claims allocated, need no device, or have devices that the service holds until a time."""
    bound = [pod for pod in decided if pod.node_name]
    with_holds = [pod for pod in decided if not pod.node_name and view.ledger.holds.of_pod(pod.uid)]
    others = [pod for pod in decided if not pod.node_name and pod not in with_holds]
    allocated = [pod for pod in others if pod.claims or pod.extended_claim]
    without_devices = [pod for pod in others if pod not in allocated]
    if bound:
        nodes = tuple(pod.node_name for pod in bound[:_MOST_NAMES])
        yield GangMembers(state=MemberState.BOUND, names=_names(bound), nodes=nodes)
    if allocated:
        yield GangMembers(state=MemberState.ALLOCATED, names=_names(allocated))
    if without_devices:
        yield GangMembers(state=MemberState.PLACED, names=_names(without_devices), text="needs no device")
    if with_holds:
        holds = [view.ledger.holds.of_pod(pod.uid) for pod in with_holds]
        ends = {hold.claim_uid: hold.until for hold in view.hold_report.holds}
        until = (ends[hold.claim_uid] for of_pod in holds for hold in of_pod if hold.claim_uid in ends)
        yield GangMembers(
            state=MemberState.PLACED,
            names=_names(with_holds),
            nodes=tuple(next(iter(of_pod[0].placements)) for of_pod in holds[:_MOST_NAMES]),
            text="held",
            until=min(until, default=None),
        )


def blocker_text(branches: Sequence[Branch], node_reasons: Sequence[NodeReason] = ()) -> str:
    """Return the reason of the closest nodes, for each request, and beside devices."""
    blockers = [(branch.request or branch.claim, branch.reasons[0]) for branch in branches if branch.reasons]
    blockers += [("", reason) for reason in node_reasons[:1]]
    return "; ".join(
        f"{where}{': ' if where else ''}{reason.text} ({number_of(reason.nodes, 'node')})" for where, reason in blockers
    )
