"""What would help a pod that may not use the nodes that have its devices: less of a resource, a toleration, the end of pods."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import islice
from typing import Final, NamedTuple

import msgspec

from dra_extender.allocator.explain.messages import taint_text
from dra_extender.cel.explain.values import quantity_text
from dra_extender.inspection.cluster_view import ClusterView
from dra_extender.inspection.why.cause import PodCause, refused_by_closeness
from dra_extender.inspection.why.report import DEVICES_AND_NODES, Cause, NextStep
from dra_extender.inspection.why.trials import joined
from dra_extender.model.device import DeviceTaint
from dra_extender.model.pod import Pod
from dra_extender.model.pod_placement import Toleration
from dra_extender.nodefit.node_facts import CONDITION_TAINTS, NodeFilter, NodeRefusal
from dra_extender.nodefit.node_fit import NodeFit
from dra_extender.nodefit.pod_needs import PodNeeds

_MOST_NAMED: Final = 3
_MOST_STEPS: Final = 3
_MOST_NODES: Final = 200
"""Nodes that are looked at for a pod that asks for no devices, spread evenly."""
_MOST_TRIED: Final = 32
"""Nodes for which changes are looked for: those that come closest to letting the pod in."""
_MOST_ENDED: Final = 4
_OF_CONDITIONS: Final = frozenset(CONDITION_TAINTS.values())
_ROUND: Final = 10**6
"""Amounts are named in thousandths."""


class _Help(NamedTuple):
    """What a person may do, and the pod's needs afterwards; `there`: it helps on the node that was looked at alone."""

    text: str
    needs: PodNeeds
    there: bool = False


