"""Which nodes are alike: equal in everything that a search reads, but for the names of nodes, slices and local pools.

The first solution on a node is then the first solution on any node like it, at the same places.  A node that cannot be compared
this way is like no other: one with a pool that other nodes see in part, with devices that select nodes one by one, or with devices
that judge their neighbours.  Pools for several nodes are the same pools for all nodes alike, under the same names.
"""

import weakref
from collections.abc import Hashable, Sequence
from hashlib import blake2b
from typing import Any, Final, NamedTuple

import msgspec

from app.allocator import Features, PoolId, PoolUsage, Usage
from app.allocator.node_facts import NODE_OPERATIONS_FEATURE
from app.allocator.node_match import is_relevant
from app.ledger.ledger import Ledger
from app.model.base import ModelError
from app.model.node import Node
from app.model.resource_slice import ResourceSlice

_DIGEST_BYTES: Final = 16
_SLACK: Final = 2


class Inventory(NamedTuple):
    """What a node has, whatever is taken of it.

    `pools` are its local pools by (driver, name); `digest` stands for their contents and for how they are mixed with the pools it
    shares with others, and `reaches` tells whether there are any of those.
    """

    pools: tuple[PoolId, ...]
    digest: bytes
    reaches: bool


class Likeness:
    """Keeps a digest of each node's state, renewed with the versions of the node."""

    def __init__(self, ledger: Ledger, features: Features) -> None:
        self._ledger = ledger
        self._partitionable = features.partitionable_devices
        self._inventories: dict[str, tuple[int, Inventory | None]] = {}
        self._kinds: dict[str, tuple[Inventory, int, bytes | None]] = {}
        self._digests: dict[int, tuple[weakref.ref[ResourceSlice], bytes | None]] = {}

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

    def kind(self, node: Node) -> Hashable | None:
        """Nodes of one kind get the same answers, as far as allocations go (holds are not looked at); None: like no other node."""
        inventory = self.inventory(node)
        if inventory is None:
            return None
        own, everywhere = self._ledger.state.parts()
        # What moves every node is a pool that several reach: it does not touch the local ones.
        version = own.get(node.name, 0)
        known = self._kinds.get(node.name)
        if known is None or known[0] is not inventory or known[1] != version:
            known = inventory, version, self._with_usage(inventory, self._ledger.claims.usage)
            self._kinds[node.name] = known
        digest = known[2]
        return digest if digest is None or not inventory.reaches else (digest, everywhere)

    def _with_usage(self, inventory: Inventory, usage: Usage) -> bytes | None:
        taken = [usage.pool(pool) for pool in inventory.pools]
        if not any(taken):
            return inventory.digest
        if any(each.compatible_only_with is not None for pool in taken for held in pool.values() for each in held):
            return None
        return inventory.digest + _digest([_normal(each) for each in taken])

    def _inventory(self, node: Node) -> Inventory | None:
        slices = self._ledger.slices
        by_pool: dict[PoolId, list[ResourceSlice]] = {}
        for each in slices.local(node.name):
            by_pool.setdefault(each.pool_id, []).append(each)
        if any(len(slices.of_pool(pool)) != len(own) for pool, own in by_pool.items()):
            return None
        contents = [self._contents(by_pool[pool]) for pool in sorted(by_pool)]
        shared = self._shared(node)
        if shared is None or any(each is None for each in contents):
            return None
        mixed = [pool in by_pool for pool in sorted({*by_pool, *(each.pool_id for each in shared)})]
        operations = NODE_OPERATIONS_FEATURE in node.declared_features
        # What pools of several nodes contain need not be compared: it is the same, and `kind` moves on when it changes.
        digest = _digest([operations, contents, mixed if shared else [], [each.name for each in shared]])
        return Inventory(tuple(sorted(by_pool)), digest, bool(shared))

    def _shared(self, node: Node) -> Sequence[ResourceSlice] | None:
        """The slices of no single node that this one can use; None if they cannot be compared between nodes."""
        slices = self._ledger.slices.shared
        try:
            found = [each for each in slices if is_relevant(each, node, partitionable=self._partitionable)]
        except ModelError:
            return None
        return None if any(each.per_device_node_selection for each in found) else found

    def _forget_gone(self) -> None:
        nodes = self._ledger.nodes
        self._inventories = {name: known for name, known in self._inventories.items() if name in nodes}
        self._kinds = {name: known for name, known in self._kinds.items() if name in nodes}

    def _contents(self, slices: Sequence[ResourceSlice]) -> Any:
        """What one local pool publishes, with the order in which its slices count."""
        newest = max(each.generation for each in slices)
        digests = [
            (each.generation - newest, each.slice_count, self._slice_digest(each))
            for each in sorted(slices, key=lambda each: each.name)
        ]
        return None if any(digest is None for _, _, digest in digests) else digests

    def _slice_digest(self, item: ResourceSlice) -> bytes | None:
        key = id(item)
        known = self._digests.get(key)
        if known is None:
            digests = self._digests
            reference = weakref.ref(item, lambda _: digests.pop(key, None))
            known = digests[key] = reference, _slice_digest(item)
        return known[1]


def _slice_digest(item: ResourceSlice) -> bytes | None:
    if item.per_device_node_selection or any(each.compatible_only_with is not None for each in item.devices):
        return None
    content = (
        item.driver,
        item.per_device_node_selection,
        item.skip_node_operations,
        item.counter_sets,
        item.devices,
    )
    return _digest(content)


def _normal(usage: PoolUsage) -> Any:
    """What is taken of one pool, by device, without what names the pool, the claim or the share."""
    return [
        (
            device,
            [
                (each.share_id is not None, each.admin, each.consumption, each.consumed_capacity)
                for each in usage[device]
            ],
        )
        for device in sorted(usage)
    ]


def _digest(content: Any) -> bytes:
    return blake2b(msgspec.json.encode(content), digest_size=_DIGEST_BYTES).digest()
