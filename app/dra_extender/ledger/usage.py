"""What is held of devices, by pool."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from dra_extender.allocator.state.usage import PoolUsage, Usage
from dra_extender.ledger.claim_record import Orphan
from dra_extender.model.allocation import DeviceHolding
from dra_extender.model.device import PoolId

_EMPTY: Final[PoolUsage] = {}


class UsageTable:
    """Holdings by pool and device, kept incrementally.  It is itself a `Usage` for a search."""

    __slots__ = ("_changes", "_nodes", "_pools", "_versions", "_with_rules")

    def __init__(self) -> None:
        self._nodes: Counter[str] = Counter()
        self._with_rules: Counter[PoolId] = Counter()
        self._pools: dict[PoolId, dict[str, tuple[DeviceHolding, ...]]] = {}
        self._changes = 0
        self._versions: dict[PoolId, int] = {}

    def pool(self, pool_id: PoolId) -> PoolUsage:
        return self._pools.get(pool_id, _EMPTY)

    def version(self, pool_id: PoolId) -> int:
        """Return a number that stays the same as long as the usage of this pool does."""
        return self._versions.get(pool_id, 0)

    def has_compatibility_rules(self, pool_id: PoolId) -> bool:
        return pool_id in self._with_rules

    def names_node(self, node: str) -> bool:
        """Return whether the allocation of some share names this node, to which it may bind the device."""
        return node in self._nodes

    @property
    def has_rules(self) -> bool:
        """Return whether any holding in any pool has `compatibleOnlyWith` frozen with it."""
        return bool(self._with_rules)

    @property
    def pools(self) -> Iterable[PoolId]:
        return self._pools.keys()

    def add(self, holdings: Iterable[DeviceHolding]) -> None:
        for holding in holdings:
            pool_id = holding.pool_id
            if holding.compatible_only_with is not None:
                self._with_rules[pool_id] += 1
            if holding.node is not None:
                self._nodes[holding.node] += 1
            self._changes += 1
            self._versions[pool_id] = self._changes
            devices = self._pools.setdefault(pool_id, {})
            devices[holding.device] = (*devices.get(holding.device, ()), holding)

    def remove(self, holdings: Iterable[DeviceHolding]) -> None:
        """Stop counting these holdings; each must have been added."""
        for holding in holdings:
            pool_id = holding.pool_id
            self._changes += 1
            self._versions[pool_id] = self._changes
            devices = self._pools[pool_id]
            remaining = list(devices[holding.device])
            remaining.remove(holding)
            if holding.compatible_only_with is not None:
                self._with_rules[pool_id] -= 1
                if not self._with_rules[pool_id]:
                    del self._with_rules[pool_id]
            if holding.node is not None:
                self._nodes[holding.node] -= 1
                if not self._nodes[holding.node]:
                    del self._nodes[holding.node]
            if remaining:
                devices[holding.device] = tuple(remaining)
                continue
            del devices[holding.device]
            if not devices:
                del self._pools[pool_id], self._versions[pool_id]


class UsageWith:
    """A usage with more holdings on top; neither is changed."""

    __slots__ = ("_base", "_extra", "_merged")

    def __init__(self, base: Usage, extra: UsageTable) -> None:
        self._base = base
        self._extra = extra
        self._merged: dict[PoolId, PoolUsage] = {}

    def pool(self, pool_id: PoolId) -> PoolUsage:
        extra = self._extra.pool(pool_id)
        if not extra:
            return self._base.pool(pool_id)
        merged = self._merged.get(pool_id)
        if merged is None:
            base = self._base.pool(pool_id)
            merged = self._merged[pool_id] = {
                **base,
                **{device: (*base.get(device, ()), *holdings) for device, holdings in extra.items()},
            }
        return merged

    def has_compatibility_rules(self, pool_id: PoolId) -> bool:
        return self._extra.has_compatibility_rules(pool_id) or self._base.has_compatibility_rules(pool_id)


class Reduced:
    """A usage with some holdings taken away, as if their claims were released."""

    __slots__ = ("_base", "_gone")

    def __init__(self, base: Usage, gone: Iterable[DeviceHolding]) -> None:
        self._base = base
        self._gone: dict[PoolId, list[DeviceHolding]] = {}
        for holding in gone:
            self._gone.setdefault(holding.pool_id, []).append(holding)

    def pool(self, pool_id: PoolId) -> PoolUsage:
        gone = self._gone.get(pool_id)
        base = self._base.pool(pool_id)
        if not gone:
            return base
        # A pool may have thousands of held devices, and this is asked about each of thousands of claims.
        remaining = dict(base)
        for holding in gone:
            holdings = list(remaining.get(holding.device, ()))
            if holding in holdings:
                holdings.remove(holding)
                remaining[holding.device] = tuple(holdings)
                if not holdings:
                    del remaining[holding.device]
        return remaining

    def has_compatibility_rules(self, pool_id: PoolId) -> bool:
        """Return what the usage without the reduction says: also true where only what is taken away has rules."""
        return self._base.has_compatibility_rules(pool_id)


@dataclass(slots=True)
class UsageChange:
    """What an event did to the allocated state."""

    removed: tuple[DeviceHolding, ...] = ()
    added: tuple[DeviceHolding, ...] = ()
    created: bool = False
    has_room: bool = False
    """Whether the claim had so many consumers that some may have been refused, and has fewer now."""
    orphan: Orphan | None = None
    """What stays counted of a claim that was deleted."""

    def after(self, earlier: "UsageChange") -> "UsageChange":
        """Add a change just before this one; return both as one."""
        self.removed = (*earlier.removed, *self.removed)
        self.added = (*earlier.added, *self.added)
        self.orphan = self.orphan or earlier.orphan
        return self

    @property
    def freed(self) -> bool:
        return any(holding not in self.added for holding in self.removed)
