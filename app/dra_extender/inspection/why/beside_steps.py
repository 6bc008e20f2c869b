"""What would help a pod that has its devices on nodes that it may not use: less of a resource, a toleration, another selector."""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import msgspec

from dra_extender.allocator.explain.messages import taint_text
from dra_extender.cel.explain.values import quantity_text
from dra_extender.inspection.cluster_view import ClusterView
from dra_extender.inspection.node_fit import NodeFilter, NodeFit, NodeRefusal
from dra_extender.inspection.pod_needs import PodNeeds, Toleration
from dra_extender.inspection.why.cause import PodCause
from dra_extender.inspection.why.report import DEVICES_AND_NODES, Cause, NextStep
from dra_extender.model.pod import Pod

_MOST_NAMED: Final = 3
_MOST_STEPS: Final = 3
_ROUND: Final = 10**6
"""Amounts are named in thousandths."""


class _Help(NamedTuple):
    """What a person may do, and the pod's needs afterwards; `cordoned`: the node that takes pods then."""

    text: str
    needs: PodNeeds
    cordoned: str = ""


class BesideSteps:
    """Looks for changes of one pod, or of nodes, after which it may use a node that has its devices."""

    def __init__(self, view: ClusterView, pod: Pod) -> None:
        self._fit = view.node_fit
        self._needs = None if self._fit is None else self._fit.needs(pod.key)

    def of(self, found: PodCause) -> tuple[NextStep, ...]:
        """The changes that help alone; none for other causes than NODES."""
        fit, needs = self._fit, self._needs
        if found.cause is not Cause.NODES or found.result is None or fit is None or needs is None:
            return ()
        steps: dict[str, NextStep] = {}
        refusals = {name: fit.refusals(needs, name) for name in sorted(found.result.fits)}
        for name, against in sorted(refusals.items(), key=lambda entry: (len(entry[1]), _lacking(entry[1]), entry[0])):
            for each in _helps(needs, name, against):
                nodes = [name] if each.cordoned else _usable(fit, each.needs, tuple(refusals))
                if nodes and each.text not in steps and len(steps) < _MOST_STEPS:
                    steps[each.text] = NextStep(
                        text=each.text, nodes=tuple(nodes[:_MOST_NAMED]), verified=DEVICES_AND_NODES
                    )
        return tuple(steps.values())


def _usable(fit: NodeFit, needs: PodNeeds, nodes: Sequence[str]) -> list[str]:
    return [name for name in nodes if not fit.refusals(needs, name)]


def _lacking(against: Sequence[NodeRefusal]) -> float:
    """How much of the pod's amounts is lacking, as parts of them."""
    return sum((each.needed - each.left) / each.needed for each in against if each.needed)


def _helps(needs: PodNeeds, node: str, against: Sequence[NodeRefusal]) -> Iterator[_Help]:
    """One change for all reasons against the node together; none if it has too many pods, or nothing left of a resource."""
    texts: list[str] = []
    changed, cordoned = needs, ""
    for each in against:
        match each.filter:
            case NodeFilter.UNSCHEDULABLE:
                texts.append(f"uncordon {node}")
                cordoned = node
            case NodeFilter.TAINTS if each.taint is not None:
                texts.append(f"tolerate {taint_text(each.taint)}")
                added = Toleration(
                    key=each.taint.key, operator="Equal", value=each.taint.value, effect=each.taint.effect
                )
                changed = msgspec.structs.replace(changed, tolerations=(*changed.tolerations, added))
            case NodeFilter.AFFINITY:
                texts.append("ask for no node selector and no node affinity")
                changed = msgspec.structs.replace(changed, node_selector={}, affinity=None)
            case NodeFilter.RESOURCES if each.resource in needs.amounts and each.left >= _ROUND:
                left = each.left // _ROUND * _ROUND
                texts.append(f"ask for {quantity_text(left)} of {each.resource}")
                changed = msgspec.structs.replace(changed, amounts={**changed.amounts, each.resource: left})
            case _:
                return
    if texts:
        yield _Help(", ".join(texts), changed, cordoned)
