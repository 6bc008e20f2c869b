"""Why all pods of a cluster wait: equal pods are judged once, and pods with one cause are one row."""

from collections.abc import Hashable, Iterator, Sequence
from typing import Final, NamedTuple

import msgspec

from dra_extender.allocator.state.rejection import NEAREST_MISS_FIRST, Code, Rejection
from dra_extender.inspection.cluster_view import ClusterView
from dra_extender.inspection.objects import Origin
from dra_extender.inspection.pod_facts import PodFacts
from dra_extender.inspection.why.cause import OF_DEVICES, PodCause, cause_of
from dra_extender.inspection.why.report import Cause, NextStep, ReasonKind
from dra_extender.inspection.why.reported import reported_reasons
from dra_extender.inspection.why.why import why
from dra_extender.model.api_json import Value
from dra_extender.model.pod import Pod
from dra_extender.scheduling.claims.lookup import find_claims

WAITING_FORMAT: Final = "dra-extender.io/waiting/v1"
MOST_EVALUATED: Final = 400_000
"""How many nodes are evaluated for all pods together."""
_MOST_NAMES: Final = 10
_HELPED: Final = frozenset({Cause.DEVICES, Cause.NODES, Cause.CLAIMS, Cause.CONDITIONS, Cause.POD_GROUP})
_NOT_REPORTED: Final = "kube-scheduler has not reported why"


class WaitingCause(Value, frozen=True):
    """Pods that wait for one cause.  `oldest` has waited longest (`age` seconds), and `next` is what would help it.

    `code` is the name of the reason against most nodes, empty where devices are not the cause.  `wanted` is what the pods ask for,
    e.g. `1 x gpu.example.com`.  `names` are the first of them, `namespace/name`, oldest first.
    """

    cause: Cause
    text: str
    pods: int
    oldest: str
    age: float | None = None
    code: str = ""
    wanted: str = ""
    names: tuple[str, ...] = ()
    next: tuple[NextStep, ...] = ()


class WaitingReport(Value, frozen=True):
    """All pods that wait for a node, by cause, most pods first.

    `nodes` are those of the cluster, `pods` those that wait.  `unasked` of them were not looked at because of a limit that
    `notes` names.
    """

    format: str
    origin: Origin
    nodes: int = 0
    pods: int = 0
    causes: tuple[WaitingCause, ...] = ()
    unasked: int = 0
    notes: tuple[str, ...] = ()


class _Row(NamedTuple):
    """What pods of one row have in common."""

    cause: Cause
    text: str
    code: str
    wanted: str


class _Waiting(NamedTuple):
    pod: Pod
    facts: PodFacts


def waiting(
    view: ClusterView, namespace: str | None = None, *, steps: int = 0, most_evaluated: int = MOST_EVALUATED
) -> WaitingReport:
    """All pods of the cluster, or of a namespace, that wait for a node, by cause.

    For the first `steps` causes it is looked for what would help their oldest pod.
    """
    found = sorted(_waiting_pods(view, namespace), key=_oldest_first)
    rows, unasked = _rows(view, found, most_evaluated)
    ordered = sorted(rows.items(), key=lambda entry: (-len(entry[1]), _oldest_first(entry[1][0])))
    causes = [_row(view, row, pods) for row, pods in ordered]
    for place in [place for place, each in enumerate(causes) if each.cause in _HELPED][:steps]:
        causes[place] = msgspec.structs.replace(causes[place], next=why(view, *_key(causes[place].oldest)).next)
    notes = [f"{each.kind}: {each.reason}" for each in view.unreadable]
    if unasked:
        notes.append(f"{unasked} pods were not looked at: {most_evaluated} nodes were evaluated, which is the limit")
    return WaitingReport(
        format=WAITING_FORMAT,
        origin=view.origin,
        nodes=len(view.ledger.nodes),
        pods=len(found),
        causes=tuple(causes),
        unasked=unasked,
        notes=tuple(notes),
    )


def _waiting_pods(view: ClusterView, namespace: str | None) -> Iterator[_Waiting]:
    for pod in view.ledger.pods.all():
        if pod.node_name or pod.finished or pod.deleting:
            continue
        if namespace is None or pod.namespace == namespace:
            key = (pod.namespace, pod.name)
            yield _Waiting(pod, view.all_facts.get(key) or PodFacts(key=key))


def _oldest_first(each: _Waiting) -> tuple[float, str]:
    return (float("inf") if each.facts.created is None else each.facts.created, each.pod.key)


