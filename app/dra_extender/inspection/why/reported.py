"""What other components say of a pod: kube-scheduler's message reason by reason, Events, and which schedulers acted."""

import re
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Final

import msgspec

from dra_extender.allocator.state.reasons import Code, Rejection
from dra_extender.inspection.cluster_view import ClusterView
from dra_extender.inspection.near_names import instead, meant_name, nearest_name_text
from dra_extender.inspection.pod_facts import FAILED_SCHEDULING, PENDING, SCHEDULING_GATED, ObjectEvent, PodFacts
from dra_extender.inspection.why.report import Cause, ReasonKind, ReportedEvent, ReportedReason, UnjudgedFilter
from dra_extender.model.api_json import ModelError, decode, listed
from dra_extender.model.pod import Pod, WholePod
from dra_extender.model.pod_placement import Affinity
from dra_extender.scheduling.claims.lookup import find_claims
from dra_extender.scheduling.evaluation.filter_result import FURTHER_REASONS
from dra_extender.scheduling.ports.cluster import UNAVAILABLE_REASON

_HEAD: Final = re.compile(r"\d+/\d+ nodes are available: ?")
_TAIL: Final = re.compile(r"\.? *preemption: ")
_BEGIN: Final = re.compile(r"(?:^|, )(\d+) (?=\S)")
_MOST_READ: Final = 16_384
_MOST_REASONS: Final = 64
_DIGITS: Final = 9
_KINDS: Final = (
    ("insufficient ", ReasonKind.RESOURCES),
    ("too many pods", ReasonKind.RESOURCES),
    ("untolerated taint", ReasonKind.TAINTS),
    ("anti-affinity rules", ReasonKind.OTHER_PODS),
    ("pod affinity rules", ReasonKind.OTHER_PODS),
    ("topology spread", ReasonKind.OTHER_PODS),
    ("node affinity/selector", ReasonKind.AFFINITY),
    ("scheduler-enforced node affinity", ReasonKind.AFFINITY),
    ("requested node name", ReasonKind.AFFINITY),
    ("were unschedulable", ReasonKind.UNSCHEDULABLE),
    ("free ports", ReasonKind.PORTS),
    ("volume", ReasonKind.VOLUMES),
    ("persistentvolumeclaim", ReasonKind.VOLUMES),
    ("pvc", ReasonKind.VOLUMES),
    ("resourceclaim", ReasonKind.DEVICES),
    ("deviceclass", ReasonKind.DEVICES),
    ("device class", ReasonKind.DEVICES),
    ("cannot allocate all claims", ReasonKind.DEVICES),
)
_OF_DEVICES: Final = (*(code.value.removeprefix("claim ") for code in Code), FURTHER_REASONS)


def reported_reasons(message: str) -> tuple[ReportedReason, ...]:
    """Return the reasons in a message; one of another form is one reason, and an empty one has none.

    Of a very long message the beginning counts.
    """
    text = message[:_MOST_READ].strip()
    head = _HEAD.match(text)
    if head is None:
        return (_reason(0, text),) if text else ()
    body = _TAIL.split(text[head.end() :], maxsplit=1)[0].strip().removesuffix(".")
    return tuple(_listed(body))[:_MOST_REASONS] or ((_reason(0, body),) if body else ())


def reworded(message: str, reworded_reason: Callable[[str], str]) -> str:
    """Return the message with other words in the place of its reasons, without what it says of preemption."""
    head = _HEAD.match(message[:_MOST_READ].strip())
    reasons = (f"{reason.nodes or ''} {reworded_reason(reason.text)}".strip() for reason in reported_reasons(message))
    return f"{'' if head is None else head.group()}{', '.join(reasons)}{'' if head is None else '.'}"


def mark_of(reason: str) -> tuple[str, ReasonKind]:
    """Return the words by which the kind of a reason is told, and the kind; no words if it is of no known kind."""
    for text in _OF_DEVICES:
        if text in reason:
            return text, ReasonKind.DEVICES
    lower = reason.lower()
    return next(((mark, kind) for mark, kind in _KINDS if mark in lower), ("", ReasonKind.OTHER))


