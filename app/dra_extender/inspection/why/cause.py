"""What one pod waits for, before anything is explained, and the order in which `why` speaks of nodes: the closest first."""

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Final, NamedTuple

from dra_extender.allocator.state.reasons import NEAREST_MISS_FIRST, Code, Rejection
from dra_extender.inspection.cluster_view import ClusterView
from dra_extender.inspection.lines import age_text
from dra_extender.inspection.near_names import meant_name, names_there, nearest_name_text
from dra_extender.inspection.objects import DEVICES, unread
from dra_extender.inspection.pod_facts import PENDING, PodFacts
from dra_extender.inspection.why.report import EXAMPLES, AwaitedDevice, Cause, NodeReason, ReasonKind, ReportedReason
from dra_extender.model.allocation_snapshot import allocated_at, results_of
from dra_extender.model.api_json import listed
from dra_extender.model.device_class import IMPLICIT_RESOURCE_PREFIX
from dra_extender.model.metadata import Moment, moment, seconds_of
from dra_extender.model.pod import Pod
from dra_extender.nodefit.node_fit import CLOSED, NodeFilter, NodeRefusal
from dra_extender.scheduling.claims.extended_need import existing_claim, subject_of
from dra_extender.scheduling.claims.lookup import FoundClaim, find_claims
from dra_extender.scheduling.claims.readiness import Readiness
from dra_extender.scheduling.evaluation.filter_result import FilterResult, RejectionGroup

_FILTERS: Final = (
    NodeFilter.RESOURCES,
    NodeFilter.PORTS,
    NodeFilter.UNSCHEDULABLE,
    NodeFilter.TAINTS,
    NodeFilter.AFFINITY,
    NodeFilter.DELETING,
)
"""The filter that is easiest to pass first; a node selector says which nodes were meant."""
_REPORTED_KINDS: Final = (
    ReasonKind.RESOURCES,
    ReasonKind.PORTS,
    ReasonKind.VOLUMES,
    ReasonKind.OTHER_PODS,
    ReasonKind.OTHER,
    ReasonKind.UNSCHEDULABLE,
    ReasonKind.TAINTS,
    ReasonKind.AFFINITY,
    ReasonKind.DEVICES,
)
_OPEN, _CLOSED, _WITHOUT_DEVICES, _EXCLUDED = range(4)
"""Ranks of nodes, the closest first: only devices keep the pod away; the node is closed; it has no such device; affinity
excludes it."""
_NO_DEVICES: Final = frozenset({Code.NO_MATCH, Code.OTHER_NODE, Code.NO_DEVICES})

Distance = tuple[int, int, float]


def rejections_by_closeness(view: ClusterView, pod: Pod, result: FilterResult) -> Sequence[RejectionGroup]:
    """Return the rejected nodes by reason, the closest first."""
    groups, fit = result.why(), view.pod_fit(pod)
    if fit is None or len(groups) <= 1:
        return groups
    ranks: dict[str, int] = {}
    for node, text in result.texts.items():
        if ranks.get(text) != _OPEN:
            filters = {refusal.filter for refusal in fit.refusals(node)}
            rank = _EXCLUDED if NodeFilter.AFFINITY in filters else _CLOSED if filters & CLOSED else _OPEN
            ranks[text] = min(rank, ranks.get(text, rank))

    def rank_of(group: RejectionGroup) -> int:
        without = _WITHOUT_DEVICES if group.rejection.code in _NO_DEVICES else _OPEN
        return max(ranks.get(group.rejection.summary, _OPEN), without)

    return sorted(groups, key=rank_of)


def distance(refusals: Sequence[NodeRefusal]) -> Distance:
    """Return how far a node is from letting the pod in beside devices: the hardest filter, their number, the amounts lacking."""
    hardest = max((_FILTERS.index(refusal.filter) for refusal in refusals), default=-1)
    lacking = sum((refusal.needed - refusal.free) / refusal.needed for refusal in refusals if refusal.needed)
    return hardest, len(refusals), lacking


def refused_by_closeness(refusals: Mapping[str, Sequence[NodeRefusal]]) -> Sequence[str]:
    """Return the nodes, the closest first; of equally close ones the first by name."""
    return sorted(refusals, key=lambda name: (*distance(refusals[name]), name))


def reported_by_closeness(reported: Sequence[ReportedReason]) -> Sequence[ReportedReason]:
    """Return the reasons that kube-scheduler reports, those of the closest nodes first."""
    return sorted(reported, key=lambda reason: (_REPORTED_KINDS.index(reason.kind), -reason.nodes))


