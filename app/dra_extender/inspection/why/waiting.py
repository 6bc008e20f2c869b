"""Why all pods of a cluster wait: equal pods are judged once, and pods with one cause are one row."""

from collections.abc import Hashable
from math import inf
from typing import Final, NamedTuple

import msgspec

from dra_extender.allocator.state.reasons import Code
from dra_extender.inspection.cluster_view import ClusterView, needs_key
from dra_extender.inspection.objects import Origin, require, unread
from dra_extender.inspection.pod_facts import PodFacts
from dra_extender.inspection.why.cause import (
    OF_DEVICES,
    PodCause,
    cause_of,
    claims_key,
    rejections_by_closeness,
    reported_by_closeness,
)
from dra_extender.inspection.why.gang import unready_summary
from dra_extender.inspection.why.report import Cause, ReasonKind, ReportedReason
from dra_extender.inspection.why.reported import absent_scheduler, reported_reasons, scheduler_message
from dra_extender.model.api_json import Value
from dra_extender.model.pod import Pod

WAITING_FORMAT: Final = "dra-extender.io/waiting/v1"
MOST_EVALUATED: Final = 500_000
"""How many nodes are evaluated for all pods together."""
MOST_SEARCHED: Final = 10_000
"""On about how many of them a search is made; the others have the result of an equivalent node."""
_LEAST_SAMPLE: Final = 64
MOST_SECONDS: Final = 60.0
"""After so much time no further pod is looked at; the limits that count end it sooner, unless searches are hard."""
_MOST_NAMES: Final = 10
_NOT_REPORTED: Final = "kube-scheduler has not reported why"


class WaitingCause(Value, frozen=True):
    """Pods that wait for one cause.  `oldest` has waited longest (`age` seconds).

    `code` is the name of the reason that is the nearest miss, empty where devices are not the cause.  `wanted` is the device
    class that the pods ask for.  `detail` says more of the oldest.  `names` are the first of them, oldest first.
    """

    cause: Cause
    text: str
    pods: int
    oldest: str
    age: float | None = None
    code: str = ""
    wanted: str = ""
    detail: str = ""
    names: tuple[str, ...] = ()


class WaitingReport(Value, frozen=True):
    """All pods that wait for a node, by cause, most pods first.

    `nodes` are those of the cluster, None if they could not be read; `pods` those that wait.  `namespace`: only pods of this one
    were asked about, or could be read.  `unasked` of them were not looked at because of a limit that `notes` names.
    """

    format: str
    origin: Origin
    nodes: int | None = 0
    pods: int = 0
    namespace: str = ""
    causes: tuple[WaitingCause, ...] = ()
    unasked: int = 0
    notes: tuple[str, ...] = ()


class _Waiting(NamedTuple):
    """A pod that waits, and what its scheduler has reported of it."""

    pod: Pod
    facts: PodFacts
    reported: tuple[ReportedReason, ...]

    @property
    def order(self) -> tuple[float, str]:
        """The oldest first."""
        return inf if self.facts.created is None else self.facts.created, self.pod.key


