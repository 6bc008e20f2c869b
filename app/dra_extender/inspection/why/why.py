"""Why a pod waits.

First comes what has nothing to do with devices: the pod is bound, ended, gated, or asks for none.  Then the service's own filter
decides about every node; its reasons are grouped by claim, request and reason.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping

import msgspec

from dra_extender.allocator.state.rejection import Rejection
from dra_extender.inspection.cluster_view import ClusterView
from dra_extender.inspection.pod_facts import PodFacts
from dra_extender.inspection.why.cause import EXAMPLES, OF_DEVICES, PodCause, cause_of
from dra_extender.inspection.why.nearest import NearestDevices
from dra_extender.inspection.why.next_steps import NextSteps
from dra_extender.inspection.why.report import FORMAT, Branch, NextStep, NodeReason, WhyReport
from dra_extender.inspection.why.reported import reported_reasons
from dra_extender.model.pod import Pod
from dra_extender.scheduling.evaluation.result import FilterResult


class UnknownPodError(LookupError):
    """The pod is not in the cluster; the message says which are near."""


def why(view: ClusterView, namespace: str, name: str) -> WhyReport:
    """Why the pod waits, or that it does not.

    Raises:
        UnknownPodError: there is no such pod.
    """
    pod = known_pod(view, namespace, name)
    return _Inquiry(view, pod, view.facts(namespace, name)).report()


def known_pod(view: ClusterView, namespace: str, name: str) -> Pod:
    """The pod of this name.

    Raises:
        UnknownPodError: there is no such pod, or pods could not be read.
    """
    pod = view.pod(namespace, name)
    if pod is None:
        unread = next((each for each in view.origin.missing if each.kind == "pods"), None)
        if unread is not None:
            raise UnknownPodError(f"pods could not be read with {view.origin.source}: {unread.reason}")
        raise UnknownPodError(f"pod {namespace}/{name} does not exist in {view.origin.source}")
    return pod


class _Inquiry:
    def __init__(self, view: ClusterView, pod: Pod, facts: PodFacts) -> None:
        self._view = view
        self._pod = pod
        self._facts = facts

    def report(self) -> WhyReport:
        found = cause_of(self._view, self._pod, self._facts)
        made = self._made(found)
        if found.result is None:
            return made
        steps: dict[str, NextStep] = {}
        branches = tuple(self._branches(found.result, steps))
        return msgspec.structs.replace(
            made,
            nodes=len(self._view.ledger.nodes),
            fitting=len(found.result.fits),
            branches=branches,
            next=tuple(steps.values()),
        )

    def _made(self, found: PodCause) -> WhyReport:
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
            reported=reported_reasons(facts.message),
            beside=found.beside,
            awaited=found.awaited,
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
            if result.demand is not None and rejection.request and rejection.code in OF_DEVICES:
                device = nearest.find(result.demand, request, names, rejection.code)
            step = next_steps.for_device(rejection, device, result.demand, names)
            if step is not None:
                steps.setdefault(step.text, step)
            reasons[request].append(
                NodeReason(
                    nodes=group.nodes,
                    examples=tuple(names[:EXAMPLES]),
                    code=rejection.code.name,
                    text=_text(rejection, has_device=device is not None),
                    nearest=device,
                )
            )
        for (claim, name), found in reasons.items():
            option = None if result.demand is None else result.demand.option(claim, name)
            yield Branch(claim=claim, request=name, wanted="" if option is None else option.text, reasons=tuple(found))


def _nodes_by_text(result: FilterResult) -> Mapping[str, list[str]]:
    nodes: dict[str, list[str]] = defaultdict(list)
    for node, text in result.texts.items():
        nodes[text].append(node)
    return nodes


def _text(rejection: Rejection, *, has_device: bool) -> str:
    """The reason, with the details that no nearest device tells."""
    code = rejection.code
    return code.value if has_device or not rejection.detail else f"{code.value}: {rejection.detail}"