class NodeSteps:
    """Looks for changes of one pod, or of nodes, after which it may use a node that has its devices."""

    def __init__(self, view: ClusterView, pod: Pod, ended: Collection[str] = ()) -> None:
        """`ended`: pods (`namespace/name`) that are gone by then."""
        self._view = view
        self._ended = ended
        self._fit = view.node_fit
        self._needs = None if self._fit is None else self._fit.needs(pod.key)

    def steps_for(self, found: PodCause) -> tuple[NextStep, ...]:
        """Return the changes that help alone; none for other causes than NODES, and NO_DEVICES where no node may be used."""
        if found.cause is Cause.NODES and found.result is not None:
            return self.steps_on(tuple(found.result.fits))
        if found.cause is Cause.NO_DEVICES and not found.usable and found.beside:
            names = sorted(self._view.ledger.nodes)
            return self.steps_on(names[:: -(-len(names) // _MOST_NODES) or 1])
        return ()

    def steps_on(self, nodes: Sequence[str], before: str = "") -> tuple[NextStep, ...]:
        """Return the changes that help on these nodes; `before` says what is done besides."""
        fit, needs = self._fit, self._needs
        if fit is None or needs is None:
            return ()
        refusals = {name: fit.refusals(needs, name, self._ended) for name in sorted(nodes)}
        return tuple(islice(self._steps(fit, needs, refusals, before), _MOST_STEPS))

    def _steps(
        self, fit: NodeFit, needs: PodNeeds, refusals: Mapping[str, Sequence[NodeRefusal]], before: str
    ) -> Iterator[NextStep]:
        """Yield the changes that help, each once; those for the nodes that lack least first."""
        known: set[str] = set()
        for name in refused_by_closeness(refusals)[:_MOST_TRIED]:
            for each in self._helps(fit, needs, name, refusals[name]):
                text = joined((before, each.text)) if before else each.text
                if text in known:
                    continue
                allowing = (other for other in refusals if not fit.refusals(each.needs, other, self._ended))
                usable = [name] if each.there else list(islice(allowing, _MOST_NAMED))
                if usable:
                    known.add(text)
                    yield NextStep(text=text, nodes=tuple(usable), verified=DEVICES_AND_NODES)

    def _helps(self, fit: NodeFit, needs: PodNeeds, node: str, against: Sequence[NodeRefusal]) -> Iterator[_Help]:
        """Changes that are enough for this node: of the pod and the node; or where a resource is short, the end of pods there."""
        yield from _changed(needs, node, against)
        others = [each for each in against if each.filter is not NodeFilter.RESOURCES]
        pods = self._fewest_ended(fit, needs, node, len(others)) if len(others) < len(against) else ()
        if pods:
            for each in _changed(needs, node, others) if others else (_Help("", needs),):
                yield _Help(joined((each.text, f"end {', '.join(pods)}")), each.needs, there=True)

    def _fewest_ended(self, fit: NodeFit, needs: PodNeeds, node: str, refusals: int) -> Sequence[str]:
        """The end of one pod, else of some that take most, after which no resource of the node is short; empty if there is none.

        `refusals` against the node remain.
        """

        def suffice(keys: Sequence[str]) -> bool:
            return len(fit.refusals(needs, node, (*self._ended, *keys))) == refusals

        running = [each for each in fit.running_on(node) if each.key not in self._ended]
        running.sort(key=lambda each: (_taken(each, needs), each.key))
        single = next(([pod.key] for pod in running if suffice([pod.key])), None)
        if single is not None:
            return single
        largest = [pod.key for pod in reversed(running[-_MOST_ENDED:])]
        several = (largest[:count] for count in range(2, len(largest) + 1))
        return next((keys for keys in several if suffice(keys)), ())


def _taken(of: PodNeeds, by: PodNeeds) -> float:
    """Return how much a pod takes of what another one needs, as parts of that."""
    return sum(of.amounts.get(name, 0) / needed for name, needed in by.amounts.items() if needed)


def _changed(needs: PodNeeds, node: str, against: Sequence[NodeRefusal]) -> Iterator[_Help]:
    """Yield one change for all reasons against the node together; none if it has too many pods, or nothing left of a resource."""
    texts: list[str] = []
    changed, cordoned = needs, False
    for each in against:
        match each.filter:
            case NodeFilter.UNSCHEDULABLE:
                texts.append(f"uncordon {node}")
                cordoned = True
            case NodeFilter.TAINTS:
                texts += _untainted(node, each.taints)
                cordoned = cordoned or any(taint.key in _OF_CONDITIONS for taint in each.taints)
                added = [
                    Toleration(key=taint.key, operator="Equal", value=taint.value, effect=taint.effect)
                    for taint in each.taints
                ]
                changed = msgspec.structs.replace(changed, tolerations=(*changed.tolerations, *added))
            case NodeFilter.AFFINITY:
                texts.append("ask for no node selector and no node affinity")
                changed = msgspec.structs.replace(changed, node_selector={}, affinity=None)
            case NodeFilter.PORTS:
                texts.append("ask for other ports of the host")
                changed = msgspec.structs.replace(changed, ports=())
            case NodeFilter.RESOURCES if each.resource in needs.amounts and each.left >= _ROUND:
                left = each.left // _ROUND * _ROUND
                texts.append(f"ask for {quantity_text(left)} of {each.resource}")
                changed = msgspec.structs.replace(changed, amounts={**changed.amounts, each.resource: left})
            case _:
                return
    if texts:
        yield _Help(", ".join(texts), changed, cordoned)


def _untainted(node: str, taints: Sequence[DeviceTaint]) -> Iterator[str]:
    """Say what to do about taints: tolerate them, or where they stand for conditions, bring the node into order."""
    of_conditions = [taint.key.rpartition("/")[2] for taint in taints if taint.key in _OF_CONDITIONS]
    if of_conditions:
        yield f"check {node}, which is {' and '.join(of_conditions)}"
    others = [taint for taint in taints if taint.key not in _OF_CONDITIONS]
    if others:
        yield f"tolerate {', '.join(map(taint_text, others))}"
