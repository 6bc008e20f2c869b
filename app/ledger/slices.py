from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Generic, TypeVar

from app.allocator.state import PoolId
from app.model.resource_slice import ResourceSlice

K = TypeVar("K")
_NONE: Final[frozenset[str]] = frozenset()


class _Groups(Generic[K]):
    """Slices in groups, each in order of names; a group is sorted again when it was asked for and has changed since."""

    __slots__ = ("_members", "_sorted")

    def __init__(self) -> None:
        self._members: dict[K, dict[str, ResourceSlice]] = {}
        self._sorted: dict[K, tuple[ResourceSlice, ...]] = {}

    def of(self, key: K) -> tuple[ResourceSlice, ...]:
        found = self._sorted.get(key)
        if found is None:
            members = self._members.get(key)
            if members is None:
                return ()
            found = self._sorted[key] = tuple(members[name] for name in sorted(members))
        return found

    def unordered(self, key: K) -> Iterable[ResourceSlice]:
        return self._members.get(key, {}).values()

    def put(self, key: K, item: ResourceSlice) -> None:
        self._sorted.pop(key, None)
        self._members.setdefault(key, {})[item.name] = item

    def drop(self, key: K, name: str) -> None:
        self._sorted.pop(key, None)
        members = self._members.get(key)
        if members is not None:
            members.pop(name, None)
            if not members:
                del self._members[key]


class SliceIndex:
    """ResourceSlices by name, pool and node; always in order of names, so that no decision depends on the order of events."""

    __slots__ = ("_by_name", "_by_node", "_by_pool", "_reached")

    def __init__(self) -> None:
        self._by_name: dict[str, ResourceSlice] = {}
        self._by_pool: _Groups[PoolId] = _Groups()
        self._by_node: _Groups[str | None] = _Groups()
        self._reached: dict[PoolId, frozenset[str] | None] = {}

    def __len__(self) -> int:
        return len(self._by_name)

    @property
    def by_name(self) -> Mapping[str, ResourceSlice]:
        """All slices."""
        return self._by_name

    def local(self, node: str) -> Sequence[ResourceSlice]:
        """Slices pinned to this node by `nodeName`."""
        return self._by_node.of(node)

    @property
    def shared(self) -> Sequence[ResourceSlice]:
        """Slices without `nodeName`."""
        return self._by_node.of(None)

    def of_pool(self, pool_id: PoolId) -> Sequence[ResourceSlice]:
        """All slices of the pool, whatever node they are for."""
        return self._by_pool.of(pool_id)

    def nodes_of(self, pool_id: PoolId) -> frozenset[str] | None:
        """Nodes whose searches can read this pool; None when that may be any node."""
        if pool_id not in self._reached:
            self._reached[pool_id] = self._nodes_of(pool_id)
        return self._reached[pool_id]

    def _nodes_of(self, pool_id: PoolId) -> frozenset[str] | None:
        nodes: set[str] = set()
        for each in self._by_pool.unordered(pool_id):
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
        self._reached.pop(item.pool_id, None)
        self._by_pool.put(item.pool_id, item)
        self._by_node.put(item.node_name, item)
        return old

    def drop(self, name: str) -> ResourceSlice | None:
        """Remove; returns the slice that was there."""
        old = self._by_name.pop(name, None)
        if old is None:
            return None
        self._reached.pop(old.pool_id, None)
        self._by_pool.drop(old.pool_id, name)
        self._by_node.drop(old.node_name, name)
        return old