_IN: Final = "In"
_UNKNOWN: Final = "whether a node has its devices is not known"
_GANG_CODES: Final = frozenset({Code.GANG, Code.GANG_INCOMPLETE, Code.GANG_ELSEWHERE, Code.POD_GROUP_MISSING})
SELECTED_DEVICES: Final = frozenset(NEAREST_MISS_FIRST) - {Code.SELECTOR_FAILED, Code.SELECTOR_INVALID}
"""Codes about devices that the selectors select."""
OF_DEVICES: Final = SELECTED_DEVICES | {
    Code.NO_DEVICES,
    Code.NO_MATCH,
    Code.OTHER_NODE,
    Code.POOL_INCOMPLETE,
    Code.POOL_INVALID,
}
"""Codes that say what the nodes lack, rather than what is wrong with a claim."""


class PodCause(NamedTuple):
    """The cause, a half sentence about it, and what was found out on the way.

    `result` is None where no device was looked at.  `usable` are the nodes that have the devices and pass the other filters that
    are judged; `node_reasons` are the reasons against the others that have the devices.  `fitting` nodes have the devices and are
    not closed to the pod: not ready, cordoned, tainted, or being deleted.  `allocated`: all claims of the pod are, and reserved for
    it.
    """

    cause: Cause
    summary: str
    result: FilterResult | None = None
    awaited: tuple[AwaitedDevice, ...] = ()
    usable: Sequence[str] = ()
    node_reasons: tuple[NodeReason, ...] = ()
    fitting: int = 0
    allocated: bool = False


def cause_of(view: ClusterView, pod: Pod, facts: PodFacts, nodes: Sequence[str] | None = None) -> PodCause:
    """Return what the pod waits for, or that it does not wait; `nodes`: the only nodes that count, None for all."""
    own_state = _own_state(pod, facts)
    if own_state is not None and own_state.cause is Cause.GATED and not unread(view.origin, DEVICES):
        return own_state._replace(summary=own_state.summary + _lacking_resources(view, pod))
    if own_state is not None:
        return own_state
    if pod.needs_devices and unread(view.origin, DEVICES | ({"podgroups"} if pod.pod_group is not None else set())):
        return _unjudged(view, pod)
    lacking = _lacking_resources(view, pod)
    backing = view.ledger.backing
    if not (pod.claims or pod.extended_claim or any(name in backing for name in pod.extended_resources)):
        judged = judge_nodes(view, pod, tuple(view.ledger.nodes) if nodes is None else nodes)
        summary = f"asks for no devices that Dynamic Resource Allocation serves{lacking}"
        return PodCause(Cause.NO_DEVICES, summary, usable=judged.usable, node_reasons=judged.reasons)
    claims = _claims(view, pod)
    allocated = _allocated(claims)
    awaited = tuple(_awaited(view, pod, allocated))
    result = view.evaluate(pod, nodes)
    judged = judge_nodes(view, pod, tuple(result.fits))
    all_allocated = not isinstance(claims, Rejection) and 0 < len(claims) == len(allocated)
    cause, summary = _cause_by_devices(view, result, judged, awaited, allocated if all_allocated else ())
    return PodCause(
        cause, summary + lacking, result, awaited, judged.usable, judged.reasons, judged.open, all_allocated
    )


def _lacking_resources(view: ClusterView, pod: Pod) -> str:
    """Return that no node has an extended resource of the pod and that no DeviceClass serves it; empty if there is none such."""
    served = _served_resources(view)
    lacking = [name for name in pod.extended_resources if served and name not in served]
    if not lacking:
        return ""
    near = meant_name(lacking[0], served)
    hint = f" (nearest name {near})" if near else ""
    implicit = lacking[0].startswith(IMPLICIT_RESOURCE_PREFIX)
    alike = [name for name in served if "/" in name and name.startswith(IMPLICIT_RESOURCE_PREFIX) is implicit]
    existing_names = "" if near else names_there(lacking[0], alike)
    return f"; no node has {', '.join(lacking)}{hint}, and no DeviceClass serves it{existing_names}"


def _served_resources(view: ClusterView) -> frozenset[str]:
    """Return the resources that nodes have or DeviceClasses serve; none if nodes are not known."""
    return frozenset() if view.node_fit is None else frozenset((*view.ledger.backing, *view.node_fit.resources))


def meant_resources(view: ClusterView, pod: Pod) -> Mapping[str, str]:
    """Return the extended resources that were probably meant, by the misspelt ones that the pod asks for."""
    served = _served_resources(view)
    meant = ((name, meant_name(name, served)) for name in pod.extended_resources if name not in served)
    return {name: near for name, near in meant if near is not None}


