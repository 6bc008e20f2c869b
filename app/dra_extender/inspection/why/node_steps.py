"""What would help a pod that may not use the nodes that have its devices: less of a resource, a toleration, the end of pods."""

import copy
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Final, NamedTuple

import msgspec

from dra_extender.allocator.explain.device_messages import taint_text
from dra_extender.cel.explain.values import quantity_text
from dra_extender.cel.values.quantity import format_quantity
from dra_extender.inspection.cluster_view import ClusterView, PodFit
from dra_extender.inspection.fewest_ends import fewest_ends
from dra_extender.inspection.why.cause import PodCause, refused_by_closeness
from dra_extender.inspection.why.changes import NO_CHANGE, ProposedChange, ProposedStep, staying_pods, together
from dra_extender.inspection.why.report import DEVICES_AND_NODES, EXAMPLES, Cause
from dra_extender.model.device import DeviceTaint
from dra_extender.model.pod import Pod
from dra_extender.model.pod_placement import Toleration
from dra_extender.nodefit.node_fit import CONDITION_TAINTS, NodeFilter, NodeRefusal
from dra_extender.nodefit.pod_needs import PodNeeds, conflicting, read_amounts

_MOST_STEPS: Final = 3
_MOST_NODES: Final = 200
"""Nodes that are looked at for a pod that asks for no devices, spread evenly."""
_MOST_TRIED: Final = 32
"""Nodes for which changes are looked for: those that come closest to letting the pod in."""
_MOST_ENDED: Final = 4
_OF_CONDITIONS: Final = frozenset(CONDITION_TAINTS.values())
_TAKEN: Final = frozenset({NodeFilter.PORTS, NodeFilter.RESOURCES})
_ROUND: Final = 10**6
"""Amounts are named in thousandths."""


class _Help(NamedTuple):
    """What a person may do, and the pod's needs afterwards.  `on_node_only`: it helps only on the node that was looked at."""

    change: ProposedChange
    needs: PodNeeds
    on_node_only: bool = False


