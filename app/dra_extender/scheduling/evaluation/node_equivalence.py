"""Which nodes are equivalent: equal in everything that a search reads, but for the names of nodes, slices and local pools.

The first solution on a node is then the first solution on every equivalent node, at the same places.  Some nodes are equivalent
to no other: those with a pool that other nodes see in part, with devices that select nodes one by one, or with devices that have
`compatibleOnlyWith`.  Pools of several nodes have the same names for all of them.
"""

import weakref
from collections.abc import Hashable, Sequence
from itertools import count
from typing import Any, Final, NamedTuple

import msgspec

from dra_extender.allocator.demand.demand import Reads, is_read
from dra_extender.allocator.pools.pools import is_relevant
from dra_extender.allocator.state.features import Features
from dra_extender.allocator.state.usage import PoolUsage, Usage
from dra_extender.cel.device import Attribute
from dra_extender.ledger.ledger import Ledger
from dra_extender.model.allocation import DeviceHolding
from dra_extender.model.api_json import ModelError
from dra_extender.model.device import Device, PoolId
from dra_extender.model.digest import digest_of
from dra_extender.model.node import Node
from dra_extender.model.resource_slice import ResourceSlice
from dra_extender.runtime.caches import LruCache

_SLACK: Final = 2
_MAX_PROJECTIONS: Final = 100_000
_MAX_NAMES: Final = 10_000
_MAX_READS: Final = 256
_MAX_READS_BYTES: Final = 8 * 2**20
_NAME_BYTES: Final = 100
"""What a name takes in addition to its text, by measurement on CPython 3.11."""
_UNREAD: Final = Attribute(string_value="")
"""Stands for the value of an attribute that the request does not read."""


class Inventory(NamedTuple):
    """What a node has, allocated or not.

    `pools` are its local pools by (driver, name).  `digest` is equal for equal contents, and for pools that are mixed with shared
    ones in the same order.  `reaches`: the node reaches pools of several nodes.
    """

    pools: tuple[PoolId, ...]
    digest: bytes
    reaches: bool


class _Allocated(NamedTuple):
    """What allocations take of a node's local pools.  `digest` is empty for nothing, None if it cannot be compared."""

    inventory: Inventory
    version: int
    digest: bytes | None


class _ReadAttributes:
    """The attributes that a request reads, and by driver what stands for each attribute of its devices."""

    __slots__ = ("_bytes", "_reads", "_replacements", "number")

    def __init__(self, reads: Reads, number: int) -> None:
        """`number` is another one for each object."""
        self.number = number
        self._reads = reads
        self._bytes = sum(map(len, reads)) + _NAME_BYTES * len(reads)
        self._replacements: dict[str, dict[str, tuple[str, Attribute] | None]] = {}

    @property
    def size(self) -> int:
        """An estimate of its bytes."""
        return self._bytes + _NAME_BYTES * sum(map(len, self._replacements.values()))

    def project(self, device: Device, driver: str) -> Device:
        """Return the device with one value in place of all attribute values that are not read.

        Values that may be defective stay: every expression fails on a device with a defective attribute.
        """
        replacements = self._replacements.get(driver)
        if replacements is None or len(replacements) >= _MAX_NAMES:
            replacements = self._replacements[driver] = {}
        attributes = []
        # Without function calls: the loop runs for every attribute of a fleet.
        for pair in device.attributes:
            name, attribute = pair
            try:
                instead = replacements[name]
            except KeyError:
                instead = replacements[name] = None if is_read(self._reads, driver, name) else (name, _UNREAD)
            sound = attribute.version_values is None and (
                attribute.string_value is not None
                or attribute.int_value is not None
                or attribute.bool_value is not None
            )
            attributes.append(pair if instead is None or not sound else instead)
        return msgspec.structs.replace(device, attributes=tuple(attributes))


