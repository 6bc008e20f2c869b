"""Which nodes are alike: equal in everything that a search reads, but for the names of nodes, slices and local pools.

The first solution on a node is then the first solution on any node like it, at the same places.  A node that cannot be compared
this way is like no other: one with a pool that other nodes see in part, with devices that select nodes one by one, or with devices
that judge their neighbours.  Pools for several nodes are the same pools for all nodes alike, under the same names.
"""

from collections.abc import Hashable, Sequence
from typing import Any, Final, NamedTuple

from dra_extender.allocator.demand.reads import Reads
from dra_extender.allocator.pools.node_match import is_relevant
from dra_extender.allocator.state.features import Features
from dra_extender.allocator.state.usage import PoolUsage, Usage
from dra_extender.ledger.ledger import Ledger
from dra_extender.model.api_json import ModelError
from dra_extender.model.device import PoolId
from dra_extender.model.node import Node
from dra_extender.model.resource_slice import ResourceSlice
from dra_extender.runtime.caches import LruCache
from dra_extender.scheduling.evaluation.inventory_digest import InventoryDigest, digest_of

_SLACK: Final = 2
_MAX_PROJECTIONS: Final = 100_000


class Inventory(NamedTuple):
    """What a node has, whatever is taken of it.

    `pools` are its local pools by (driver, name); `digest` stands for their contents and for how they are mixed with the pools it
    shares with others, and `reaches` tells whether there are any of those.
    """

    pools: tuple[PoolId, ...]
    digest: bytes
    reaches: bool


class _Taken(NamedTuple):
    """What allocations take of a node's local pools: a digest, empty for nothing, None if it cannot be compared."""

    inventory: Inventory
    version: int
    digest: bytes | None


class NodeEquivalence:
    """Keeps a digest of each node's state, renewed with the versions of the node."""

    def __init__(self, ledger: Ledger, features: Features) -> None:
        self._ledger = ledger
        self._partitionable = features.partitionable_devices
        self._contents = InventoryDigest()
        self._inventories: dict[str, tuple[int, Inventory | None]] = {}
        self._taken: dict[str, _Taken] = {}
        self._projections: LruCache[tuple[bytes, Reads], bytes] = LruCache(_MAX_PROJECTIONS)

    def inventory(self, node: Node) -> Inventory | None:
        """What the node has; None if it cannot be compared."""
        version = self._ledger.inventory.of(node.name)
        known = self._inventories.get(node.name)
        if known is not None and known[0] == version:
            return known[1]
        found = self._inventory(node)
        self._inventories[node.name] = (version, found)
        if len(self._inventories) > _SLACK * len(self._ledger.nodes):
            self._forget_gone()
        return found

    def kind(self, node: Node, reads: Reads | None = None) -> Hashable | None:
        """Nodes of one kind get the same answers, as far as allocations go (holds are not looked at); None: like no other node.

        With `reads`, they get the same answers to demands for which no other attributes than these have values that matter.
        """
        inventory = self.inventory(node)
        return None if inventory is None else self.class_of(node, inventory, reads)

    def class_of(self, node: Node, inventory: Inventory, reads: Reads | None) -> Hashable | None:
        """As `kind`, for a node with this inventory."""
        own, everywhere = self._ledger.state.parts()
        # What moves every node is a pool that several reach: it does not touch the local ones.
        version = own.get(node.name, 0)
        taken = self._taken.get(node.name)
        if taken is None or taken.version != version or taken.inventory is not inventory:
            digest = _usage_digest([self._ledger.claims.usage.pool(pool) for pool in inventory.pools])
            taken = self._taken[node.name] = _Taken(inventory, version, digest)
        kind = self._kind(node, inventory, reads, taken.digest)
        return (kind, everywhere) if kind is not None and inventory.reaches else kind

    def class_under(self, node: Node, inventory: Inventory, reads: Reads | None, usage: Usage) -> Hashable | None:
        """As `class_of`, under this usage; None also for a node that reaches pools of several nodes."""
        if inventory.reaches:
            return None
        return self._kind(node, inventory, reads, _usage_digest([usage.pool(pool) for pool in inventory.pools]))

    def _kind(self, node: Node, inventory: Inventory, reads: Reads | None, taken: bytes | None) -> bytes | None:
        if taken is None:
            return None
        has = inventory.digest if reads is None else self._projected(node, inventory, reads)
        return has + taken if taken else has

    def _projected(self, node: Node, inventory: Inventory, reads: Reads) -> bytes:
        key = inventory.digest, reads
        known = self._projections.get(key)
        if known is None:
            found = self._inventory(node, reads)
            known = inventory.digest if found is None else found.digest
            self._projections[key] = known
        return known

    def _inventory(self, node: Node, reads: Reads | None = None) -> Inventory | None:
        slices = self._ledger.slices
        by_pool: dict[PoolId, list[ResourceSlice]] = {}
        for each in slices.local(node.name):
            by_pool.setdefault(each.pool_id, []).append(each)
        if any(len(slices.of_pool(pool)) != len(own) for pool, own in by_pool.items()):
            return None
        contents = [self._contents.of_pool(by_pool[pool], reads) for pool in sorted(by_pool)]
        shared = self._shared(node)
        if shared is None or any(each is None for each in contents):
            return None
        mixed = [pool in by_pool for pool in sorted({*by_pool, *(each.pool_id for each in shared)})]
        operations = node.skips_node_operations
        # What pools of several nodes contain need not be compared: it is the same, and `kind` moves on when it changes.
        digest = digest_of([operations, contents, mixed if shared else [], [each.name for each in shared]])
        return Inventory(tuple(sorted(by_pool)), digest, bool(shared))

    def _shared(self, node: Node) -> Sequence[ResourceSlice] | None:
        """The slices of no single node that this one can use; None if they cannot be compared between nodes."""
        near = self._ledger.slices.near(node)
        try:
            found = [each for each in near if is_relevant(each, node, partitionable=self._partitionable)]
        except ModelError:
            return None
        return None if any(each.per_device_node_selection for each in found) else found

    def _forget_gone(self) -> None:
        nodes = self._ledger.nodes
        self._inventories = {name: known for name, known in self._inventories.items() if name in nodes}
        self._taken = {name: known for name, known in self._taken.items() if name in nodes}


def _usage_digest(pools: Sequence[PoolUsage]) -> bytes | None:
    if not any(pools):
        return b""
    if any(each.compatible_only_with is not None for pool in pools for held in pool.values() for each in held):
        return None
    return digest_of([_normal(each) for each in pools])


def _normal(usage: PoolUsage) -> Any:
    """What is taken of one pool, by device, without what names the pool, the claim or the share."""
    return [
        (
            device,
            [
                (
                    each.share_id is not None,
                    each.admin,
                    each.consumption,
                    each.groups,
                    each.consumed_capacity,
                    each.sources,
                )
                for each in usage[device]
            ],
        )
        for device in sorted(usage)
    ]
