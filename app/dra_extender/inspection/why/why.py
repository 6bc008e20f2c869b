"""Why a pod waits.

First comes what has nothing to do with devices: the pod is bound, ended, gated, or asks for none.  Then the service's own filter
decides about every node; its reasons are grouped by claim, request and reason.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from itertools import islice
from math import inf
from typing import Final

import msgspec

from dra_extender.allocator.state.reasons import Code, Rejection
from dra_extender.inspection.audit.claims import UsedClaim, used_claims
from dra_extender.inspection.cluster_view import ClusterView
from dra_extender.inspection.holders import held_notes
from dra_extender.inspection.near_names import name_hint
from dra_extender.inspection.objects import UnknownObjectError, require
from dra_extender.inspection.pod_facts import PENDING
from dra_extender.inspection.why.advice import CORRECT_SELECTOR, reported_advice
from dra_extender.inspection.why.bound import (
    allocated_devices,
    kubelet_refusals,
    lacks_allocation,
    later_evictions,
    lost_ground,
    node_scores,
    preferred_attributes,
)
from dra_extender.inspection.why.cause import PodCause, cause_of, meant_resources, unserved_resources
from dra_extender.inspection.why.changes import (
    NO_CHANGE,
    ClaimChanges,
    ProposedChange,
    ProposedStep,
    advised,
    staying_pods,
    together,
    without_gates,
)
from dra_extender.inspection.why.gang import account_of_gang, gang_steps, gang_summary
from dra_extender.inspection.why.names import existing_names
from dra_extender.inspection.why.node_steps import NodeSteps
from dra_extender.inspection.why.reasons import Reasons
from dra_extender.inspection.why.report import (
    ADMITTED,
    CORRECTED,
    DEVICES_AND_NODES,
    DEVICES_ONLY,
    EXAMPLES,
    FORMAT,
    Cause,
    EndedPod,
    NextStep,
    ReasonKind,
    WhyReport,
)
from dra_extender.inspection.why.reported import (
    JUDGED,
    absent_scheduler,
    meant_scheduler,
    reported_events,
    reported_reasons,
    scheduler_message,
    scheduler_text,
    unbound_reasons,
    unjudged_filters,
)
from dra_extender.inspection.why.trials import Trials
from dra_extender.model.api_json import ModelError, decode, listed
from dra_extender.model.pod import Pod, WholePod
from dra_extender.scheduling.claims.lookup import find_claims, gang_of
from dra_extender.scheduling.claims.readiness import Readiness
from dra_extender.scheduling.evaluation.filter_result import FilterResult

_CAUSES_OF_GANG: Final = frozenset({Cause.POD_GROUP, Cause.DEVICES, Cause.CLAIMS, Cause.NODES, Cause.NOT_DEVICES})
_CAUSES_AT_END: Final = frozenset({Cause.FINISHED, Cause.DELETING, Cause.BOUND})
_ALLOCATION_CODES: Final = frozenset({Code.CLAIM_ON_OTHER_NODE})
_KUBELET: Final = "kubelet"
_PENDING: Final = Readiness.PENDING.value
_POD: Final = msgspec.json.Decoder(WholePod)
_NOT_FOR_DEVICES: Final = "kube-scheduler preempts no pod for devices"
_PREEMPTION: Final = {
    "Never": "kube-scheduler does not preempt it: the pod's preemptionPolicy is Never",
    "PreemptLowerPriority": "kube-scheduler may preempt it by itself",
}


def why(view: ClusterView, namespace: str, name: str) -> WhyReport:
    """Find why the pod waits, or that it does not, and what would help.

    Raises:
        UnknownObjectError: there is no such pod.
        UnreadKindsError: pods could not be read.
    """
    pod = known_pod(view, namespace, name)
    cause = cause_of(view, pod, view.facts(namespace, name))
    report = _as_reported(view, pod, cause)
    steps = [*_steps_of_bound(view, pod, report)]
    node_steps = _steps_on_nodes(view, pod, cause)
    if cause.cause not in _CAUSES_AT_END:
        note, further_steps = _once_admitted(view, pod)
        report = msgspec.structs.replace(report, notes=(*report.notes, note)) if note else report
        steps += further_steps
    if cause.result is None:
        return _with_steps(view, pod, report, (*steps, *node_steps))
    if pod.pod_group is not None:
        report, reasons, further_steps = _with_gang(view, pod, report, cause.result)
        steps += further_steps
    else:
        reasons = Reasons(view, pod, cause.result)
    devices_suffice = cause.cause is Cause.NOT_DEVICES
    of_allocation = not cause.result.codes - _ALLOCATION_CODES
    branches = () if devices_suffice or (of_allocation and cause.result.fits) else reasons.branches()
    drivers = dict.fromkeys((device.device.partition("/")[0], device.state == _PENDING) for device in cause.awaited)
    steps += (advised(f"wait; check driver {name}" if waits else f"check driver {name}") for name, waits in drivers)
    steps += reported_advice(report.reported) if devices_suffice else ()
    steps += node_steps
    steps += (
        step._replace(preemption=_NOT_FOR_DEVICES)
        for step in (() if devices_suffice or cause.awaited else reasons.steps())
        # If the pod has its devices somewhere, only what lets it use a node helps.
        if cause.cause is not Cause.NODES or step.helps
    )
    if branches and not cause.awaited and not any(step.helps for step in steps):
        compound = reasons.smallest_set()
        if compound is not None:
            # It says more than what helps with devices alone.
            steps = [compound, *(step for step in steps if step.verified != DEVICES_ONLY)]
    report = msgspec.structs.replace(
        report,
        nodes=len(view.ledger.nodes),
        fitting=cause.fitting,
        branches=branches,
        notes=(*report.notes, *reasons.notes),
    )
    return _with_steps(view, pod, report, steps)


def _as_reported(view: ClusterView, pod: Pod, pod_cause: PodCause) -> WhyReport:
    """Report the cause, and what the pod, kube-scheduler, Events and the running extender say."""
    facts = view.facts(pod.namespace, pod.name)
    ended = pod_cause.cause in _CAUSES_AT_END
    message = "" if ended else scheduler_message(view, pod, facts)
    reported = reported_reasons(message)
    devices_suffice, bound = pod_cause.cause is Cause.NOT_DEVICES, pod_cause.cause is Cause.BOUND
    starts = bound and pod.phase == PENDING
    usable = tuple(sorted(pod_cause.usable))[:EXAMPLES] if devices_suffice else ()
    events = reported_events(view, pod, facts, pod_cause.cause)
    absent = "" if ended else absent_scheduler(view, pod, facts, view.acting_schedulers)
    return WhyReport(
        format=FORMAT,
        pod=pod.key,
        cause=pod_cause.cause,
        summary=pod_cause.summary,
        origin=view.origin,
        scheduler=pod.scheduler_name,
        age=None if facts.created is None else max(0.0, view.now - facts.created),
        node=pod.node_name,
        said=message,
        reported=reported,
        scheduler_absent=absent,
        events=events,
        devices=tuple(allocated_devices(view, pod)) if bound else (),
        refused=kubelet_refusals(view, pod) if starts else (),
        scores=node_scores(view, pod) if bound else (),
        preferred=tuple(preferred_attributes(view, pod)) if bound else (),
        usable=usable,
        unbound=unbound_reasons(view, pod, reported, allocated=pod_cause.allocated)
        if devices_suffice and not absent
        else (),
        unjudged=() if ended else tuple(unjudged_filters(view.encoded("pods", pod.name, pod.namespace) or b"")),
        beside=pod_cause.node_reasons,
        awaited=pod_cause.awaited,
        notes=(
            *held_notes(view.hold_report, pod.key, pod.uid, f"{pod.namespace}/{pod.pod_group}"),
            *(lost_ground(view, pod) if bound else ()),
            *(later_evictions(view, pod_cause.result, usable) if pod_cause.result is not None else ()),
            *map(str, view.unreadable),
        ),
    )


def _steps_of_bound(view: ClusterView, pod: Pod, report: WhyReport) -> Iterator[ProposedStep]:
    """Yield what helps a pod that has a node and does not start."""
    if report.cause is Cause.BOUND and pod.phase == PENDING:
        if lacks_allocation(view, pod):
            yield advised("create the pod again without spec.nodeName, so that a scheduler allocates its claims")
        elif not any(event.reporter == _KUBELET for event in report.events):
            yield advised(f"look at the Events of its kubelet: kubectl describe pod {pod.name} -n {pod.namespace}")


def _steps_on_nodes(view: ClusterView, pod: Pod, cause: PodCause) -> Sequence[ProposedStep]:
    """Return what lets the pod use a node, and what kube-scheduler's preemption does about it."""
    # What helps a gang is tried with all its members.
    steps = () if gang_of(pod, view.ledger) is not None else NodeSteps(view, pod).steps_for(cause)
    # What is done besides ends is no preemption.
    if not any(step.change.only_ends for step in steps):
        return steps
    policy = None
    with suppress(ModelError):
        policy = decode("Pod", _POD, view.encoded("pods", pod.name, pod.namespace) or b"").spec.preemption_policy
    sentence = _PREEMPTION.get(policy or "", "")
    return [step._replace(preemption=sentence) if step.change.only_ends else step for step in steps]


