from collections.abc import Mapping, Sequence
from typing import Final

from dra_extender.ledger.index.slice_topology import GroupedSlices, NearbySlices
from dra_extender.model.device import Device, PoolId
from dra_extender.model.node import Node
from dra_extender.model.resource_slice import ResourceSlice

_NONE: Final[frozenset[str]] = frozenset()


class SliceIndex:
    """ResourceSlices by name, pool and node; always in order of names, so that no decision depends on the order of events."""

    __slots__ = ("_by_name", "_by_node", "_by_pool", "_nearby", "_node_allocatable", "_reached")

    def __init__(self) -> None:
        self._by_name: dict[str, ResourceSlice] = {}
        self._by_pool: GroupedSlices[PoolId] = GroupedSlices()
        self._by_node: GroupedSlices[str] = GroupedSlices()
        self._nearby = NearbySlices()
        self._reached: dict[PoolId, frozenset[str] | None] = {}
        # Names of the slices that have devices with nodeAllocatableResources.
        self._node_allocatable: dict[PoolId, set[str]] = {}

    def __len__(self) -> int:
        return len(self._by_name)

    @property
    def by_name(self) -> Mapping[str, ResourceSlice]:
        """All slices."""
        return self._by_name

    def local(self, node: str) -> Sequence[ResourceSlice]:
        """Slices pinned to this node by `nodeName`."""
        return self._by_node.of(node)

    def near(self, node: Node) -> Sequence[ResourceSlice]:
        """Slices without `nodeName` that may be for this node: all that are, and some that are not."""
        return self._nearby.near(node)

    def of_pool(self, pool_id: PoolId) -> Sequence[ResourceSlice]:
        """All slices of the pool, whatever node they are for."""
        return self._by_pool.of(pool_id)

    def nodes_of(self, pool_id: PoolId) -> frozenset[str] | None:
        """Nodes whose searches can read this pool; None when that may be any node."""
        if pool_id not in self._reached:
            self._reached[pool_id] = self._nodes_of(pool_id)
        return self._reached[pool_id]

    def node_allocatable(self, pool_id: PoolId, device: str) -> Device | None:
        """The device as it is published, if it counts against resources of its node."""
        for name in sorted(self._node_allocatable.get(pool_id, ())):
            for each in self._by_name[name].devices:
                if each.name == device and each.node_allocatable:
                    return each
        return None

    def _nodes_of(self, pool_id: PoolId) -> frozenset[str] | None:
        nodes: set[str] = set()
        for each in self._by_pool.unordered(pool_id):
            if each.node_name is None:
                return None
            nodes.add(each.node_name)
        return frozenset(nodes) if nodes else _NONE

    def put(self, item: ResourceSlice) -> ResourceSlice | None:
        """Add or replace; returns the slice that it replaces."""
        old = self.drop(item.name)
        self._by_name[item.name] = item
        self._reached.pop(item.pool_id, None)
        self._by_pool.put(item.pool_id, item)
        if any(each.node_allocatable for each in item.devices):
            self._node_allocatable.setdefault(item.pool_id, set()).add(item.name)
        if item.node_name is None:
            self._nearby.put(item)
        else:
            self._by_node.put(item.node_name, item)
        return old

    def drop(self, name: str) -> ResourceSlice | None:
        """Remove; returns the slice that was there."""
        old = self._by_name.pop(name, None)
        if old is None:
            return None
        self._reached.pop(old.pool_id, None)
        self._by_pool.drop(old.pool_id, name)
        named = self._node_allocatable.get(old.pool_id)
        if named is not None:
            named.discard(name)
            if not named:
                del self._node_allocatable[old.pool_id]
        if old.node_name is None:
            self._nearby.drop(old)
        else:
            self._by_node.drop(old.node_name, name)
        return old
