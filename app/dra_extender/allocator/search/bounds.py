"""Upper bounds: how many of a set of devices can be allocated together; a demand above them is infeasible.

A bound may be too high, never too low.
"""

from collections.abc import Iterable, Sequence

from dra_extender.allocator.pools.pools import Pool
from dra_extender.allocator.rules.node_view import NodeView
from dra_extender.allocator.search_state import PoolTables
from dra_extender.model.device import CounterConsumption

Mask = int
"""A set of locations, one bit each."""

DeviceNeed = tuple[int, Mask]
"""(devices that a request needs at least, devices that could serve it)."""


def locations(mask: Mask) -> Iterable[int]:
    """Return the locations in a mask, lowest first."""
    text = bin(mask)[:1:-1]
    return (index for index, bit in enumerate(text) if bit == "1")


class Bounds:
    """Bounds on one node from what is held there before the search picks anything."""

    def __init__(self, node_view: NodeView) -> None:
        self._node_view = node_view
        self._tables: dict[int, PoolTables] = {}
        self._bounds: dict[tuple[Mask, bool], int] = {}

    def are_exceeded_by(self, needs: Sequence[DeviceNeed]) -> bool:
        """Return whether some of these requests, all of whose devices are in one set, need more devices than the set can give.

        No device may serve two of the requests.
        """
        return any(
            sum(count for count, mask in needs if mask | outer == outer) > self.upper_bound(outer)
            for outer in {mask for _, mask in needs}
        )

    def upper_bound(self, mask: Mask, *, admin: bool = False) -> int:
        """Return how many of these devices can be allocated together at most, by shared counters and compatibility groups.

        With admin access only counters are looked at.
        """
        bound = self._bounds.get((mask, admin))
        if bound is None:
            pools, sharing = self._node_view.pools, self._node_view.sharing
            self._node_view.poll_deadline(len(pools.devices))
            bound = 0
            by_set: dict[tuple[int, str], tuple[Pool, list[CounterConsumption]]] = {}
            for location in locations(mask):
                consumption = pools.devices[location].consumes_counters
                if not consumption or (sharing.is_shareable(location) and sharing.is_shared(location)):
                    bound += 1
                    continue
                # A device counts in the first of its sets only: the bound may get higher, never lower.
                pool, first = pools.views[location].pool, consumption[0]
                by_set.setdefault((id(pool), first.counter_set), (pool, []))[1].append(first)
            bound += sum(self._bound_of_set(pool, entries, admin=admin) for pool, entries in by_set.values())
            self._bounds[mask, admin] = bound
        return bound

    def _bound_of_set(self, pool: Pool, entries: Sequence[CounterConsumption], *, admin: bool) -> int:
        tables = self._tables.get(id(pool))
        if tables is None:
            tables = self._tables[id(pool)] = PoolTables(pool, self._node_view)
        if tables.groups is None or admin:
            return tables.counters.upper_bound(entries)
        # Devices on one set all have no groups, or all have one group in common.
        admitted = [entry for entry in entries if tables.groups.conflict((entry,)) is None]
        compatible = [[entry for entry in admitted if not entry.compatibility_groups]]
        compatible += [
            [entry for entry in admitted if group in entry.compatibility_groups]
            for group in {group for entry in admitted for group in entry.compatibility_groups}
        ]
        return max(tables.counters.upper_bound(entries) for entries in compatible)