def _listed(body: str) -> Iterator[ReportedReason]:
    beginnings = list(_BEGIN.finditer(body))
    if beginnings and beginnings[0].start() > 0:
        yield _reason(0, body[: beginnings[0].start()])
    ends = [*(begin.start() for begin in beginnings[1:]), len(body)]
    for begin, end in zip(beginnings, ends[: len(beginnings)], strict=True):
        yield _reason(int(begin.group(1)[:_DIGITS]), body[begin.end() : end])


def _reason(nodes: int, text: str) -> ReportedReason:
    return ReportedReason(nodes=nodes, text=text, kind=mark_of(text)[1])


CLAIM_CREATION: Final = "FailedResourceClaimCreation"
"""The reason of the Events in which kube-controller-manager says why it creates no claim."""
JUDGED: Final = frozenset(
    {
        ReasonKind.AFFINITY,
        ReasonKind.DEVICES,
        ReasonKind.PORTS,
        ReasonKind.RESOURCES,
        ReasonKind.TAINTS,
        ReasonKind.UNSCHEDULABLE,
    }
)
"""What `why` judges by itself, so that a report of it that contradicts the answer is older than the objects."""
_LEFT_ALONE: Final = (Code.DEVICES_IN_BACKOFF.value, Code.NODE_IN_BACKOFF.value)
"""What only the running extender knows."""
_SAID_OTHERWISE: Final = frozenset({FAILED_SCHEDULING, CLAIM_CREATION, UNAVAILABLE_REASON})
"""What the reasons against nodes, the condition PodScheduled or the missing claim say by themselves."""
_MOST_EVENTS: Final = 4
_STRICT: Final = "DoNotSchedule"
_POD: Final = msgspec.json.Decoder(WholePod)


def creation_events(view: ClusterView, pod: Pod) -> list[ObjectEvent]:
    """Return the Events that say why no claim is created for the pod or for its PodGroup, the newest first."""
    events = [*view.events.about("Pod", pod.namespace, pod.name, pod.uid)]
    if pod.pod_group is not None:
        events += view.events.about("PodGroup", pod.namespace, pod.pod_group)
    return [event for event in events if event.reason == CLAIM_CREATION]


def reported_events(view: ClusterView, pod: Pod, facts: PodFacts, cause: Cause) -> tuple[ReportedEvent, ...]:
    """Return the newest Event of each reason that says something of why the pod waits, beside kube-scheduler's own."""
    newest: dict[tuple[str, str, str], ObjectEvent] = {}
    for event in _relevant(view, pod, facts, cause):
        newest.setdefault((event.kind, event.name, event.reason), event)
    return tuple(
        ReportedEvent(
            subject=f"{event.kind} {event.namespace}/{event.name}",
            reason=event.reason,
            message=event.message,
            reporter=event.reporter,
            age=None if event.last is None else max(0.0, view.now - event.last),
        )
        for event in [*newest.values()][:_MOST_EVENTS]
    )


def _relevant(view: ClusterView, pod: Pod, facts: PodFacts, cause: Cause) -> Iterator[ObjectEvent]:
    if cause in (Cause.FINISHED, Cause.DELETING) or (cause is Cause.BOUND and pod.phase != PENDING):
        return
    claims = find_claims(pod, view.ledger)
    awaits_claim = isinstance(claims, Rejection) and claims.code is Code.CLAIM_NOT_CREATED
    if awaits_claim:
        yield from creation_events(view, pod)
    for event in view.events.about("Pod", pod.namespace, pod.name, pod.uid):
        if event.reason not in _SAID_OTHERWISE or cause is Cause.UNKNOWN:
            yield event
    for claim in () if isinstance(claims, Rejection) else claims:
        yield from view.events.about("ResourceClaim", *claim.record.claim.metadata.key, claim.record.claim.metadata.uid)
    if awaits_claim or cause is Cause.POD_GROUP:
        for owner in facts.owners:
            yield from view.events.about(owner.kind, pod.namespace, owner.name, owner.uid)


