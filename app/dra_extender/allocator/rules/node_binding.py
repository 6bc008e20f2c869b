"""Devices that bind to a node: while a share of one is allocated on a node, no other node gets a share of it.

`bindsToNode` of a device (KEP-5007) means that it is attached to the node of the allocation.  Upstream keeps each allocation on its
node, but gives further shares of the device to other nodes.  Here the device itself stays.  A device that is local to a node cannot
move, and administrative access attaches nothing.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from dra_extender.model.allocation import DeviceHolding
from dra_extender.model.device import Device
from dra_extender.model.resource_slice import ResourceSlice


class SharesApart(NamedTuple):
    """A device that is bound to nodes (`bound`) and has shares on further ones: `nodes` are all of them, sorted by name."""

    bound: tuple[str, ...]
    nodes: tuple[str, ...]


def can_move(published: ResourceSlice, device: Device) -> bool:
    """Return whether nodes share the device: neither slice nor device names the one that has it."""
    return not (published.node_name or device.node_name)


def binds(published: ResourceSlice, device: Device) -> bool:
    """Return whether an allocation of the device binds it to a node, as it is published now."""
    return device.binds_to_node and can_move(published, device)


def bound_nodes(published: ResourceSlice, device: Device, holdings: Iterable[DeviceHolding]) -> frozenset[str]:
    """Return the nodes to which shares bind a published device."""
    if not can_move(published, device):
        return frozenset()
    return _nodes_of(holdings, device_binds=device.binds_to_node)


def shares_apart(
    slices: Iterable[ResourceSlice], name: str, holdings: Sequence[DeviceHolding], added: Iterable[DeviceHolding]
) -> SharesApart | None:
    """Return where the shares of a device are if one of `added` names another node than one to which the device is bound.

    `holdings` are all of the device, `slices` those of its pool.
    """
    nodes = {holding.node for holding in holdings if holding.node is not None}
    if len(nodes) <= 1:
        return None
    places = [(part, device) for part in slices for device in part.devices if device.name == name]
    if places and not any(can_move(*place) for place in places):
        return None
    bound = _nodes_of(holdings, device_binds=any(binds(*place) for place in places))
    if not any(bound - {holding.node} for holding in added if holding.node is not None):
        return None
    return SharesApart(tuple(sorted(bound)), tuple(sorted(nodes)))


def _nodes_of(holdings: Iterable[DeviceHolding], *, device_binds: bool) -> frozenset[str]:
    """Return the nodes of the shares that bind the device: of all if it binds now, otherwise of those that were bound before."""
    return frozenset(
        holding.node for holding in holdings if holding.node is not None and (device_binds or holding.binds_to_node)
    )