def unserved_resources(view: ClusterView, pod: Pod) -> Sequence[str]:
    """Return the extended resources of a pod that nothing serves and that mean no other, if the pod gets devices besides."""
    served, meant = _served_resources(view), meant_resources(view, pod)
    needs_others = bool(pod.claims) or any(name in view.ledger.backing for name in pod.extended_resources)
    unserved = [name for name in pod.extended_resources if served and name not in served and name not in meant]
    return unserved if needs_others else []


def _unjudged(view: ClusterView, pod: Pod) -> PodCause:
    """Return what the pod's own claims tell if nothing can be said of nodes and devices."""
    if unread(view.origin, {"resourceclaims"}, pod.namespace):
        return PodCause(Cause.UNKNOWN, _UNKNOWN)
    claims = _claims(view, pod)
    if isinstance(claims, Rejection):
        return PodCause(Cause.CLAIMS, claims.reason)
    allocated = _allocated(claims)
    awaited = tuple(_awaited(view, pod, allocated))
    if not claims or len(allocated) < len(claims):
        return PodCause(Cause.UNKNOWN, _UNKNOWN, awaited=awaited)
    cause = Cause.CONDITIONS if awaited else Cause.NOT_DEVICES
    return PodCause(cause, "has its devices allocated, not bound", awaited=awaited, allocated=True)


def awaited_devices(view: ClusterView, pod: Pod) -> tuple[AwaitedDevice, ...]:
    """Return the devices that are allocated to the pod and not ready; no node is looked at."""
    return tuple(_awaited(view, pod, _allocated(_claims(view, pod))))


def _own_state(pod: Pod, facts: PodFacts) -> PodCause | None:
    if pod.finished:
        return PodCause(Cause.FINISHED, f"has ended: {pod.phase}")
    if pod.deleting:
        return PodCause(Cause.DELETING, "is being deleted")
    if pod.node_name:
        pending = " and Pending there" if pod.phase == PENDING else ""
        return PodCause(Cause.BOUND, f"is bound to node {pod.node_name}{pending}")
    if facts.gates:
        return PodCause(Cause.GATED, f"waits until its scheduling gates are removed: {', '.join(facts.gates)}")
    return None


def _cause_by_devices(
    view: ClusterView,
    result: FilterResult,
    judged: "JudgedNodes",
    awaited: Sequence[AwaitedDevice],
    allocated: Sequence[FoundClaim],
) -> tuple[Cause, str]:
    nodes, codes = len(view.ledger.nodes), result.codes
    fits = f"fits {len(result.fits)} of {nodes} nodes"
    if awaited:
        return Cause.CONDITIONS, _allocation_text(view, result, allocated) + ", not bound"
    if allocated and result.fits:
        return Cause.NOT_DEVICES, _allocation_text(view, result, allocated) + ", not bound"
    if judged.usable:
        return Cause.NOT_DEVICES, f"devices would suffice on {judged.open} of {nodes} nodes"
    if result.fits:
        return Cause.NODES, f"has its devices on {len(result.fits)} of {nodes} nodes, and may use none of them"
    if codes & _GANG_CODES:
        return Cause.POD_GROUP, fits
    if codes and not codes & OF_DEVICES and all(group.rejection.claim for group in result.why()):
        return Cause.CLAIMS, fits
    return Cause.DEVICES, fits


def _allocation_text(view: ClusterView, result: FilterResult, allocated: Sequence[FoundClaim]) -> str:
    """E.g. `allocated 41s ago on node-9`."""
    times = [since for claim in allocated if (since := seconds_of(allocated_at(claim.record.claim))) is not None]
    ago = f" {age_text(max(0.0, view.now - max(times)))} ago" if times else ""
    nodes = sorted(result.fits)
    where = f" on {', '.join(nodes)}" if 0 < len(nodes) <= EXAMPLES else ""
    return f"allocated{ago}{where}"


def _claims(view: ClusterView, pod: Pod) -> Sequence[FoundClaim] | Rejection:
    """Return the pod's claims with the one that a bind has made for its extended resources."""
    claims, bind_claim = find_claims(pod, view.ledger), existing_claim(pod, view.ledger)
    return claims if bind_claim is None or isinstance(claims, Rejection) else (*claims, bind_claim)


def claims_key(view: ClusterView, pod: Pod) -> Hashable:
    """Return what is equal for pods whose claims ask for the same; pods with claims that are allocated have each their own."""
    claims = find_claims(pod, view.ledger)
    if isinstance(claims, Rejection):
        return claims.code, claims.claim, claims.detail
    return tuple(
        (claim.label, claim.record.spec_digest)
        if claim.record.claim.status.allocation is None and claim.record.pending is None
        else claim.record.claim.metadata.uid
        for claim in claims
    )