def scheduler_message(view: ClusterView, pod: Pod, facts: PodFacts) -> str:
    """Return why the pod's scheduler has not placed it: by the condition PodScheduled, otherwise by the newest Event."""
    events = view.events.about("Pod", pod.namespace, pod.name, pod.uid)
    messages = (
        event.message for event in events if (event.reason, event.reporter) == (FAILED_SCHEDULING, pod.scheduler_name)
    )
    return facts.message or next(messages, "")


def absent_scheduler(view: ClusterView, pod: Pod, facts: PodFacts, acting: Collection[str]) -> str:
    """Return that the pod's scheduler is not among the `acting` ones, as far as the objects tell; empty if it is.

    No scheduler acts on a pod with scheduling gates: of such a pod it is said if the name is nearly that of another one.
    """
    name = pod.scheduler_name
    if not name or name in acting or facts.reason not in ("", SCHEDULING_GATED):
        return ""
    if facts.gates and meant_name(name, acting) is None:
        return ""
    others = f"; {listed(sorted(acting))} acted" if acting else ""
    hint = nearest_name_text(name, acting) or others
    missing = next((kind for kind in view.origin.missing if kind.kind == "pods"), None)
    where = "this cluster" if missing is None else f"namespace {missing.namespace}"
    return f"no scheduler named {name} has acted on any pod of {where}{hint}"


def meant_scheduler(pod: Pod, acting: Collection[str], preferred: str = "") -> str | None:
    """Return the scheduler that a pod probably means by a name that no acting one has; None if it is not clear.

    It is the one of nearly that name, otherwise the preferred one, otherwise the only one.
    """
    near = meant_name(pod.scheduler_name, acting)
    return near or (preferred if preferred in acting else next(iter(acting), None) if len(acting) == 1 else None)


def scheduler_text(pod: Pod, name: str) -> str:
    return f"use schedulerName {instead(name, pod.scheduler_name)}"


def unjudged_filters(data: bytes) -> Iterator[UnjudgedFilter]:
    """Yield what kube-scheduler looks at for this pod (API JSON) and nothing here judges; nothing if the pod cannot be read."""
    try:
        spec = decode("Pod", _POD, data).spec
    except ModelError:
        return
    volumes = spec.volumes or ()
    claims = [volume.persistent_volume_claim.claim_name for volume in volumes if volume.persistent_volume_claim]
    claims += [f"of volume {volume.name}" for volume in volumes if volume.ephemeral is not None]
    if claims:
        yield UnjudgedFilter(ReasonKind.VOLUMES, f"PersistentVolumeClaim {listed(claims)}")
    affinity = spec.affinity or Affinity()
    if any(terms is not None and terms.required for terms in (affinity.pod_affinity, affinity.pod_anti_affinity)):
        yield UnjudgedFilter(ReasonKind.OTHER_PODS, "affinity to other pods")
    if any(constraint.when_unsatisfiable == _STRICT for constraint in spec.topology_spread_constraints or ()):
        yield UnjudgedFilter(ReasonKind.OTHER_PODS, "topology spread constraints")


def unbound_reasons(
    view: ClusterView, pod: Pod, reported: Sequence[ReportedReason], *, allocated: bool
) -> tuple[str, ...]:
    """Return why a pod that fits is not bound yet, as far as objects and the running extender show; empty if they do not."""
    reasons: list[str] = []
    if pod.nominated_node_name:
        node = pod.nominated_node_name
        reasons.append(
            f"kube-scheduler has nominated node {node} and waits until the pods that it preempted there have ended"
        )
    if allocated:
        reasons.append("its claims are allocated: kube-scheduler binds it, or tries again if the bind has failed")
    elif view.ledger.holds.of_pod(pod.uid):
        reasons.append("the extender holds devices for it: kube-scheduler is about to bind it")
    if pod.pod_group is not None:
        reasons.append(f"members of PodGroup {pod.namespace}/{pod.pod_group} are bound together")
    if reasons:
        return tuple(reasons)
    if not reported:
        return ("kube-scheduler has not reported on it",)
    if all(reason.kind in JUDGED and not any(code in reason.text for code in _LEFT_ALONE) for reason in reported):
        return (
            "what kube-scheduler reports holds no longer: it tries the pod again by itself, in five minutes at most",
        )
    return ()
