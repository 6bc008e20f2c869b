"""How much CPU and memory is free on each node, kept from watch events: a node without them serves nobody with its devices."""

from collections.abc import Mapping
from typing import Final, NamedTuple

from dra_extender.allocator.fragmentation.kinds import NO_AMOUNTS, NodeAmounts
from dra_extender.cel.values.quantity import NANO
from dra_extender.ledger.node_versions import NodeVersions
from dra_extender.ledger.notifier import Notifier
from dra_extender.model.api_json import ModelError
from dra_extender.model.pod import Pod
from dra_extender.nodefit.node_fit import UNLISTED
from dra_extender.nodefit.pod_needs import CPU, MEMORY, read_pod_amounts

_MILLI: Final = NANO // 1_000


class _Counted(NamedTuple):
    """What a pod asks for, and the node on which it counts; no node while it waits, and once it has ended."""

    amounts: NodeAmounts
    node: str
    ended: bool


class FreeAmounts:
    """CPU and memory by node and by pod, as far as `enabled`; requests that change while a pod runs are not noticed.

    `changes`: versions of the nodes with free amounts that changed; `changed` fires when a pod changes them.
    """

    def __init__(self) -> None:
        self.enabled = False
        self.changes = NodeVersions()
        self.changed = Notifier()
        self._most_cpu: int | None = None
        self._allocatable: dict[str, NodeAmounts] = {}
        self._taken: dict[str, NodeAmounts] = {}
        self._pods: dict[str, _Counted] = {}

    def free(self, node: str) -> NodeAmounts | None:
        """Return what is free on the node; None if the node does not list its CPU or its memory, or is not known."""
        allocatable = self._allocatable.get(node)
        return None if allocatable is None else allocatable.without(self._taken.get(node, NO_AMOUNTS))

    @property
    def most_cpu(self) -> int:
        """Return the CPU of the node that has most, taken or not."""
        if self._most_cpu is None:
            self._most_cpu = max((allocatable.cpu for allocatable in self._allocatable.values()), default=0)
        return self._most_cpu

    def asked_by(self, pod_uid: str) -> NodeAmounts:
        counted = self._pods.get(pod_uid)
        return NO_AMOUNTS if counted is None else counted.amounts

    def put_node(self, name: str, allocatable: Mapping[str, int]) -> None:
        """Take in a node with what it has of each resource, in nano-units."""
        cpu, memory = allocatable.get(CPU, 0), allocatable.get(MEMORY, 0)
        is_listed = bool(cpu and memory) and cpu < UNLISTED[CPU] and memory < UNLISTED[MEMORY]
        has = _amounts(allocatable) if is_listed else None
        if has == self._allocatable.get(name):
            return
        self.changes.bump({name})
        if has is None:
            del self._allocatable[name]
        else:
            self._allocatable[name] = has
        self._most_cpu = None

    def drop_node(self, name: str) -> None:
        self.put_node(name, {})

    def put_pod(self, pod: Pod, data: bytes) -> None:
        """Take in the pod in `data` (API JSON): as soon as it has a node and until it ends, it takes what it asks for there."""
        if not self.enabled:
            return
        node, before = "" if pod.finished else pod.node_name, self._pods.get(pod.uid)
        if before is not None and (before.node, before.ended) == (node, pod.finished):
            return
        if before is None and pod.finished:
            return
        try:
            amounts = _amounts(read_pod_amounts(data)) if before is None else before.amounts
        except ModelError:
            amounts = NO_AMOUNTS
        now = _Counted(amounts, node, pod.finished)
        self._pods[pod.uid] = now
        if before is not None:
            self._add(before.node, before.amounts, -1)
        self._add(now.node, now.amounts, 1)

    def drop_pod(self, uid: str) -> None:
        before = self._pods.pop(uid, None)
        if before is not None:
            self._add(before.node, before.amounts, -1)

    def _add(self, node: str, amounts: NodeAmounts, times: int) -> None:
        if not node or amounts == NO_AMOUNTS:
            return
        cpu, memory = self._taken.get(node, NO_AMOUNTS)
        used = NodeAmounts(cpu + times * amounts.cpu, memory + times * amounts.memory)
        if used == NO_AMOUNTS:
            self._taken.pop(node, None)
        else:
            self._taken[node] = used
        # A pod may name a node that does not exist, and names are kept.
        if node in self._allocatable:
            self.changes.bump({node})
            self.changed.fire()


def _amounts(nano: Mapping[str, int]) -> NodeAmounts:
    return NodeAmounts(nano.get(CPU, 0) // _MILLI, nano.get(MEMORY, 0) // NANO)