def _allocated(claims: Sequence[FoundClaim] | Rejection) -> tuple[FoundClaim, ...]:
    """Return those of the claims that are allocated and reserved for the pod."""
    found_claims = () if isinstance(claims, Rejection) else claims
    return tuple(claim for claim in found_claims if claim.record.claim.status.allocation is not None and claim.reserved)


def _awaited(view: ClusterView, pod: Pod, allocated: Sequence[FoundClaim]) -> Iterator[AwaitedDevice]:
    """Yield devices of allocated claims that are reserved for the pod and not ready."""
    assumed_timeout = view.options.binding_timeout_seconds if view.assumes_binding_timeout else None
    for found_claim in allocated:
        claim = found_claim.record.claim
        verdict = view.readiness(claim)
        if verdict.readiness is Readiness.READY:
            continue
        for device in verdict.problems:
            requests = (result.request for result in results_of(claim) if result.device_id == device.device)
            yield AwaitedDevice(
                claim=found_claim.label,
                request=(request := next(requests, "")),
                subject=subject_of(pod, found_claim.label, request),
                device=device.name,
                conditions=device.conditions,
                state=verdict.readiness.value,
                message=device.message,
                limit=Moment(verdict.deadline),
                assumed_timeout=assumed_timeout,
                since=moment(seconds_of(allocated_at(claim))),
            )


def unknown_labels(view: ClusterView, pod: Pod) -> Iterator[str]:
    """Yield a sentence about each label that the pod asks of its node, and that no node has or none has with this value."""
    fit = view.pod_fit(pod)
    values_by_label = defaultdict[str, set[str]](set)
    for node in view.ledger.nodes.values():
        for label, value in node.labels.items():
            values_by_label[label].add(value)
    if fit is None or not values_by_label:
        return
    needs = fit.needs
    asked: list[tuple[str, tuple[str, ...]]] = [(label, (value,)) for label, value in needs.node_selector.items()]
    terms = () if needs.affinity is None else needs.affinity.node_selector_terms
    asked += [
        (requirement.key, requirement.values or ())
        for term in terms
        for requirement in term.match_expressions
        if requirement.operator == _IN
    ]
    for label, values in dict.fromkeys(asked):
        if label not in values_by_label:
            yield f"no node has label {label}{nearest_name_text(label, values_by_label)}"
        elif values and values_by_label[label].isdisjoint(values):
            there = names_there(values[0], values_by_label[label])
            yield f"no node has label {label} with value {listed(list(values))}{there}"


def _further(view: ClusterView, pod: Pod, node_filter: str, nodes: Sequence[str]) -> Iterator[str]:
    """Yield what else is known of a filter that rejects these nodes: the labels that no node has, or who has the ports."""
    fit = view.pod_fit(pod)
    match node_filter:
        case NodeFilter.AFFINITY:
            yield from unknown_labels(view, pod)
        case NodeFilter.PORTS if fit is not None:
            for node in nodes:
                yield f"in use on {node} by {listed(list(fit.fit.port_holders(fit.needs, node)))}"


class JudgedNodes(NamedTuple):
    """Nodes by kube-scheduler's filters beside devices: those that pass, the reasons against the rest, how many are not closed."""

    usable: Sequence[str]
    reasons: tuple[NodeReason, ...]
    open: int


def judge_nodes(view: ClusterView, pod: Pod, nodes: Sequence[str]) -> JudgedNodes:
    """Judge these nodes by the filters of kube-scheduler that need no devices."""
    fit = view.pod_fit(pod)
    if fit is None:
        return JudgedNodes(nodes, (), len(nodes))
    usable: list[str] = []
    closed = 0
    counts: Counter[tuple[str, str]] = Counter()
    examples: dict[tuple[str, str], list[str]] = defaultdict(list)
    nearest: dict[tuple[str, str], Distance] = {}
    for name in nodes:
        refusals = fit.refusals(name)
        if not refusals:
            usable.append(name)
        closed += fit.is_closed(name)
        for refusal in refusals:
            key = (refusal.filter.value, refusal.description)
            counts[key] += 1
            nearest[key] = min(nearest.get(key, distance(refusals)), distance(refusals))
            if len(examples[key]) < EXAMPLES:
                examples[key].append(name)
    reasons = sorted(counts.items(), key=lambda entry: (nearest[entry[0]], -entry[1], entry[0]))
    listed_reasons = (
        NodeReason(
            nodes=count,
            examples=tuple(examples[key]),
            code=key[0],
            text=key[1],
            further=tuple(islice(_further(view, pod, key[0], examples[key]), EXAMPLES)),
        )
        for key, count in reasons
    )
    return JudgedNodes(usable, tuple(listed_reasons), len(nodes) - closed)