def _once_admitted(view: ClusterView, pod: Pod) -> tuple[str, Sequence[ProposedStep]]:
    """Return what stays in the way, as a note, and what helps once the pod has no gates and asks for no resources of nobody.

    A step lands the pod if nothing else is in its way; then there is no note.
    """
    trials, claims = Trials(view, pod), ClaimChanges(view, pod)
    meant = meant_resources(view, pod)
    unserved = unserved_resources(view, pod)
    states = ((pod.gates, ADMITTED), (meant, CORRECTED), (unserved, f"it does without {' and '.join(unserved)}"))
    with ExitStack() as stack:
        for change in (
            without_gates(view, [pod]) if pod.gates else None,
            claims.with_generated_claims() if pod.gates else None,
            claims.with_resources(meant) if meant else None,
            claims.without_resources(unserved),
        ):
            if change is not None:
                stack.enter_context(trials.within(change))
        if not trials.applied_change.changes:
            return "", ()
        step = trials.try_change(NO_CHANGE, tuple(view.ledger.nodes))
        if step is not None and step.helps:
            return "", (step,)
        changed = view.pod(pod.namespace, pod.name) or pod
        cause = cause_of(view, changed, msgspec.structs.replace(view.facts(pod.namespace, pod.name), gates=()))
        if cause.cause is Cause.UNKNOWN or (cause.result is not None and not view.ledger.nodes):
            return "", ()
        steps, further = _steps_once_admitted(view, changed, cause, trials)
        steps = steps or (ProposedStep(trials.applied_change),)
    once = f"once {' and '.join(state for applies, state in states if applies)}"
    return f"{once}: {', '.join([cause.summary, *further[:EXAMPLES]])}", steps