class NodeEquivalence:
    """Computes the equivalence class of a node from digests, which it keeps until the node's version changes."""

    def __init__(self, ledger: Ledger, features: Features) -> None:
        self._ledger = ledger
        self._partitionable = features.partitionable_devices
        # By ID of the slice, without the names of slice and pool, while the slice lives.
        self._slice_digests: dict[int, tuple[weakref.ref[ResourceSlice], bytes | None]] = {}
        self._inventories: dict[str, tuple[int, Inventory | None]] = {}
        self._allocated: dict[str, _Allocated] = {}
        # By number, because what a request reads is as long as its author likes.
        self._projections: LruCache[tuple[bytes, int], bytes] = LruCache(_MAX_PROJECTIONS)
        self._numbers = count()
        self._reads: LruCache[Reads, _ReadAttributes] = LruCache(
            _MAX_READS, weigh=lambda attributes: attributes.size, max_weight=_MAX_READS_BYTES
        )

    def inventory(self, node: Node) -> Inventory | None:
        """Return what the node has; None if it cannot be compared."""
        version = self._ledger.inventory_versions.version(node.name)
        version_and_inventory = self._inventories.get(node.name)
        if version_and_inventory is not None and version_and_inventory[0] == version:
            return version_and_inventory[1]
        inventory = self._build_inventory(node)
        self._inventories[node.name] = (version, inventory)
        if len(self._inventories) > _SLACK * len(self._ledger.nodes):
            nodes = self._ledger.nodes
            self._inventories = {
                name: version_and_inventory
                for name, version_and_inventory in self._inventories.items()
                if name in nodes
            }
            self._allocated = {name: allocated for name, allocated in self._allocated.items() if name in nodes}
        return inventory

    def layout(self, node: Node, reads: Reads | None) -> Hashable | None:
        """Return what is equal for nodes with equal devices in the same order, allocated or not; None: equal to no other node.

        With `reads`, no other attributes count.
        """
        inventory = self.inventory(node)
        if inventory is None or inventory.reaches:
            return None
        return self._class(node, inventory, reads, b"")

    def class_of(
        self, node: Node, inventory: Inventory, reads: Reads | None, usage: Usage | None = None
    ) -> Hashable | None:
        """Return the equivalence class of a node with this inventory; None: equivalent to no other node.

        Nodes of one class have the same results.  With `reads`, only for requests that read no other attributes than these.
        `usage`: what is in use, holds included; None: only allocations.  Under a usage with holds, a node that reaches pools of
        several nodes is equivalent to no other.
        """
        if usage is not None:
            if inventory.reaches:
                return None
            return self._class(node, inventory, reads, _usage_digest([usage.pool(pool) for pool in inventory.pools]))
        versions, least, everywhere = self._ledger.state_versions.parts()
        # A change of a pool that several nodes reach raises the version of every node; the node's own number counts local changes.
        version = versions.get(node.name, least)
        allocated = self._allocated.get(node.name)
        if allocated is None or allocated.version != version or allocated.inventory is not inventory:
            digest = _usage_digest([self._ledger.claims.usage.pool(pool) for pool in inventory.pools])
            allocated = self._allocated[node.name] = _Allocated(inventory, version, digest)
        equivalence_class = self._class(node, inventory, reads, allocated.digest)
        if equivalence_class is None or not inventory.reaches:
            return equivalence_class
        # A device that several nodes reach may be bound to one of them.
        bound = node.name if self._ledger.claims.usage.names_node(node.name) else ""
        return equivalence_class, everywhere, bound

    def _class(self, node: Node, inventory: Inventory, reads: Reads | None, allocated: bytes | None) -> bytes | None:
        if allocated is None:
            return None
        return (inventory.digest if reads is None else self._projected(node, inventory, reads)) + allocated

    def _projected(self, node: Node, inventory: Inventory, reads: Reads) -> bytes:
        """Return the digest of the inventory without attributes that are not read."""
        attributes = self._reads.use(reads)
        if attributes is None:
            attributes = self._reads[reads] = _ReadAttributes(reads, next(self._numbers))
        key = inventory.digest, attributes.number
        digest = self._projections.get(key)
        if digest is None:
            projected = self._build_inventory(node, attributes)
            digest = inventory.digest if projected is None else projected.digest
            self._projections[key] = digest
        return digest

    def _build_inventory(self, node: Node, reads: _ReadAttributes | None = None) -> Inventory | None:
        slices = self._ledger.slices
        by_pool: dict[PoolId, list[ResourceSlice]] = {}
        for published in slices.local(node.name):
            by_pool.setdefault(published.pool_id, []).append(published)
        if any(len(slices.of_pool(pool)) != len(local_slices) for pool, local_slices in by_pool.items()):
            return None
        contents = [self._pool_content(by_pool[pool], reads) for pool in sorted(by_pool)]
        shared = self._shared_slices(node)
        if shared is None or None in contents:
            return None
        mixed = [pool in by_pool for pool in sorted({*by_pool, *(published.pool_id for published in shared)})]
        operations = node.skips_node_operations
        # The contents of shared pools are the same for all nodes; `class_of` changes with every change of them.
        shared_names = [published.name for published in shared]
        digest = digest_of(msgspec.json.encode([operations, contents, mixed if shared else [], shared_names]))
        return Inventory(tuple(sorted(by_pool)), digest, bool(shared))

    def _pool_content(self, slices: Sequence[ResourceSlice], reads: _ReadAttributes | None) -> Any:
        """Return what a pool of one node publishes, with the order in which its slices count; None if it cannot be compared."""
        newest = max(published.generation for published in slices)
        digests = [
            (published.generation - newest, published.slice_count, self._slice_digest(published, reads))
            for published in sorted(slices, key=lambda published: published.name)
        ]
        return None if any(digest is None for _, _, digest in digests) else digests

    def _slice_digest(self, item: ResourceSlice, reads: _ReadAttributes | None) -> bytes | None:
        if reads is not None:
            return _digest_of_slice(item, [reads.project(device, item.driver) for device in item.devices])
        digests, key = self._slice_digests, id(item)
        reference_and_digest = digests.get(key)
        if reference_and_digest is None:
            reference = weakref.ref(item, lambda _: digests.pop(key, None))
            reference_and_digest = digests[key] = reference, _digest_of_slice(item, item.devices)
        return reference_and_digest[1]

    def _shared_slices(self, node: Node) -> Sequence[ResourceSlice] | None:
        """Return the slices of no single node that this one can use; None if they cannot be compared between nodes."""
        near = self._ledger.slices.near(node)
        try:
            shared = [
                published for published in near if is_relevant(published, node, partitionable=self._partitionable)
            ]
        except ModelError:
            return None
        return None if any(published.per_device_node_selection for published in shared) else shared


def _digest_of_slice(item: ResourceSlice, devices: Sequence[Device]) -> bytes | None:
    if item.per_device_node_selection or any(device.compatible_only_with is not None for device in devices):
        return None
    return digest_of(msgspec.json.encode((item.driver, item.skip_node_operations, item.counter_sets, devices)))


def _usage_digest(pools: Sequence[PoolUsage]) -> bytes | None:
    if not any(pools):
        return b""
    if any(
        holding.compatible_only_with is not None for pool in pools for holdings in pool.values() for holding in holdings
    ):
        return None

    def without_names(holding: DeviceHolding) -> Any:
        shared = holding.share_id is not None
        return shared, holding.admin, holding.consumption, holding.groups, holding.consumed_capacity, holding.sources

    return digest_of(
        msgspec.json.encode(
            [[(device, list(map(without_names, pool[device]))) for device in sorted(pool)] for pool in pools]
        )
    )