def _rows(view: ClusterView, found: Sequence[_Waiting], most_evaluated: int) -> tuple[dict[_Row, list[_Waiting]], int]:
    """The pods by row, oldest first, and how many were not looked at."""
    known: dict[Hashable, _Row] = {}
    rows: dict[_Row, list[_Waiting]] = {}
    left, unasked = most_evaluated, 0
    for each in found:
        key = _signature(view, each)
        row = known.get(key)
        if row is None:
            if left < len(view.ledger.nodes):
                unasked += 1
                continue
            verdict = cause_of(view, each.pod, each.facts)
            if verdict.result is not None:
                left -= len(view.ledger.nodes)
            row = known[key] = _row_of(each, verdict)
        rows.setdefault(row, []).append(each)
    return rows, unasked


def _signature(view: ClusterView, each: _Waiting) -> Hashable:
    """Equal for pods with equal answers."""
    pod, facts = each.pod, each.facts
    if facts.gates:
        return facts.gates
    if pod.pod_group is not None and pod.needs_devices:
        return ("group", pod.namespace, pod.pod_group)
    fit = view.node_fit
    needs = None if fit is None else fit.needs(pod.key)
    other = None if needs is None else msgspec.json.encode(msgspec.structs.replace(needs, key=""), order="sorted")
    reported = tuple((reason.kind, reason.text) for reason in reported_reasons(facts.message))
    return (_claims_signature(view, pod), tuple(pod.extended_requests), pod.extended_claim, other, reported)


def _claims_signature(view: ClusterView, pod: Pod) -> Hashable:
    found = find_claims(pod, view.ledger)
    if isinstance(found, Rejection):
        return (found.code, found.claim, found.detail)
    return tuple(
        (each.label, each.record.spec_digest)
        if each.record.claim.status.allocation is None and each.record.pending is None
        else each.record.claim.metadata.uid
        for each in found
    )


def _row_of(each: _Waiting, verdict: PodCause) -> _Row:
    match verdict.cause:
        case Cause.GATED:
            return _Row(verdict.cause, ", ".join(each.facts.gates), "", "")
        case Cause.CONDITIONS:
            return _Row(verdict.cause, _awaited_text(verdict), "", "")
        case Cause.NODES:
            return _Row(verdict.cause, verdict.beside[0].text, verdict.beside[0].code, "")
        case Cause.NOT_DEVICES | Cause.NO_DEVICES:
            return _Row(verdict.cause, _reported_text(each, verdict), "", "")
    return _of_rejection(verdict)


def _of_rejection(verdict: PodCause) -> _Row:
    """The nearest miss among the reasons against nodes."""
    result = verdict.result
    reasons = [] if result is None else result.why()
    if result is None or not reasons:
        return _Row(verdict.cause, "the cluster has no nodes", "", "")
    rejection = min(reasons, key=lambda group: _RANK.get(group.rejection.code, len(_RANK))).rejection
    option = None if result.demand is None else result.demand.option(rejection.claim, rejection.request)
    wanted = "" if option is None else option.text
    detail = f": {rejection.detail}" if rejection.detail and rejection.code not in OF_DEVICES else ""
    return _Row(verdict.cause, rejection.code.value + detail, rejection.code.name, wanted)


_RANK: Final = {code: rank for rank, code in enumerate((*NEAREST_MISS_FIRST, Code.NO_MATCH, Code.OTHER_NODE))}


def _awaited_text(verdict: PodCause) -> str:
    first = verdict.awaited[0]
    driver = first.device.partition("/")[0]
    return f"{first.state}: {', '.join(first.conditions)} of {driver}"


def _reported_text(each: _Waiting, verdict: PodCause) -> str:
    """What kube-scheduler reports, most nodes first; else what was judged of nodes."""
    reasons = [reason for reason in reported_reasons(each.facts.message) if reason.kind is not ReasonKind.DEVICES]
    texts = [reason.text for reason in sorted(reasons, key=lambda reason: -reason.nodes)]
    texts = texts or [reason.text for reason in verdict.beside]
    return ", ".join(dict.fromkeys(texts)) or _NOT_REPORTED


def _row(view: ClusterView, row: _Row, pods: Sequence[_Waiting]) -> WaitingCause:
    created = pods[0].facts.created
    return WaitingCause(
        cause=row.cause,
        text=row.text,
        code=row.code,
        wanted=row.wanted,
        pods=len(pods),
        oldest=pods[0].pod.key,
        age=None if created is None else max(0.0, view.now - created),
        names=tuple(each.pod.key for each in pods[:_MOST_NAMES]),
    )


def _key(pod: str) -> tuple[str, str]:
    namespace, _, name = pod.partition("/")
    return namespace, name
