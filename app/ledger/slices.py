from collections.abc import Mapping, Sequence
from typing import Final, TypeVar

from app.allocator.state import PoolId
from app.model.resource_slice import ResourceSlice

K = TypeVar("K")
_NONE: Final[frozenset[str]] = frozenset()


class SliceIndex:
    """ResourceSlices by name, pool and node."""

    __slots__ = ("_by_name", "_by_node", "_by_pool", "_shared")

    def __init__(self) -> None:
        self._by_name: dict[str, ResourceSlice] = {}
        self._by_pool: dict[PoolId, dict[str, ResourceSlice]] = {}
        self._by_node: dict[str, dict[str, ResourceSlice]] = {}
        self._shared: dict[str, ResourceSlice] = {}

    def __len__(self) -> int:
        return len(self._by_name)

    @property
    def by_name(self) -> Mapping[str, ResourceSlice]:
        """All slices."""
        return self._by_name

    def local(self, node: str) -> Sequence[ResourceSlice]:
        """Slices pinned to this node by `nodeName`, in order of arrival."""
        return tuple(self._by_node.get(node, {}).values())

    @property
    def shared(self) -> Sequence[ResourceSlice]:
        """Slices without `nodeName`, in order of arrival."""
        return tuple(self._shared.values())

    def of_pool(self, pool_id: PoolId) -> Sequence[ResourceSlice]:
        """All slices of the pool, whatever node they are for."""
        return tuple(self._by_pool.get(pool_id, {}).values())

    def nodes_of(self, pool_id: PoolId) -> frozenset[str] | None:
        """Nodes whose searches can read this pool; None when that may be any node."""
        nodes: set[str] = set()
        for each in self._by_pool.get(pool_id, {}).values():
            if each.node_name is None:
                return None
            nodes.add(each.node_name)
        return frozenset(nodes) if nodes else _NONE

    def put(self, item: ResourceSlice) -> ResourceSlice | None:
        """Add or replace; returns the slice that it replaces."""
        old = self._by_name.get(item.name)
        if old is not None and (old.pool_id != item.pool_id or old.node_name != item.node_name):
            self.drop(item.name)
        self._by_name[item.name] = item
        self._by_pool.setdefault(item.pool_id, {})[item.name] = item
        if item.node_name is None:
            self._shared[item.name] = item
        else:
            self._by_node.setdefault(item.node_name, {})[item.name] = item
        return old

    def drop(self, name: str) -> ResourceSlice | None:
        """Remove; returns the slice that was there."""
        old = self._by_name.pop(name, None)
        if old is None:
            return None
        _remove(self._by_pool, old.pool_id, name)
        if old.node_name is None:
            self._shared.pop(name, None)
        else:
            _remove(self._by_node, old.node_name, name)
        return old


def _remove(groups: dict[K, dict[str, ResourceSlice]], key: K, name: str) -> None:
    members = groups.get(key)
    if members is not None:
        members.pop(name, None)
        if not members:
            del groups[key]