def waiting(
    view: ClusterView,
    namespace: str | None = None,
    *,
    most_evaluated: int = MOST_EVALUATED,
    most_searched: int = MOST_SEARCHED,
) -> WaitingReport:
    """Return all pods of the cluster, or of a namespace, that wait for a node, by cause.

    Pods are looked at, the oldest first, until so many nodes have been evaluated.  A pod for which most nodes have to be searched
    is judged by as many nodes as its share of `most_searched`, spread evenly.

    Raises:
        UnreadKindsError: pods could not be read.
    """
    readable = next((kind.namespace for kind in unread(view.origin, {"pods"})), "") if namespace is None else ""
    namespace = namespace or readable or None
    require(view.origin, {"pods"}, namespace)
    waiting_pods = []
    for pod in view.ledger.pods.all():
        if pod.waits_for_node and namespace in (None, pod.namespace):
            facts = view.all_facts.get((pod.namespace, pod.name)) or PodFacts(key=(pod.namespace, pod.name))
            waiting_pods.append(_Waiting(pod, facts, reported_reasons(scheduler_message(view, pod, facts))))
    waiting_pods.sort(key=lambda waiting_pod: waiting_pod.order)
    keys = [_cause_key(view, waiting_pod) for waiting_pod in waiting_pods]
    rows = _Rows(view, most_evaluated, most_searched // max(1, len(set(keys))))
    for key, waiting_pod in zip(keys, waiting_pods, strict=True):
        rows.add(key, waiting_pod)
    causes = tuple(
        msgspec.structs.replace(
            row,
            detail=rows.details[row],
            pods=len(pods),
            oldest=pods[0].pod.key,
            age=None if pods[0].facts.created is None else max(0.0, view.now - pods[0].facts.created),
            names=tuple(pod.pod.key for pod in pods[:_MOST_NAMES]),
        )
        for row, pods in sorted(rows.pods_by_cause.items(), key=lambda entry: (-len(entry[1]), entry[1][0].order))
    )
    notes = [*map(str, view.unreadable)]
    if rows.unasked:
        nodes = f"{most_evaluated} nodes were evaluated"
        what = f"{f'{MOST_SECONDS:g} s were up' if rows.late else nodes}, which is the limit"
        notes.append(f"{rows.unasked} pods were not looked at: {what}")
    if rows.sampled:
        notes.append(f"{rows.sampled} pods were judged by {len(rows.sample)} of {len(view.ledger.nodes)} nodes")
    return WaitingReport(
        format=WAITING_FORMAT,
        origin=view.origin,
        nodes=None if unread(view.origin, {"nodes"}) else len(view.ledger.nodes),
        pods=len(waiting_pods),
        namespace=namespace or "",
        causes=causes,
        unasked=rows.unasked,
        notes=tuple(notes),
    )


class _Rows:
    """Pods by row, in the order in which they were added; `details` are those of the first pod of each row.

    `unasked` pods were not looked at because of a limit (`late`: that of time), `sampled` ones by the nodes in `sample`.
    """

    def __init__(self, view: ClusterView, most_evaluated: int, most_searched: int) -> None:
        self._view = view
        self._known: dict[Hashable, tuple[WaitingCause, bool]] = {}
        self._left = most_evaluated
        self._end = view.monotonic + MOST_SECONDS
        self.late = False
        nodes = tuple(view.ledger.nodes)
        self.sample = nodes[:: -(-len(nodes) // max(_LEAST_SAMPLE, most_searched)) or 1]
        self.pods_by_cause: dict[WaitingCause, list[_Waiting]] = {}
        self.details: dict[WaitingCause, str] = {}
        self.unasked = self.sampled = 0

    def add(self, key: Hashable, waiting_pod: _Waiting) -> None:
        """Find out why the pod waits, unless that is known of a pod with an equal key."""
        if key not in self._known:
            if self._left < len(self._view.ledger.nodes) or self._view.monotonic > self._end:
                self.late = self.late or self._view.monotonic > self._end
                self.unasked += 1
                return
            verdict, sampled = self._judged(waiting_pod)
            row, detail = _row_of(self._view, waiting_pod, verdict)
            self._known[key] = row, sampled
            self.details.setdefault(row, detail)
        row, sampled = self._known[key]
        self.sampled += sampled
        self.pods_by_cause.setdefault(row, []).append(waiting_pod)

    def _judged(self, waiting_pod: _Waiting) -> tuple[PodCause, bool]:
        """Return why the pod waits, and whether a part of the nodes had to suffice."""
        view, pod, facts = self._view, waiting_pod.pod, waiting_pod.facts
        if len(self.sample) < len(view.ledger.nodes) and pod.pod_group is None:
            verdict = cause_of(view, pod, facts, self.sample)
            searched = 0 if verdict.result is None else verdict.result.searched
            if searched > len(self.sample) // 2:
                self._left -= len(self.sample)
                return verdict, True
        verdict = cause_of(view, pod, facts)
        self._left -= 0 if verdict.result is None else len(view.ledger.nodes)
        return verdict, False


def _cause_key(view: ClusterView, waiting_pod: _Waiting) -> Hashable:
    """Return what is equal for pods that wait for one cause; pods with claims that are allocated have each their own."""
    pod, facts = waiting_pod.pod, waiting_pod.facts
    if facts.gates:
        return facts.gates
    if pod.pod_group is not None and pod.needs_devices:
        return ("group", pod.namespace, pod.pod_group)
    fit = view.pod_fit(pod)
    needs = None if fit is None else needs_key(fit.needs)
    reported = tuple((reason.kind, reason.text) for reason in waiting_pod.reported)
    return pod.scheduler_name, claims_key(view, pod), tuple(pod.extended_requests), pod.extended_claim, needs, reported


def _row_of(view: ClusterView, waiting_pod: _Waiting, verdict: PodCause) -> tuple[WaitingCause, str]:
    """Return the row of a pod, without pods, and what is said only of this pod."""
    text = code = device_class = detail = ""
    match verdict.cause:
        case Cause.GATED:
            text = ", ".join(waiting_pod.facts.gates)
        case Cause.CONDITIONS:
            first = verdict.awaited[0]
            text = f"{first.state}: {', '.join(first.conditions)} of {first.device.partition('/')[0]}"
        case Cause.NODES:
            text, code = verdict.node_reasons[0].text, verdict.node_reasons[0].code
        case Cause.NOT_DEVICES | Cause.NO_DEVICES:
            # What kube-scheduler reports, the closest nodes first; else what was judged of nodes.
            reasons = [reason for reason in waiting_pod.reported if reason.kind is not ReasonKind.DEVICES]
            texts = [reason.text for reason in reported_by_closeness(reasons) or verdict.node_reasons]
            absent = absent_scheduler(view, waiting_pod.pod, waiting_pod.facts, view.acting_schedulers)
            text = absent or ", ".join(dict.fromkeys(texts)) or _NOT_REPORTED
        case Cause.UNKNOWN:
            texts = list(dict.fromkeys(reason.text for reason in waiting_pod.reported))
            text = verdict.summary + (f"; kube-scheduler reports: {', '.join(texts)}" if texts else "")
        case _ if verdict.result is None:
            text = verdict.summary
        case _:
            reasons_against = rejections_by_closeness(view, waiting_pod.pod, verdict.result)
            if not reasons_against:
                return WaitingCause(cause=verdict.cause, text="the cluster has no nodes", pods=0, oldest=""), ""
            rejection, demand = reasons_against[0].rejection, verdict.result.demand
            option = None if demand is None else demand.option(rejection.claim, rejection.request)
            detail = rejection.detail if rejection.code not in OF_DEVICES else ""
            if rejection.code is Code.GANG_INCOMPLETE:
                # The evaluation took the pod for one that a node takes, as kube-scheduler asks about no other.
                detail = unready_summary(view, waiting_pod.pod) or detail
            device_class = "" if option is None else option.device_class.name
            text, code = rejection.code.value, rejection.code.name
    return WaitingCause(cause=verdict.cause, text=text, pods=0, oldest="", code=code, wanted=device_class), detail
