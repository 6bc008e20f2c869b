from typing import Any, Final

import msgspec

from dra_extender.cel.values.quantity import QuantityError, parse_quantity
from dra_extender.model.api_json import Value, decode, from_json
from dra_extender.model.metadata import ObjectMeta

NODE_OPERATIONS_FEATURE: Final = "DRAOptionalNodeOperations"
"""What a node declares when its kubelet can skip node operations of devices."""


class Node(Value, frozen=True, rename=None):
    """A node as far as decisions read it; `extended_resources` are names with a positive allocatable amount.

    `boot_id` and `kubelet_version` change when the node reboots and when its kubelet is upgraded.
    """

    name: str
    uid: str = ""
    resource_version: str = ""
    labels: dict[str, str] = {}
    declared_features: tuple[str, ...] = ()
    extended_resources: frozenset[str] = frozenset()
    boot_id: str = ""
    kubelet_version: str = ""

    @property
    def skips_node_operations(self) -> bool:
        """Whether devices with `skipNodeOperations` may be used on the node."""
        return NODE_OPERATIONS_FEATURE in self.declared_features


class _NodeInfo(Value, frozen=True):
    boot_id: str = msgspec.field(name="bootID", default="")
    kubelet_version: str = ""


class _Status(Value, frozen=True):
    allocatable: dict[str, str] | None = None
    declared_features: tuple[str, ...] | None = None
    node_info: _NodeInfo = _NodeInfo()


class _Node(Value, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    status: _Status = _Status()

    def compact(self) -> Node:
        allocatable = self.status.allocatable or {}
        return Node(
            name=self.metadata.name,
            uid=self.metadata.uid,
            resource_version=self.metadata.resource_version,
            labels=self.metadata.labels,
            declared_features=self.status.declared_features or (),
            extended_resources=frozenset(
                name for name, amount in allocatable.items() if "/" in name and _positive(amount)
            ),
            boot_id=self.status.node_info.boot_id,
            kubelet_version=self.status.node_info.kubelet_version,
        )


def _positive(amount: str) -> bool:
    try:
        return parse_quantity(amount) > 0
    except QuantityError:
        return False


_DECODER = msgspec.json.Decoder(_Node)


def read_node(data: bytes) -> Node:
    """The node in `data` (API JSON).

    Raises:
        ModelError: not a Node; the message names the field.
    """
    return decode("Node", _DECODER, data).compact()


def node_from(raw: Any) -> Node:
    """As `read_node`, from decoded JSON."""
    return from_json("Node", _Node, raw).compact()
