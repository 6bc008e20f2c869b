"""Why a pod waits.

First comes what has nothing to do with devices: the pod is bound, ended, gated, or asks for none.  Then the service's own filter
decides about every node; its reasons are grouped by claim, request and reason.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from dra_extender.allocator.demand.demand import ALL, Demand
from dra_extender.allocator.state.rejection import Code, Rejection
from dra_extender.inspection.cluster_view import ClusterView
from dra_extender.inspection.pod_facts import PodFacts
from dra_extender.inspection.why.nearest import NearestDevices
from dra_extender.inspection.why.next_steps import NextSteps, find_request
from dra_extender.inspection.why.report import FORMAT, AwaitedDevice, Branch, Cause, NextStep, NodeReason, WhyReport
from dra_extender.ledger.ledger import Ledger
from dra_extender.model.pod import Pod
from dra_extender.scheduling.claims.conditions import Readiness, evaluate_conditions
from dra_extender.scheduling.claims.lookup import find_claims
from dra_extender.scheduling.evaluation.result import FilterResult

_EXAMPLES: Final = 3
_OF_GANGS: Final = frozenset({Code.GANG, Code.GANG_INCOMPLETE, Code.GANG_ELSEWHERE})
_OF_DEVICES: Final = frozenset(
    {
        Code.NO_MATCH,
        Code.OTHER_NODE,
        Code.IN_USE,
        Code.TAINTED,
        Code.COUNTERS,
        Code.CAPACITY,
        Code.GROUPS,
        Code.NEIGHBOURS,
        Code.CONSTRAINT,
        Code.GROUPS_OFF,
        Code.NODE_OPERATIONS,
        Code.NODE_ALLOCATABLE,
        Code.COMBINATION,
        Code.REQUEST_UNSUPPORTED,
    }
)


class UnknownPodError(LookupError):
    """The pod is not in the cluster; the message says which are near."""


class _Found(NamedTuple):
    cause: Cause
    summary: str


def why(view: ClusterView, namespace: str, name: str) -> WhyReport:
    """Why the pod waits, or that it does not.

    Raises:
        UnknownPodError: there is no such pod.
    """
    pod = view.pod(namespace, name)
    if pod is None:
        unread = next((each for each in view.origin.missing if each.kind == "pods"), None)
        if unread is not None:
            raise UnknownPodError(f"pods could not be read with {view.origin.source}: {unread.reason}")
        raise UnknownPodError(f"pod {namespace}/{name} does not exist in {view.origin.source}")
    facts = view.facts(namespace, name)
    return _Inquiry(view, pod, facts).report()


class _Inquiry:
    def __init__(self, view: ClusterView, pod: Pod, facts: PodFacts) -> None:
        self._view = view
        self._pod = pod
        self._facts = facts

    def report(self) -> WhyReport:
        found = self._without_devices()
        if found is not None:
            return self._made(found)
        awaited = tuple(self._awaited())
        result = self._view.evaluate(self._pod)
        steps: dict[str, NextStep] = {}
        branches = tuple(self._branches(result, steps))
        return msgspec.structs.replace(
            self._made(self._cause(result, awaited)),
            nodes=len(self._view.ledger.nodes),
            fitting=len(result.fits),
            branches=branches,
            awaited=awaited,
            next=tuple(steps.values()),
        )

    def _without_devices(self) -> _Found | None:
        """What decides before any device is looked at."""
        pod, facts = self._pod, self._facts
        if pod.finished:
            return _Found(Cause.FINISHED, f"has ended: {pod.phase}")
        if pod.deleting:
            return _Found(Cause.DELETING, "is being deleted")
        if pod.node_name:
            return _Found(Cause.BOUND, f"is bound to node {pod.node_name}")
        if facts.gates:
            return _Found(Cause.GATED, f"waits until its scheduling gates are removed: {', '.join(facts.gates)}")
        if not pod.needs_devices:
            return _Found(Cause.NO_DEVICES, "asks for no devices that Dynamic Resource Allocation serves")
        return None

    def _cause(self, result: FilterResult, awaited: Sequence[AwaitedDevice]) -> _Found:
        nodes, codes = len(self._view.ledger.nodes), result.codes
        fits = f"fits {len(result.fits)} of {nodes} nodes"
        if awaited:
            return _Found(Cause.CONDITIONS, "is allocated and not bound: its devices are not ready")
        if result.fits:
            return _Found(Cause.NOT_DEVICES, f"has its devices on {len(result.fits)} of {nodes} nodes")
        if codes & _OF_GANGS:
            return _Found(Cause.POD_GROUP, fits)
        if codes and not codes & _OF_DEVICES and all(each.rejection.claim for each in result.why()):
            return _Found(Cause.CLAIMS, fits)
        return _Found(Cause.DEVICES, fits)

    def _made(self, found: _Found) -> WhyReport:
        pod, facts, now = self._pod, self._facts, self._view.now
        return WhyReport(
            format=FORMAT,
            pod=pod.key,
            cause=found.cause,
            summary=found.summary,
            origin=self._view.origin,
            scheduler=pod.scheduler_name,
            age=None if facts.created is None else max(0.0, now - facts.created),
            node=pod.node_name,
            said=facts.message,
            notes=tuple(f"{each.kind}: {each.reason}" for each in self._view.unreadable),
        )

    def _branches(self, result: FilterResult, steps: dict[str, NextStep]) -> Iterator[Branch]:
        """The reasons by claim and request; what would help is added to `steps`, by its text."""
        nodes = _nodes_by_text(result)
        nearest, next_steps = NearestDevices(self._view), NextSteps(self._view, self._pod)
        reasons: dict[tuple[str, str], list[NodeReason]] = defaultdict(list)
        for group in result.why():
            rejection = group.rejection
            names = nodes.get(rejection.summary, [group.example])
            request = (rejection.claim, rejection.request)
            device = None
            if result.demand is not None and rejection.request and rejection.code in _OF_DEVICES:
                device = nearest.find(result.demand, request, names, rejection.code)
            step = next_steps.for_device(rejection, device, result.demand, names)
            if step is not None:
                steps.setdefault(step.text, step)
            reasons[request].append(
                NodeReason(
                    nodes=group.nodes,
                    examples=tuple(names[:_EXAMPLES]),
                    code=rejection.code.name,
                    text=_text(rejection, has_device=device is not None),
                    nearest=device,
                )
            )
        for (claim, name), found in reasons.items():
            yield Branch(claim=claim, request=name, wanted=_wanted(result.demand, claim, name), reasons=tuple(found))

    def _awaited(self) -> Iterator[AwaitedDevice]:
        """Devices of allocated claims that are reserved for the pod and not ready."""
        ledger: Ledger = self._view.ledger
        claims = find_claims(self._pod, ledger)
        if isinstance(claims, Rejection):
            return
        timeout, now = self._view.options.binding_timeout_seconds, self._view.now
        for each in claims:
            claim = each.record.claim
            if claim.status.allocation is None or not each.reserved:
                continue
            verdict = evaluate_conditions(claim, now=now, waiting_since=now, timeout=timeout)
            if verdict.readiness is Readiness.READY:
                continue
            for device in verdict.problems:
                yield AwaitedDevice(
                    claim=each.label,
                    device=device.name,
                    conditions=device.conditions,
                    state=verdict.readiness.value,
                    message=device.message,
                    limit=verdict.deadline,
                )


def _nodes_by_text(result: FilterResult) -> Mapping[str, list[str]]:
    nodes: dict[str, list[str]] = defaultdict(list)
    for node, text in result.texts.items():
        nodes[text].append(node)
    return nodes


def _text(rejection: Rejection, *, has_device: bool) -> str:
    """The reason, with the details that no nearest device tells."""
    code = rejection.code
    return code.value if has_device or not rejection.detail else f"{code.value}: {rejection.detail}"


def _wanted(demand: Demand | None, claim: str, request: str) -> str:
    """E.g. `2 x gpu.example.com`, empty if the request is not known."""
    option = find_request(demand, claim, request)
    if option is None:
        return ""
    count = "all" if option.count == ALL else str(option.count)
    return f"{count} x {option.device_class.name}"
