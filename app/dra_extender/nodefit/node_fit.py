"""The nodes of one cluster with the pods on them, and on which of them kube-scheduler's own filters let a further pod.

NodeUnschedulable, TaintToleration, NodeAffinity (node selector and required node affinity), NodePorts and NodeResourcesFit are
judged as kube-scheduler 1.37 judges them with its default feature gates.  Other filters are not: affinity to pods, topology spread,
volumes.  A node that is being deleted is no place for a pod, though no filter says so.
"""

from collections import Counter
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from enum import StrEnum
from itertools import groupby
from types import MappingProxyType
from typing import Any, Final, TypeVar

import msgspec

from dra_extender.allocator.explain.device_messages import taint_text
from dra_extender.allocator.rules.eligibility import untolerated, untolerated_taints
from dra_extender.cel.values.quantity import NANO
from dra_extender.model.api_json import ModelError, Value, decode, from_json
from dra_extender.model.device import DeviceTaint
from dra_extender.model.node import WholeNode
from dra_extender.model.node_selector import NodeSelector
from dra_extender.nodefit.pod_needs import (
    CPU,
    EPHEMERAL_STORAGE,
    MEMORY,
    PODS,
    HostPort,
    PodNeeds,
    conflicting,
    read_amounts,
    read_pod_needs,
)

CORDONED: Final = DeviceTaint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")
"""The taint that kube-controller-manager gives a node that is `unschedulable`."""
CONDITION_TAINTS: Final[Mapping[tuple[str, str], str]] = MappingProxyType(
    {
        ("Ready", "False"): "node.kubernetes.io/not-ready",
        ("Ready", "Unknown"): "node.kubernetes.io/unreachable",
        ("MemoryPressure", "True"): "node.kubernetes.io/memory-pressure",
        ("DiskPressure", "True"): "node.kubernetes.io/disk-pressure",
        ("PIDPressure", "True"): "node.kubernetes.io/pid-pressure",
        ("NetworkUnavailable", "True"): "node.kubernetes.io/network-unavailable",
    }
)
"""The key of the taint that kube-controller-manager gives a node for a condition of this type and status."""
_MEMORY_PRESSURE: Final = CONDITION_TAINTS["MemoryPressure", "True"]
"""Pods that request memory or CPU tolerate this taint: admission sees to it."""
UNLISTED: Final = dict.fromkeys((CPU, MEMORY, EPHEMERAL_STORAGE, PODS), 2**63 * NANO)
"""What a node has of these if it is to pass for one with plenty of what it does not list."""
NO_NODES: Final = "no nodes available to schedule pods"
_MOST_NAMED: Final = 3
_SHOWN_FIRST: Final = (CPU, MEMORY, EPHEMERAL_STORAGE)


class NodeFilter(StrEnum):
    """The filter of kube-scheduler that rejects a node; DELETING is none of them."""

    DELETING = "NodeDeleting"
    UNSCHEDULABLE = "NodeUnschedulable"
    TAINTS = "TaintToleration"
    AFFINITY = "NodeAffinity"
    PORTS = "NodePorts"
    RESOURCES = "NodeResourcesFit"


CLOSED: Final = frozenset({NodeFilter.DELETING, NodeFilter.UNSCHEDULABLE, NodeFilter.TAINTS})
"""The filters that reject a node for its own state, whatever is free there."""


class NodeRefusal(Value, frozen=True):
    """The reason why a pod may not go to a node: the filter, and kube-scheduler's words.

    `resource` does not suffice: `needed` and `free` are nano-units.  `taints` are not tolerated.  `ports` are in use.
    """

    filter: NodeFilter
    text: str
    resource: str = ""
    needed: int = 0
    free: int = 0
    taints: tuple[DeviceTaint, ...] = ()
    ports: tuple[HostPort, ...] = ()

    @property
    def description(self) -> str:
        """kube-scheduler's words, and the taints or ports that they are about."""
        subjects = [*map(taint_text, self.taints), *map(str, self.ports[:_MOST_NAMED])]
        return ": ".join([self.text, *([", ".join(subjects)] if subjects else [])])


def reported(refusals: Iterable[NodeRefusal]) -> tuple[str, ...]:
    """Return the reasons that kube-scheduler reports, those of the first filter that rejects the node: it runs no further one."""
    _, first = next(groupby(refusals, key=lambda refusal: refusal.filter), ("", ()))
    return tuple(refusal.text for refusal in first)


def aggregated(total: int, reasons: Iterable[str]) -> str:
    """Return the sentence of the FailedScheduling event: every reason with the number of nodes, sorted as text.

    As FitError.Error of kube-scheduler, without the note that preemption adds.
    """
    if total == 0:
        return NO_NODES
    counted = sorted(f"{count} {reason}" for reason, count in Counter(reasons).items())
    return f"0/{total} nodes are available:" + (f" {', '.join(counted)}." if counted else "")