class NodeSteps:
    """Looks for changes of one pod, or of nodes, after which it may use a node that has its devices."""

    def __init__(self, view: ClusterView, pod: Pod, change: ProposedChange = NO_CHANGE) -> None:
        """`change`: what is already changed when the steps are looked for."""
        self._view = view
        self._change = change
        self._fit = view.pod_fit(pod, change.ended)
        self._spec = (view.stored("pods", pod.name, pod.namespace) or {}).get("spec", {})
        # What the pod's runtime class adds is no request that a person can lower.
        self._overhead = read_amounts(self._spec.get("overhead"))

    def steps_for(self, cause: PodCause) -> tuple[ProposedStep, ...]:
        """Return the changes that help alone; none for other causes than NODES, and NO_DEVICES where no node may be used."""
        if cause.cause is Cause.NODES and cause.result is not None:
            return self.steps_on(tuple(cause.result.fits))
        if cause.cause is Cause.NO_DEVICES and not cause.usable and cause.node_reasons:
            return self.steps_on_all()
        return ()

    def steps_on_all(self) -> tuple[ProposedStep, ...]:
        """Return the changes that help on any node, as far as _MOST_NODES of them show it."""
        return self.steps_on(self._some_nodes())

    def spec_changes(self, beside: Mapping[str, int]) -> Iterator[tuple[ProposedChange, Mapping[str, object]]]:
        """Yield what to do about the pod alone for a node where others take `beside`, and fields of its spec; nothing is tried."""
        fit = self._fit
        if fit is None:
            return
        refusals = {name: fit.refusals(name) for name in self._some_nodes()}
        for name in refused_by_closeness(refusals)[:_MOST_TRIED]:
            reduced = [
                msgspec.structs.replace(refusal, free=refusal.free - beside.get(refusal.resource, 0))
                for refusal in refusals[name]
            ]
            for advice in _changed(fit.needs, name, reduced, self._overhead):
                if not advice.on_node_only:
                    yield advice.change, self._fields(fit.needs, advice.needs)

    def _some_nodes(self) -> Sequence[str]:
        names = sorted(self._view.ledger.nodes)
        return names[:: -(-len(names) // _MOST_NODES) or 1]

    def _fields(self, before: PodNeeds, after: PodNeeds) -> Mapping[str, object]:
        """Return the fields of the pod's spec that differ after a change; the first container asks for what is lowered."""
        fields: dict[str, object] = {}
        if after.tolerations != before.tolerations:
            fields["tolerations"] = msgspec.to_builtins(after.tolerations)
        if after.affinity != before.affinity or after.node_selector != before.node_selector:
            fields |= {"nodeSelector": {}, "affinity": {**(self._spec.get("affinity") or {}), "nodeAffinity": None}}
        lowered = {name: amount for name, amount in after.amounts.items() if amount != before.amounts.get(name)}
        if lowered or after.ports != before.ports:
            containers = copy.deepcopy(self._spec.get("containers") or [{}])
            for container in containers:
                resources = container["resources"] = container.get("resources") or {}
                for amounts in (resources.get("requests") or {}, resources.get("limits") or {}):
                    for name in lowered:
                        amounts.pop(name, None)
                if after.ports != before.ports:
                    container["ports"] = []
            written = {name: format_quantity(amount - self._overhead.get(name, 0)) for name, amount in lowered.items()}
            first = containers[0]["resources"]
            first["requests"] = {**(first.get("requests") or {}), **written}
            fields["containers"] = containers
        return fields

    def steps_on(self, nodes: Sequence[str]) -> tuple[ProposedStep, ...]:
        """Return the changes that help on these nodes, those first that harm nobody."""
        fit = self._fit
        if fit is None:
            return ()
        steps = islice(self._steps(fit, {name: fit.refusals(name) for name in sorted(nodes)}), _MOST_STEPS)
        return tuple(sorted(steps, key=lambda step: step.change.harmful))

    def first_step_on(self, nodes: Sequence[str]) -> ProposedStep | None:
        """Return the first change that helps on these nodes; None if the pod may use one of them without a change."""
        if self._fit is None or not all(map(self._fit.refusals, nodes)):
            return None
        return next(iter(self.steps_on(nodes)), None)

    def _steps(self, fit: PodFit, refusals: Mapping[str, Sequence[NodeRefusal]]) -> Iterator[ProposedStep]:
        """Yield the changes that help, each once; those for the nodes that lack least first."""
        texts: set[str] = set()
        for name in refused_by_closeness(refusals)[:_MOST_TRIED]:
            for advice in self._helps(fit, name, refusals[name]):
                change = together((self._change, advice.change))
                if change.text in texts:
                    continue
                changed_fit = fit.with_needs(advice.needs)
                allowing = (other_node for other_node in refusals if not changed_fit.refusals(other_node))
                usable = (name,) if advice.on_node_only else tuple(islice(allowing, EXAMPLES))
                if usable:
                    texts.add(change.text)
                    yield ProposedStep(change, usable, DEVICES_AND_NODES)

    def _helps(self, fit: PodFit, node: str, against: Sequence[NodeRefusal]) -> Iterator[_Help]:
        """Yield changes that suffice for this node: of pod and node, or where a resource or port is taken, the end of pods."""
        yield from _changed(fit.needs, node, against, self._overhead)
        ends = self._fewest_ends(fit, node) if _is_taken(against) else None
        if ends is None:
            return
        awaited, ended = ends
        remaining = fit.after((*awaited, *ended)).refusals(node)
        verb = "is" if len(awaited) == 1 else "are"
        wait = (f"wait until {' and '.join(awaited)} {verb} deleted",) if awaited else ()
        end = ProposedChange(wait, ended=(*awaited, *ended), ends=tuple(ended), harmful=bool(ended))
        unchanged = (_Help(NO_CHANGE, fit.needs),)
        for advice in _changed(fit.needs, node, remaining, self._overhead) if remaining else unchanged:
            yield _Help(together((advice.change, end)), advice.needs, on_node_only=True)

    def _fewest_ends(self, fit: PodFit, node: str) -> tuple[Sequence[str], Sequence[str]] | None:
        """Return the pods to wait for, and those to end, so that resources and ports of the node suffice; None if nothing helps.

        It is the end of one pod, else of some of those that take most.
        """

        def suffices(keys: Sequence[str]) -> bool:
            return not _is_taken(fit.after(keys).refusals(node))

        running = [pod for pod in fit.fit.running_on(node) if pod.key not in fit.ended]
        running.sort(key=lambda pod: (_share_of(pod, fit.needs), pod.key))
        by_key = {pod.key: pod for pod in staying_pods(self._view, (pod.key for pod in running))}
        leaving = [pod.key for pod in running if pod.key not in by_key]
        # Other members of the pod's gang, which are counted on the node, have none yet.
        ending = [pod.key for pod in running if pod.key in by_key and by_key[pod.key].node_name]
        largest = ending[: -_MOST_ENDED - 1 : -1]
        # Of pods that hurt equally, the one that takes least of what is enough.
        by_priority = sorted(ending, key=lambda key: by_key[key].priority)
        staying = [key for key in by_priority if suffices([*leaving, key])] or largest
        if not suffices([*leaving, *staying]):
            return None
        return fewest_ends(leaving, staying, lambda key: self._view.may_be_evicted([key]), suffices)


def _is_taken(refusals: Sequence[NodeRefusal]) -> bool:
    """Return whether other pods may have what the pod needs of the node."""
    return any(refusal.filter in _TAKEN for refusal in refusals)


def _share_of(pod_needs: PodNeeds, needs: PodNeeds) -> float:
    """Return how much a pod takes of what another pod needs, as parts of that; a port of the host counts as the whole."""
    ports = any(conflicting(needs.ports, pod_needs.ports))
    return ports + sum(pod_needs.amounts.get(name, 0) / needed for name, needed in needs.amounts.items() if needed)


def _changed(
    needs: PodNeeds, node: str, against: Sequence[NodeRefusal], overhead: Mapping[str, int]
) -> Iterator[_Help]:
    """Yield one change for all reasons against the node together; none if it has too many pods, or nothing left of a resource."""
    texts: list[str] = []
    changed, cordoned = needs, False
    for refusal in against:
        match refusal.filter:
            case NodeFilter.UNSCHEDULABLE:
                texts.append(f"uncordon {node}")
                cordoned = True
            case NodeFilter.TAINTS:
                texts += _untainted(node, refusal.taints)
                cordoned = cordoned or any(taint.key in _OF_CONDITIONS for taint in refusal.taints)
                tolerations = [
                    Toleration(key=taint.key, operator="Equal", value=taint.value, effect=taint.effect)
                    for taint in refusal.taints
                ]
                changed = msgspec.structs.replace(changed, tolerations=(*changed.tolerations, *tolerations))
            case NodeFilter.AFFINITY:
                texts.append("ask for no node selector and no node affinity")
                changed = msgspec.structs.replace(changed, node_selector={}, affinity=None)
            case NodeFilter.PORTS:
                texts.append("ask for other ports of the host")
                changed = msgspec.structs.replace(changed, ports=())
            case NodeFilter.RESOURCES if refusal.resource in needs.amounts:
                added = overhead.get(refusal.resource, 0)
                rounded = (refusal.free - added) // _ROUND * _ROUND
                if rounded <= 0:
                    return
                texts.append(f"ask for {quantity_text(rounded)} of {refusal.resource}")
                amounts = {**changed.amounts, refusal.resource: rounded + added}
                changed = msgspec.structs.replace(changed, amounts=amounts)
            case _:
                return
    if texts:
        yield _Help(ProposedChange(tuple(texts)), changed, cordoned)


def _untainted(node: str, taints: Sequence[DeviceTaint]) -> Iterator[str]:
    """Say what to do about taints: tolerate them, or where they stand for conditions, bring the node into order."""
    # A condition may have a taint for each effect.
    of_conditions = dict.fromkeys(taint.key.rpartition("/")[2] for taint in taints if taint.key in _OF_CONDITIONS)
    if of_conditions:
        yield f"check {node}, which is {' and '.join(of_conditions)}"
    own_taints = [taint for taint in taints if taint.key not in _OF_CONDITIONS]
    if own_taints:
        yield f"tolerate {' and '.join(map(taint_text, own_taints))}"