def _steps_once_admitted(
    view: ClusterView, pod: Pod, cause: PodCause, trials: Trials
) -> tuple[Sequence[ProposedStep], Sequence[str]]:
    """Return what helps a pod as changes have left it, and what stands in its way."""
    node_steps, beside = NodeSteps(view, pod, trials.applied_change), [reason.text for reason in cause.node_reasons]
    if cause.result is None:
        claims = find_claims(pod, view.ledger)
        missing = [claims.detail + existing_names(view, pod, claims)] if isinstance(claims, Rejection) else []
        return node_steps.steps_on_all(), [*missing, *beside]
    if cause.result.fits:
        return node_steps.steps_on(tuple(cause.result.fits)), beside
    reasons = Reasons(view, pod, cause.result, trials, whole=True)
    texts = reasons.texts()
    if trials.of_gang:
        # The first members that keep the gang away may hide what is wrong with this one.
        alone = view.extender.evaluate_without_gang(pod, tuple(view.ledger.nodes))
        texts = [*(() if alone.fits else Reasons(view, pod, alone, trials, whole=True).texts()), *texts]
    helping = reasons.helping_steps()
    if helping:
        return helping, texts
    untried = (step.change for step in reasons.steps() if not step.nodes)
    return (ProposedStep(together((trials.applied_change, *untried))),), texts