class FitNode(Value, frozen=True, rename=None):
    """A node as the filters read it; `allocatable` are nano-units by resource."""

    name: str
    labels: Mapping[str, str] = {}
    taints: tuple[DeviceTaint, ...] = ()
    unschedulable: bool = False
    deleting: bool = False
    allocatable: Mapping[str, int] = {}

    @property
    def closed(self) -> str:
        """Return why the node takes no ordinary pod because of its state, e.g. `cordoned`, `not-ready`; empty if it does.

        Taints that people give a node to reserve it do not count: the pods that are meant to go there tolerate them.
        """
        if self.deleting:
            return "being deleted"
        repelling = {taint.key for taint in untolerated_taints(self.taints, ())}
        if self.unschedulable or CORDONED.key in repelling:
            return "cordoned"
        return next(
            (key.rpartition("/")[2] for key in CONDITION_TAINTS.values() if key in repelling - {_MEMORY_PRESSURE}), ""
        )

    def refusals(
        self, needs: PodNeeds, used: Mapping[str, int], served: Container[str], ports: Iterable[HostPort] = ()
    ) -> Iterator[NodeRefusal]:
        """Yield why the pod may not come here, in the order of the filters.

        `used` is what the pods here take, by resource; their number is that of PODS.  `ports` are their ports of the host.  The
        extended resources `served` are left to device classes where the node has none.
        """
        if self.deleting:
            yield NodeRefusal(filter=NodeFilter.DELETING, text="node(s) were being deleted")
        tolerations = [toleration.of_device() for toleration in needs.tolerations]
        if self.unschedulable and untolerated((CORDONED,), tolerations) is not None:
            yield NodeRefusal(filter=NodeFilter.UNSCHEDULABLE, text="node(s) were unschedulable")
        taints = tuple(
            taint
            for taint in untolerated_taints(self.taints, tolerations)
            if not (self.unschedulable and (taint.key, taint.effect) == (CORDONED.key, CORDONED.effect))
        )
        if taints:
            yield NodeRefusal(filter=NodeFilter.TAINTS, text="node(s) had untolerated taint(s)", taints=taints)
        if not _selected(needs, self):
            text = "node(s) didn't match Pod's node affinity/selector"
            yield NodeRefusal(filter=NodeFilter.AFFINITY, text=text)
        taken = tuple(conflicting(needs.ports, ports))
        if taken:
            text = "node(s) didn't have free ports for the requested pod ports"
            yield NodeRefusal(filter=NodeFilter.PORTS, text=text, ports=taken)
        if used.get(PODS, 0) + NANO > self.allocatable.get(PODS, 0):
            yield self._shortage("Too many pods", PODS, NANO, used)
        for resource in sorted(needs.amounts, key=_order):
            needed, has = needs.amounts[resource], self.allocatable.get(resource, 0)
            if needed > has - used.get(resource, 0) and needed > 0 and (has > 0 or resource not in served):
                yield self._shortage(f"Insufficient {resource}", resource, needed, used)

    def _shortage(self, text: str, resource: str, needed: int, used: Mapping[str, int]) -> NodeRefusal:
        free = max(0, self.allocatable.get(resource, 0) - used.get(resource, 0))
        return NodeRefusal(filter=NodeFilter.RESOURCES, text=text, resource=resource, needed=needed, free=free)


def _order(resource: str) -> tuple[int, str]:
    return (_SHOWN_FIRST.index(resource) if resource in _SHOWN_FIRST else len(_SHOWN_FIRST), resource)


def _selected(needs: PodNeeds, node: FitNode) -> bool:
    """Return whether selector and affinity let the pod on the node; a malformed term selects nothing (`LazyErrorNodeSelector`)."""
    if any(node.labels.get(key) != value for key, value in needs.node_selector.items()):
        return False
    if needs.affinity is None:
        return True
    terms = needs.affinity.node_selector_terms
    return any(_holds(NodeSelector(node_selector_terms=(term,)), node) for term in terms)


def _holds(selector: NodeSelector, node: FitNode) -> bool:
    try:
        return selector.matches(node.name, node.labels)
    except ModelError:
        return False


_DECODER: Final = msgspec.json.Decoder(WholeNode)


def read_fit_node(data: bytes, unlisted: Mapping[str, int] = MappingProxyType({})) -> FitNode:
    """Return the node in `data` (API JSON); of a resource that the node does not list it has as much as `unlisted` says.

    Raises:
        ModelError: not a Node; the message names the field.
    """
    return _fit_node(decode("Node", _DECODER, data), unlisted)


def fit_node_from(raw: Any, unlisted: Mapping[str, int]) -> FitNode:
    return _fit_node(from_json("Node", WholeNode, raw), unlisted)


