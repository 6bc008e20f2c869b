"""Whether kube-scheduler's own filters let a pod on a node, as far as API objects tell; devices are not among them.

NodeUnschedulable, TaintToleration, NodeAffinity (node selector and required node affinity) and NodeResourcesFit are judged as
kube-scheduler 1.37 judges them.  Other filters are not: affinity to pods, topology spread, volumes, host ports.
"""

from collections import Counter
from collections.abc import Collection, Container, Iterator, Mapping, Sequence
from contextlib import suppress
from enum import StrEnum
from typing import Final

import msgspec

from dra_extender.allocator.rules.eligibility import untolerated
from dra_extender.inspection.pod_needs import PodNeeds, Toleration, read_pod_needs
from dra_extender.model.allocation import DeviceToleration
from dra_extender.model.api_json import ModelError, Value, decode
from dra_extender.model.device import DeviceTaint
from dra_extender.model.metadata import ObjectMeta
from dra_extender.model.quantity import NANO, QuantityError, parse_quantity

_CORDONED: Final = DeviceTaint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")
_PODS: Final = "pods"


class NodeFilter(StrEnum):
    """The filter of kube-scheduler that rejects a node."""

    UNSCHEDULABLE = "NodeUnschedulable"
    TAINTS = "TaintToleration"
    AFFINITY = "NodeAffinity"
    RESOURCES = "NodeResourcesFit"


class NodeRefusal(Value, frozen=True):
    """Why a pod may not go to a node: the filter, and kube-scheduler's words.

    `resource` does not suffice: `needed` and `left` are nano-units.  `taint` is not tolerated.
    """

    filter: NodeFilter
    text: str
    resource: str = ""
    needed: int = 0
    left: int = 0
    taint: DeviceTaint | None = None


class _Spec(Value, frozen=True):
    unschedulable: bool = False
    taints: tuple[DeviceTaint, ...] | None = None


class _Status(Value, frozen=True):
    allocatable: dict[str, str | int | float] | None = None


class _WireNode(Value, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: _Spec = _Spec()
    status: _Status = _Status()


_DECODER: Final = msgspec.json.Decoder(_WireNode)


class _Node(msgspec.Struct, frozen=True):
    labels: Mapping[str, str]
    taints: tuple[DeviceTaint, ...]
    unschedulable: bool
    allocatable: Mapping[str, int]


class NodeFit:
    """Judges the nodes of one cluster; objects that cannot be read count as absent."""

    def __init__(self, nodes: Sequence[bytes], pods: Sequence[bytes], served: Container[str] = frozenset()) -> None:
        """`served`: extended resources that device classes serve on nodes that do not list them."""
        self._served = served
        self._nodes = dict(_nodes(nodes))
        self._amounts: dict[str, Counter[str]] = {}
        self._by_pod: dict[str, PodNeeds] = {}
        self._running: dict[str, dict[str, None]] = {}
        for data in pods:
            with suppress(ModelError):
                self.add(read_pod_needs(data))

    def needs(self, pod: str) -> PodNeeds | None:
        """What the pod (`namespace/name`) needs; None if it is not known."""
        return self._by_pod.get(pod)

    def refusals(self, needs: PodNeeds, node: str, released: Collection[str] = ()) -> tuple[NodeRefusal, ...]:
        """Why the pod may not go to this node, in the order of kube-scheduler's filters; empty if it may.

        The pods `released` (`namespace/name`) count as gone.
        """
        found = self._nodes.get(node)
        if found is None:
            return (NodeRefusal(filter=NodeFilter.AFFINITY, text="node is not known"),)
        return tuple(_of_node(needs, node, found)) + tuple(self._shortages(needs, node, found, released))

    def running_on(self, node: str) -> Sequence[PodNeeds]:
        """What each pod that has this node needs."""
        return [self._by_pod[key] for key in self._running.get(node, ())]

    def add(self, needs: PodNeeds) -> None:
        """A pod is there; one that has a node takes what it needs there."""
        self._by_pod[needs.key] = needs
        if needs.node and not needs.ended:
            self._running.setdefault(needs.node, {})[needs.key] = None
            taken = self._amounts.setdefault(needs.node, Counter())
            taken.update(needs.amounts)
            taken[_PODS] += NANO

    def _shortages(self, needs: PodNeeds, name: str, node: _Node, released: Collection[str]) -> Iterator[NodeRefusal]:
        taken = self._taken(name, released)
        if taken[_PODS] + NANO > node.allocatable.get(_PODS, 0):
            left = node.allocatable.get(_PODS, 0) - taken[_PODS]
            yield NodeRefusal(
                filter=NodeFilter.RESOURCES, text="Too many pods", resource=_PODS, needed=NANO, left=max(0, left)
            )
        for resource, needed in sorted(needs.amounts.items()):
            if not needed or (resource not in node.allocatable and resource in self._served):
                continue
            left = node.allocatable.get(resource, 0) - taken[resource]
            if needed > left:
                yield NodeRefusal(
                    filter=NodeFilter.RESOURCES,
                    text=f"Insufficient {resource}",
                    resource=resource,
                    needed=needed,
                    left=max(0, left),
                )

    def _taken(self, node: str, released: Collection[str]) -> Counter[str]:
        taken = self._amounts.get(node) or Counter()
        gone = [
            needs
            for key in released
            if (needs := self._by_pod.get(key)) is not None and needs.node == node and not needs.ended
        ]
        if not gone:
            return taken
        left = Counter(taken)
        for each in gone:
            left.subtract(each.amounts)
            left[_PODS] -= NANO
        return left


def _of_node(needs: PodNeeds, name: str, node: _Node) -> Iterator[NodeRefusal]:
    tolerations = [_of_device(each) for each in needs.tolerations]
    if node.unschedulable and untolerated((_CORDONED,), tolerations) is not None:
        yield NodeRefusal(filter=NodeFilter.UNSCHEDULABLE, text="node(s) were unschedulable")
    taint = untolerated(node.taints, tolerations)
    if taint is not None and not (node.unschedulable and taint.key == _CORDONED.key):
        text = f"node(s) had untolerated taint {{{taint.key}: {taint.value}}}"
        yield NodeRefusal(filter=NodeFilter.TAINTS, text=text, taint=taint)
    if not _selected(needs, name, node.labels):
        yield NodeRefusal(filter=NodeFilter.AFFINITY, text="node(s) didn't match Pod's node affinity/selector")


def _selected(needs: PodNeeds, name: str, labels: Mapping[str, str]) -> bool:
    if any(labels.get(key) != value for key, value in needs.node_selector.items()):
        return False
    try:
        return needs.affinity is None or needs.affinity.matches(name, labels)
    except ModelError:
        return False


def _of_device(toleration: Toleration) -> DeviceToleration:
    """One rule decides about taints of nodes and of devices."""
    return DeviceToleration(
        key=toleration.key, operator=toleration.operator, value=toleration.value, effect=toleration.effect
    )


def _nodes(objects: Sequence[bytes]) -> Iterator[tuple[str, _Node]]:
    for data in objects:
        with suppress(ModelError):
            node = decode("Node", _DECODER, data)
            yield (
                node.metadata.name,
                _Node(
                    labels=node.metadata.labels,
                    taints=node.spec.taints or (),
                    unschedulable=node.spec.unschedulable,
                    allocatable=dict(_amounts(node.status.allocatable or {})),
                ),
            )


def _amounts(listed: Mapping[str, str | float]) -> Iterator[tuple[str, int]]:
    for name, text in listed.items():
        with suppress(QuantityError):
            yield name, parse_quantity(str(text))