def _with_gang(
    view: ClusterView, pod: Pod, report: WhyReport, result: FilterResult
) -> tuple[WhyReport, Reasons, Sequence[ProposedStep]]:
    """Add the plan of the pod's gang; find the reasons against the member that blocks it, and what helps the gang."""
    account = account_of_gang(view, pod, result, report.beside)
    if account is None:
        return report, Reasons(view, pod, result), ()
    diagnosis, gang = account.diagnosis, account.gang
    if account.crowded:
        report = msgspec.structs.replace(report, usable=(), unbound=(), notes=(*report.notes, account.crowded))
    is_ready = all(member.uid != pod.uid for member, _ in diagnosis.unready)
    if report.cause in _CAUSES_OF_GANG and is_ready and gang.placed < max(gang.min_count, 1):
        report = msgspec.structs.replace(
            report, cause=Cause.POD_GROUP, summary=gang_summary(gang), usable=(), unbound=()
        )
    notes = (*report.notes, diagnosis.limit) if diagnosis.limit else report.notes
    notes += tuple(islice(_unscheduled_members(view, pod), EXAMPLES))
    report = msgspec.structs.replace(report, gang=gang, beside=account.node_reasons, notes=notes)
    return report, account.reasons, tuple(gang_steps(view, pod, diagnosis, gang))


def _unscheduled_members(view: ClusterView, pod: Pod) -> Iterator[str]:
    """Yield the members of the pod's gang that name another scheduler than the pod, and one that has not acted."""
    members = () if pod.pod_group is None else view.ledger.pods.members(pod.namespace, pod.pod_group)
    for member in members:
        if member.scheduler_name == pod.scheduler_name or not member.waits_for_node:
            continue
        absent = absent_scheduler(view, member, view.facts(member.namespace, member.name), view.acting_schedulers)
        if absent:
            yield f"{member.name}: {absent}"


def _with_steps(view: ClusterView, pod: Pod, report: WhyReport, steps: Sequence[ProposedStep]) -> WhyReport:
    """Return the report with these steps, and with what is known of the pods that they end.

    Steps that harm nobody come first, those that a PodDisruptionBudget forbids last.
    """
    steps = sorted(
        (step for step in steps if not any(_is_needless(step, other) for other in steps)),
        key=lambda step: (step.change.harmful, any(ended.budget for ended in _ended_pods(view, pod, step))),
    )
    steps = list({step.change.text: step for step in reversed(steps)}.values())[::-1]
    if report.scheduler_absent:
        steps = _with_scheduler(view, pod, report, steps)
    next_steps = (
        NextStep(
            text=step.change.text,
            nodes=step.nodes,
            verified=step.verified,
            untried=step.untried,
            harmful=step.change.harmful,
            ends=_ended_pods(view, pod, step),
        )
        for step in _helpful(report, steps)
    )
    return msgspec.structs.replace(report, next=tuple(next_steps))


def _is_needless(step: ProposedStep, other: ProposedStep) -> bool:
    """Return whether another step makes a step needless: it contains all that an untried one advises, or helps with less.

    Of two steps with the same effect, the one of more words is needless.
    """
    longer = len(other.change.text) - len(step.change.text)
    if not step.nodes:
        in_other = step.change.is_said_by(other.change) and (bool(other.nodes) or longer > 0)
        return in_other or (bool(other.nodes) and step.change.text == CORRECT_SELECTOR)
    if not other.nodes or step.change.text == other.change.text:
        return False
    helps_with_less = other.helps >= step.helps and other.change.is_said_by(step.change)
    # Where only nodes were judged, no object tells the effect.
    is_same = bool(step.change.changes) and other.change.effect == step.change.effect
    return helps_with_less or (longer < 0 and is_same)


def _ended_pods(view: ClusterView, pod: Pod, step: ProposedStep) -> tuple[EndedPod, ...]:
    """Return the pods that a step ends; with a sentence about preemption if that could end them all.

    A pod of equal or higher priority is never preempted, and a gang is preempted for in another way.
    """
    ended = staying_pods(view, step.change.ended)
    preemptible = pod.pod_group is None and all(other.priority < pod.priority for other in ended)
    pod_facts = [view.facts(other.namespace, other.name) for other in ended]
    forbidding = view.budgets.forbidding(pod_facts)
    return tuple(
        EndedPod(
            pod=other.key,
            owner=facts.controller,
            priority=other.priority,
            age=None if facts.created is None else max(0.0, view.now - facts.created),
            gang="" if (gang := gang_of(other, view.ledger)) is None else gang.metadata.name,
            budget=forbidding.get(facts.key, ""),
            preemption=step.preemption if preemptible else "",
        )
        for other, facts in zip(ended, pod_facts, strict=True)
    )


