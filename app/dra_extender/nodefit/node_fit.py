"""The nodes of one cluster with the pods on them, and on which of them a further pod may go."""

from collections import Counter
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TypeVar

from dra_extender.cel.values.quantity import NANO
from dra_extender.model.api_json import ModelError
from dra_extender.nodefit.node_facts import FitNode, NodeFilter, NodeRefusal, read_fit_node
from dra_extender.nodefit.pod_needs import PODS, HostPort, PodNeeds, read_pod_needs

T = TypeVar("T")

_UNKNOWN = (NodeRefusal(filter=NodeFilter.AFFINITY, text="node is not known"),)


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

    def needs(self, pod: str) -> PodNeeds | None:
        """Return what the pod (`namespace/name`) needs; None if it is not known."""
        return self._by_pod.get(pod)

    def refusals(self, needs: PodNeeds, node: str, released: Collection[str] = ()) -> tuple[NodeRefusal, ...]:
        """Return why the pod may not go to this node, in the order of kube-scheduler's filters; empty if it may.

        The pods `released` (`namespace/name`) count as gone.
        """
        found = self._nodes.get(node)
        if found is None:
            return _UNKNOWN
        taken = self._taken(node, released)
        return tuple(found.refusals(needs, taken, self._served, self._ports(needs, node, released)))

    @property
    def resources(self) -> frozenset[str]:
        return frozenset(name for node in self._nodes.values() for name, amount in node.allocatable.items() if amount)

    def running_on(self, node: str) -> Sequence[PodNeeds]:
        return [self._by_pod[key] for key in self._running.get(node, ())]

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
        for each in self.running_on(node) if needs.ports else ():
            if each.key not in released:
                yield from each.ports

    def _taken(self, node: str, released: Collection[str]) -> Mapping[str, int]:
        taken = self._amounts.get(node) or Counter()
        gone = [each for key in set(released) if (each := self._by_pod.get(key)) is not None and each.node == node]
        if not gone:
            return taken
        left = Counter(taken)
        for each in gone:
            left.subtract(_takes(each))
        return left


def read_node_fit(nodes: Iterable[bytes], pods: Iterable[bytes], served: Container[str] = frozenset()) -> NodeFit:
    """As NodeFit, from API JSON; objects that cannot be read count as absent."""
    return NodeFit(_readable(read_fit_node, nodes), _readable(read_pod_needs, pods), served)


def _readable(read: Callable[[bytes], T], objects: Iterable[bytes]) -> Iterator[T]:
    for data in objects:
        with suppress(ModelError):
            yield read(data)


def _takes(needs: PodNeeds) -> Mapping[str, int]:
    """Return what the pod takes of its node: if it has ended nothing, not even a place."""
    return {} if needs.ended else {**needs.amounts, PODS: NANO}