def _fit_node(node: WholeNode, unlisted: Mapping[str, int]) -> FitNode:
    return FitNode(
        name=node.metadata.name,
        labels=node.metadata.labels,
        taints=(*(node.spec.taints or ()), *_condition_taints(node)),
        unschedulable=node.spec.unschedulable,
        deleting=node.metadata.deletion_timestamp is not None,
        allocatable={**unlisted, **read_amounts(node.status.allocatable)},
    )


def _condition_taints(node: WholeNode) -> Iterator[DeviceTaint]:
    """Yield the taints that the node is about to get for its conditions."""
    taint_keys = {taint.key for taint in node.spec.taints or () if taint.effect == CORDONED.effect}
    for condition in node.status.conditions or ():
        key = CONDITION_TAINTS.get((condition.type, condition.status))
        if key is not None and key not in taint_keys:
            yield DeviceTaint(key=key, effect="NoSchedule")


T = TypeVar("T")

_UNKNOWN_NODE = (NodeRefusal(filter=NodeFilter.AFFINITY, text="node is not known"),)


class NodeFit:
    """Judges the nodes of one cluster."""

    def __init__(
        self, nodes: Iterable[FitNode], pods: Iterable[PodNeeds], served: Container[str] = frozenset()
    ) -> None:
        """`served`: extended resources that device classes serve on nodes that have none of them."""
        self._served = served
        self._nodes = {node.name: node for node in nodes}
        self._amounts: dict[str, Counter[str]] = {}
        self._by_pod: dict[str, PodNeeds] = {}
        self._running: dict[str, dict[str, None]] = {}
        for pod in pods:
            self.add(pod)

    def put_node(self, node: FitNode) -> None:
        """Judge a node as it is from now on."""
        self._nodes[node.name] = node

    def needs(self, pod: str) -> PodNeeds | None:
        """Return what the pod (`namespace/name`) needs; None if it is not known."""
        return self._by_pod.get(pod)

    def refusals(self, needs: PodNeeds, node: str, released: Collection[str] = ()) -> tuple[NodeRefusal, ...]:
        """Return why the pod may not go to this node, in the order of kube-scheduler's filters; empty if it may.

        The pods `released` (`namespace/name`) count as gone.
        """
        fit_node = self._nodes.get(node)
        if fit_node is None:
            return _UNKNOWN_NODE
        used = self._used(node, released)
        return tuple(fit_node.refusals(needs, used, self._served, self._ports(needs, node, released)))

    @property
    def resources(self) -> frozenset[str]:
        return frozenset(name for node in self._nodes.values() for name, amount in node.allocatable.items() if amount)

    def running_on(self, node: str) -> Sequence[PodNeeds]:
        return [self._by_pod[key] for key in self._running.get(node, ())]

    def port_holders(self, needs: PodNeeds, node: str) -> Iterator[str]:
        """Yield the pods of the node (`namespace/name`) that have a port of the host which the pod asks for."""
        for pod in self.running_on(node):
            if any(conflicting(needs.ports, pod.ports)):
                yield pod.key

    def add(self, needs: PodNeeds) -> None:
        """Add a pod, in the place of an earlier one of its name; if it has a node, it takes what it needs there."""
        before = self._by_pod.get(needs.key)
        if before is not None and before.node:
            self._running[before.node].pop(before.key, None)
            self._amounts[before.node].subtract(_takes(before))
        self._by_pod[needs.key] = needs
        if needs.node:
            self._amounts.setdefault(needs.node, Counter()).update(_takes(needs))
            running = self._running.setdefault(needs.node, {})
            running.update({} if needs.ended else {needs.key: None})

    def _ports(self, needs: PodNeeds, node: str, released: Collection[str]) -> Iterator[HostPort]:
        """Yield the ports of the host that other pods of the node have; none where the pod asks for none."""
        for pod in self.running_on(node) if needs.ports else ():
            if pod.key not in released:
                yield from pod.ports

    def _used(self, node: str, released: Collection[str]) -> Mapping[str, int]:
        used = self._amounts.get(node) or Counter()
        gone = [pod for key in set(released) if (pod := self._by_pod.get(key)) is not None and pod.node == node]
        if not gone:
            return used
        remaining = Counter(used)
        for pod in gone:
            remaining.subtract(_takes(pod))
        return remaining


def read_node_fit(nodes: Iterable[bytes], pods: Iterable[bytes], served: Container[str] = frozenset()) -> NodeFit:
    """Return the NodeFit of nodes and pods in API JSON; objects that cannot be read count as absent."""
    return NodeFit(_readable(read_fit_node, nodes), _readable(read_pod_needs, pods), served)


def _readable(read: Callable[[bytes], T], objects: Iterable[bytes]) -> Iterator[T]:
    for data in objects:
        with suppress(ModelError):
            yield read(data)


def _takes(needs: PodNeeds) -> Mapping[str, int]:
    """Return what the pod takes of its node: if it has ended nothing, not even a place."""
    return {} if needs.ended else {**needs.amounts, PODS: NANO}