def _with_scheduler(
    view: ClusterView, pod: Pod, report: WhyReport, steps: Sequence[ProposedStep]
) -> Sequence[ProposedStep]:
    """Return the steps for a pod whose scheduler is absent: they also name one that acts.

    If it is not clear which one, only what was not tried is left.
    """
    name = meant_scheduler(pod, view.acting_schedulers)
    tried, untried = [step for step in steps if step.nodes], [step for step in steps if not step.nodes]
    if name is None:
        return untried
    change = ProposedChange((scheduler_text(pod, name),))
    if any(change.is_said_by(step.change) for step in steps):
        # What helps the gang says so already.
        return steps
    if not tried and report.cause is Cause.NOT_DEVICES:
        tried = [ProposedStep(NO_CHANGE, report.usable, DEVICES_ONLY if view.node_fit is None else DEVICES_AND_NODES)]
    members = () if pod.pod_group is None else view.ledger.pods.members(pod.namespace, pod.pod_group)
    alike = [member.name for member in members if member.waits_for_node and member.scheduler_name == pod.scheduler_name]
    change = change.of(listed(sorted(alike)) if len(alike) > 1 else "")
    if tried:
        return [*(step._replace(change=together((change, step.change))) for step in tried), *untried]
    # What was not tried is needed besides.
    return [ProposedStep(together((change, *(step.change for step in untried))))]


def _helpful(report: WhyReport, steps: Sequence[ProposedStep]) -> Iterator[ProposedStep]:
    """Yield the steps except those after which the pod would wait all the same; where that is not known, they are marked."""
    reported = [reason.kind for reason in report.reported if reason.kind not in JUDGED]
    unjudged = tuple(dict.fromkeys([*reported, *(further.kind for further in report.unjudged)]))
    lacks_volume = any(reason.kind is ReasonKind.VOLUMES and not reason.nodes for reason in report.reported)
    for step in steps:
        if not (lacks_volume and step.nodes):
            marked = step._replace(verified=DEVICES_ONLY, untried=unjudged)
            yield marked if unjudged and step.helps else step


def known_pod(view: ClusterView, namespace: str, name: str) -> Pod:
    """Return the pod of this name.

    Raises:
        UnknownObjectError: there is no such pod.
        UnreadKindsError: pods could not be read.
    """
    require(view.origin, {"pods"}, namespace)
    pod = view.pod(namespace, name)
    if pod is None:
        hint = name_hint((namespace, name), ((pod.namespace, pod.name) for pod in view.ledger.pods.all()))
        raise UnknownObjectError(f"pod {namespace}/{name} does not exist in {view.origin.source}{hint}")
    return pod


def pod_of_claim(view: ClusterView, namespace: str, name: str) -> tuple[str, str]:
    """Return namespace and name of the pod that explains why the claim is not allocated: one that waits, the oldest of several.

    If none waits, return a pod that uses the claim.

    Raises:
        UnknownObjectError: there is no such claim, or no pod uses it.
        UnreadKindsError: pods or claims could not be read.
    """
    require(view.origin, {"pods", "resourceclaims"}, namespace)
    if view.claim(namespace, name) is None:
        hint = name_hint((namespace, name), (record.claim.metadata.key for record in view.ledger.claims.records()))
        raise UnknownObjectError(f"claim {namespace}/{name} does not exist in {view.origin.source}{hint}")
    users = [
        pod
        for pod in view.ledger.pods.all()
        if pod.namespace == namespace
        and any(isinstance(used, UsedClaim) and used.name == name for used in used_claims(pod))
    ]
    if not users:
        raise UnknownObjectError(f"no pod uses claim {namespace}/{name}; a claim is allocated for a pod")

    def rank(pod: Pod) -> tuple[bool, bool, float, str]:
        created = view.facts(pod.namespace, pod.name).created
        return pod.finished, bool(pod.node_name), inf if created is None else created, pod.name

    pod_to_explain = min(users, key=rank)
    return pod_to_explain.namespace, pod_to_explain.name
