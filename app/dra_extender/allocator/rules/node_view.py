"""View that one search has of its node: the devices, their usage, and the rules that are on."""

from collections.abc import Hashable

import msgspec

from dra_extender.allocator.demand.constraints import lookup
from dra_extender.allocator.demand.demand import SearchableRequest
from dra_extender.allocator.demand.selectors import Deadline
from dra_extender.allocator.pools.pools import NodePools, Pool
from dra_extender.allocator.rules.capacity import Sharing
from dra_extender.allocator.rules.held_devices import bound_nodes
from dra_extender.allocator.state.reasons import time_is_up
from dra_extender.allocator.state.usage import PoolUsage, Usage
from dra_extender.cel.device import Attribute
from dra_extender.model.allocation import DeviceHolding
from dra_extender.model.device import NODE
from dra_extender.model.node import Node

_POLL_DEVICES = 4_096
"""Devices read between two polls of the deadline: 5 to 20 ms."""


class NodeView:
    """The node as one search reads it: the devices of its pools by location, the holdings and the attributes of each."""

    def __init__(self, node: Node, pools: NodePools, usage: Usage, deadline: Deadline | None) -> None:
        self.pools = pools
        self.release = release = pools.release
        self.features = features = pools.features
        self.deadline = deadline
        # Whether devices with binding conditions cannot be chosen.
        self.hides_binding_conditions = release.as_upstream and not features.device_binding_and_status
        # Whether an allocation of a device with `bindsToNode` is for this node alone.
        self.binds_devices = release.as_upstream or features.device_binding_and_status
        # Whether devices with compatibility groups cannot be chosen.
        self.hides_grouped_devices = not (features.compatibility_groups or release.as_upstream)
        self.skips_node_operations = features.optional_node_operations and node.skips_node_operations
        # Verdicts so far, by the equivalence key of requests (see `Eligibility`).
        self.verdicts_by_key: dict[Hashable, bytearray] = {}
        self._usage = usage
        self._used: dict[int, PoolUsage] = {}
        self._derived: dict[tuple[int, str], Attribute] = {}
        self._pools_with_rules: tuple[Pool, ...] | None = None
        self.has_node_rules = False
        self._unpolled = 0
        self._pool: Pool | None = None
        self._pool_usage: PoolUsage = {}
        self.sharing = Sharing(pools, self.holdings)

    @property
    def pools_with_rules(self) -> tuple[Pool, ...]:
        """The pools in which a device or a holding has a rule about neighbours, nearly always none.

        If such a rule concerns the whole node, `has_node_rules` is then True, and these are all pools of the node.
        """
        if self._pools_with_rules is not None:
            return self._pools_with_rules
        pools, has_held_rules = self.pools.pools, self._usage.has_compatibility_rules
        if self.features.compatibility_groups:
            with_rules = tuple([pool for pool in pools if pool.has_compatibility_rules or has_held_rules(pool.pool_id)])
        else:
            with_rules = ()
        if with_rules:
            self.has_node_rules = any(
                pool.has_node_rules
                or any(holding.neighbours_on == NODE for holdings in self.usage(pool).values() for holding in holdings)
                for pool in with_rules
            )
        self._pools_with_rules = pools if self.has_node_rules else with_rules
        return self._pools_with_rules

    def poll_deadline(self, devices: int) -> None:
        """Count devices before they are read, and check the deadline every few thousand devices."""
        self._unpolled += devices
        if self._unpolled >= _POLL_DEVICES:
            self._unpolled = 0
            if self.deadline is not None and self.deadline():
                raise time_is_up("while the devices of the node were looked at")

    def is_taken(self, location: int) -> bool:
        """Return whether a claim has or holds the whole device; admin access takes nothing."""
        shared = False
        for holding in self.holdings(location):
            if not holding.admin:
                if holding.share_id is None:
                    return True
                shared = True
        return shared and not self.release.as_upstream and not self.sharing.is_shareable(location)

    def bound_nodes(self, location: int) -> frozenset[str]:
        """Return the nodes to which allocated shares bind the device."""
        holdings = () if self.release.as_upstream else self.holdings(location)
        if not holdings:
            return frozenset()
        return bound_nodes(self.pools.views[location].published, self.pools.devices[location], holdings)

    def nodes_elsewhere(self, location: int) -> frozenset[str]:
        """Return the other nodes to which allocated shares bind the device."""
        return self.bound_nodes(location) - {self.pools.node}

    def holdings(self, location: int) -> tuple[DeviceHolding, ...]:
        pool = self.pools.views[location].pool
        if pool is not self._pool:
            self._pool, self._pool_usage = pool, self.usage(pool)
        return self._pool_usage.get(self.pools.devices[location].name, ())

    def usage(self, pool: Pool) -> PoolUsage:
        """Return the usage of a pool, constant during the search."""
        usage = self._used.get(id(pool))
        if usage is None:
            usage = self._usage.pool(pool.pool_id)
            if self.release.as_upstream:
                usage = {device: tuple(map(_without_snapshot, holdings)) for device, holdings in usage.items()}
            self._used[id(pool)] = usage
        return usage

    def attribute(self, request: SearchableRequest, name: str, location: int) -> Attribute | None:
        """Return the attribute that constraints compare for a device: derived by the request, else published by the device."""
        view = self.pools.views[location]
        derived = request.derived.get(name)
        if derived is None:
            return lookup(name, view.published.driver, self.pools.devices[location])
        key = (location, derived.expression)
        attribute = self._derived.get(key)
        if attribute is None:
            attribute = self._derived[key] = derived.evaluate(view.published, location - view.base, self.deadline)
        return attribute


def _without_snapshot(holding: DeviceHolding) -> DeviceHolding:
    return msgspec.structs.replace(holding, consumption=None, groups=None, compatible_only_with=None, neighbours_on="")
