"""The devices that slices publish now, by name, and what they say about devices that are allocated."""

from collections.abc import Sequence
from typing import NamedTuple

from dra_extender.allocator.rules.eligibility import untolerated
from dra_extender.ledger.ledger import Ledger
from dra_extender.model.allocation import AllocationResult, DeviceResult, named_nodes
from dra_extender.model.api_json import ModelError
from dra_extender.model.device import Device, DeviceId, DeviceTaint, PoolId
from dra_extender.model.resource_slice import ResourceSlice

_NO_EXECUTE = "NoExecute"


class DeviceInSlice(NamedTuple):
    """A device, by its position in the slice that publishes it."""

    published: ResourceSlice
    position: int

    @property
    def device(self) -> Device:
        """The device itself."""
        return self.published.devices[self.position]


class PublishedDevices:
    """The devices of the newest generation of each pool; the slices of several nodes may give one name to several devices."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._pools: dict[PoolId, tuple[Sequence[ResourceSlice], dict[str, list[DeviceInSlice]]]] = {}

    def of(self, device_id: DeviceId) -> Sequence[DeviceInSlice]:
        """Return the devices of this name."""
        pool_id = device_id[:2]
        slices = self._ledger.slices.of_pool(pool_id)
        known = self._pools.get(pool_id)
        if known is None or known[0] is not slices:
            known = self._pools[pool_id] = (slices, _by_name(_newest(slices)))
        return known[1].get(device_id[2], ())

    def absence(self, device_id: DeviceId) -> str:
        """Say that no slice publishes the device; empty if one does, or if its pool is being published anew."""
        slices = self._ledger.slices.of_pool(device_id[:2])
        if not slices:
            return "no slice publishes its pool"
        if self.of(device_id):
            return ""
        newest = _newest(slices)
        if len(newest) < newest[0].slice_count and device_id[2] in _by_name(slices):
            return ""
        return f"generation {newest[0].generation} of its pool does not publish it"

    def evicting_taint(self, result: DeviceResult, node: str) -> DeviceTaint | None:
        """Find a NoExecute taint that the device of this result has for pods on the node and that the result does not tolerate."""
        tolerations = [
            each for each in result.tolerations if each.toleration_seconds is None or each.toleration_seconds > 0
        ]
        found = None
        for each in self.of(result.device_id):
            if each.published.node_name in (None, node):
                taints = (taint for taint in each.device.taints if taint.effect == _NO_EXECUTE)
                found = untolerated(taints, tolerations)
                if found is None:
                    return None
        return found

    def contradicting_nodes(self, allocation: AllocationResult, device_id: DeviceId) -> str:
        """Say on which node a device is that the node selector of the allocation does not select; empty if it selects one."""
        nodes = {each.published.node_name for each in self.of(device_id)}
        local = {each for each in nodes if each is not None}
        if not local or None in nodes:
            return ""
        if allocation.node_selector is None:
            return f"is on node {min(local)}, and the allocation is for all nodes"
        named = named_nodes(allocation)
        if named is None:
            named = frozenset(name for name in local if self._selects(allocation, name))
        return "" if named & local else f"is on node {min(local)}, which the allocation does not select"

    def _selects(self, allocation: AllocationResult, name: str) -> bool:
        """Whether the allocation is for this node; true where that is not known."""
        node = self._ledger.nodes.get(name)
        try:
            return node is None or allocation.usable_on(name, node.labels)
        except ModelError:
            return True


def _newest(slices: Sequence[ResourceSlice]) -> Sequence[ResourceSlice]:
    newest = max((each.generation for each in slices), default=0)
    return [each for each in slices if each.generation == newest]


def _by_name(slices: Sequence[ResourceSlice]) -> dict[str, list[DeviceInSlice]]:
    found: dict[str, list[DeviceInSlice]] = {}
    for published in slices:
        for position, device in enumerate(published.devices):
            found.setdefault(device.name, []).append(DeviceInSlice(published, position))
    return found
