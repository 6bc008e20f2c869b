"""What kube-scheduler's own filters read of a node, and what each of them says of a pod there.

NodeUnschedulable, TaintToleration, NodeAffinity (node selector and required node affinity) and NodeResourcesFit are judged as
kube-scheduler 1.37 judges them with its default feature gates.  Other filters are not: affinity to pods, topology spread, volumes,
host ports.
"""

from collections.abc import Container, Iterator, Mapping, Sequence
from enum import StrEnum
from itertools import groupby
from typing import Any, Final

import msgspec

from dra_extender.allocator.explain.messages import taint_text
from dra_extender.allocator.rules.eligibility import untolerated
from dra_extender.model.api_json import ModelError, Value, decode, from_json
from dra_extender.model.device import DeviceTaint
from dra_extender.model.metadata import ObjectMeta
from dra_extender.model.node_selector import NodeSelector
from dra_extender.model.quantity import NANO
from dra_extender.nodefit.pod_needs import PodNeeds
from dra_extender.nodefit.pod_requests import CPU, EPHEMERAL_STORAGE, MEMORY, PODS, read_amounts

CORDONED: Final = DeviceTaint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")
"""The taint that kube-controller-manager gives a node that is `unschedulable`."""
_FIRST: Final = (CPU, MEMORY, EPHEMERAL_STORAGE)


class NodeFilter(StrEnum):
    """The filter of kube-scheduler that rejects a node."""

    UNSCHEDULABLE = "NodeUnschedulable"
    TAINTS = "TaintToleration"
    AFFINITY = "NodeAffinity"
    RESOURCES = "NodeResourcesFit"


class NodeRefusal(Value, frozen=True):
    """Why a pod may not go to a node: the filter, and kube-scheduler's words.

    `resource` does not suffice: `needed` and `left` are nano-units.  `taints` are not tolerated.
    """

    filter: NodeFilter
    text: str
    resource: str = ""
    needed: int = 0
    left: int = 0
    taints: tuple[DeviceTaint, ...] = ()

    @property
    def said(self) -> str:
        """The words, and which taints they are about."""
        return ": ".join([self.text, *([", ".join(map(taint_text, self.taints))] if self.taints else [])])


def reported(refusals: Sequence[NodeRefusal]) -> tuple[str, ...]:
    """What kube-scheduler reports of them: it asks no filter after the first one that rejects the node."""
    _, first = next(groupby(refusals, key=lambda each: each.filter), ("", ()))
    return tuple(each.text for each in first)


class FitNode(Value, frozen=True, rename=None):
    """A node as the filters read it; `allocatable` are nano-units by resource."""

    name: str
    labels: Mapping[str, str] = {}
    taints: tuple[DeviceTaint, ...] = ()
    unschedulable: bool = False
    allocatable: Mapping[str, int] = {}

    def refusals(self, needs: PodNeeds, taken: Mapping[str, int], served: Container[str]) -> Iterator[NodeRefusal]:
        """Why the pod may not come here, in the order of the filters.

        `taken` is what the pods here take, by resource; their number is that of PODS.  The extended resources `served` are left to
        device classes where the node has none.
        """
        yield from self._taints(needs)
        if not _selected(needs, self):
            text = "node(s) didn't match Pod's node affinity/selector"
            yield NodeRefusal(filter=NodeFilter.AFFINITY, text=text)
        yield from self._shortages(needs, taken, served)

    def _taints(self, needs: PodNeeds) -> Iterator[NodeRefusal]:
        tolerations = [each.of_device() for each in needs.tolerations]
        if self.unschedulable and untolerated((CORDONED,), tolerations) is not None:
            yield NodeRefusal(filter=NodeFilter.UNSCHEDULABLE, text="node(s) were unschedulable")
        found = tuple(
            each
            for each in self.taints
            if untolerated((each,), tolerations) is not None
            and not (self.unschedulable and (each.key, each.effect) == (CORDONED.key, CORDONED.effect))
        )
        if found:
            yield NodeRefusal(filter=NodeFilter.TAINTS, text="node(s) had untolerated taint(s)", taints=found)

    def _shortages(self, needs: PodNeeds, taken: Mapping[str, int], served: Container[str]) -> Iterator[NodeRefusal]:
        if taken.get(PODS, 0) + NANO > self.allocatable.get(PODS, 0):
            yield self._shortage("Too many pods", PODS, NANO, taken)
        for resource in sorted(needs.amounts, key=_order):
            needed, has = needs.amounts[resource], self.allocatable.get(resource, 0)
            if needed > has - taken.get(resource, 0) and needed > 0 and (has > 0 or resource not in served):
                yield self._shortage(f"Insufficient {resource}", resource, needed, taken)

    def _shortage(self, text: str, resource: str, needed: int, taken: Mapping[str, int]) -> NodeRefusal:
        left = max(0, self.allocatable.get(resource, 0) - taken.get(resource, 0))
        return NodeRefusal(filter=NodeFilter.RESOURCES, text=text, resource=resource, needed=needed, left=left)


def _order(resource: str) -> tuple[int, str]:
    return (_FIRST.index(resource) if resource in _FIRST else len(_FIRST), resource)


def _selected(needs: PodNeeds, node: FitNode) -> bool:
    """A term that is malformed selects nothing, and leaves the others in force (component-helpers `LazyErrorNodeSelector`)."""
    if any(node.labels.get(key) != value for key, value in needs.node_selector.items()):
        return False
    if needs.affinity is None:
        return True
    terms = needs.affinity.node_selector_terms
    return any(_holds(NodeSelector(node_selector_terms=(each,)), node) for each in terms)


def _holds(selector: NodeSelector, node: FitNode) -> bool:
    try:
        return selector.matches(node.name, node.labels)
    except ModelError:
        return False


class _Spec(Value, frozen=True):
    unschedulable: bool = False
    taints: tuple[DeviceTaint, ...] | None = None


class _Status(Value, frozen=True):
    allocatable: dict[str, str | int | float] | None = None


class _WireNode(Value, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: _Spec = _Spec()
    status: _Status = _Status()

    def fit(self, unlisted: Mapping[str, int]) -> FitNode:
        return FitNode(
            name=self.metadata.name,
            labels=self.metadata.labels,
            taints=self.spec.taints or (),
            unschedulable=self.spec.unschedulable,
            allocatable={**unlisted, **read_amounts(self.status.allocatable)},
        )


_DECODER: Final = msgspec.json.Decoder(_WireNode)


def read_fit_node(data: bytes) -> FitNode:
    """The node in `data` (API JSON).

    Raises:
        ModelError: not a Node; the message names the field.
    """
    return decode("Node", _DECODER, data).fit({})


def fit_node_from(raw: Any, unlisted: Mapping[str, int]) -> FitNode:
    """As `read_fit_node`, from decoded JSON; of a resource that the node does not list it has as much as `unlisted` says."""
    return from_json("Node", _WireNode, raw).fit(unlisted)
