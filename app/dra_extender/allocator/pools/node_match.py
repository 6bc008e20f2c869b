"""Which slices and devices a node can use (node name, all nodes, node selector; on the slice or on each device)."""

from typing import Final

from dra_extender.model.api_json import ModelError
from dra_extender.model.device import Device
from dra_extender.model.node import Node
from dra_extender.model.resource_slice import ResourceSlice

UNREACHABLE: Final = 0
REACHABLE: Final = 1
MALFORMED: Final = 2


def reaches(where: Device | ResourceSlice, node: Node) -> bool:
    """Return whether a slice or device names this node: by node name, else by all nodes, else by its node selector.

    Raises:
        ModelError: the node selector is malformed.
    """
    if where.node_name:
        return where.node_name == node.name
    if where.all_nodes:
        return True
    return where.node_selector is not None and where.node_selector.matches(node.name, node.labels)


def is_relevant(published: ResourceSlice, node: Node, *, partitionable: bool) -> bool:
    """Return whether a slice or one of its devices names the node; never with `partitionable` off for slices that need the feature.

    Raises:
        ModelError: a node selector that had to be read is malformed.
    """
    if not partitionable and (published.per_device_node_selection is not None or published.counter_sets):
        return False
    if published.node_name or published.all_nodes or published.node_selector is not None:
        return reaches(published, node)
    if published.per_device_node_selection:
        return any(reaches(device, node) for device in published.devices)
    return False


def reachable_devices(published: ResourceSlice, node: Node) -> bytes | None:
    """One byte for each device: REACHABLE, UNREACHABLE or MALFORMED; None when the slice as a whole decides.

    A malformed node selector of a device is an error only once a search needs to know.
    """
    if not published.per_device_node_selection:
        return None
    return bytes(_reach(device, node) for device in published.devices)


def _reach(device: Device, node: Node) -> int:
    try:
        return REACHABLE if reaches(device, node) else UNREACHABLE
    except ModelError:
        return MALFORMED
