from collections.abc import Container

from dra_extender.model.device import PoolId


class HeldNodes:
    """The nodes on which holds keep devices, by the pools in which they do."""

    __slots__ = ("_anywhere", "_by_pool", "_pools_of")

    def __init__(self) -> None:
        self._by_pool: dict[PoolId, frozenset[str] | None] = {}
        self._pools_of: dict[str, int] = {}
        self._anywhere = 0

    def add_pool(self, pool_id: PoolId, nodes: frozenset[str] | None) -> None:
        """Holds keep devices of this pool, which these nodes reach (None: possibly any node)."""
        if pool_id in self._by_pool:
            return
        self._by_pool[pool_id] = nodes
        if nodes is None:
            self._anywhere += 1
            return
        for name in nodes:
            self._pools_of[name] = self._pools_of.get(name, 0) + 1

    def remove_pool(self, pool_id: PoolId) -> None:
        """Holds keep no device of this pool any more."""
        if pool_id not in self._by_pool:
            return
        nodes = self._by_pool.pop(pool_id)
        if nodes is None:
            self._anywhere -= 1
            return
        for name in nodes:
            left = self._pools_of[name] - 1
            if left:
                self._pools_of[name] = left
            else:
                del self._pools_of[name]

    def clear(self) -> None:
        """Nothing is held."""
        self._by_pool.clear()
        self._pools_of.clear()
        self._anywhere = 0

    @property
    def nodes(self) -> Container[str] | None:
        """The nodes; None: possibly any node.  A live view."""
        return None if self._anywhere else self._pools_of.keys()
