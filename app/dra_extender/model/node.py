"""Nodes: what decisions read of them, and what kube-scheduler's own filters read besides."""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Final

import msgspec

from dra_extender.cel.values.quantity import QuantityError, parse_quantity
from dra_extender.model.api_json import Value, from_json, reader
from dra_extender.model.device import DeviceTaint
from dra_extender.model.fields import (
    Amount,
    Described,
    Format,
    LabelKey,
    LabelValue,
    Mark,
    Name,
    Quantity,
    Resource,
    Word,
)
from dra_extender.model.metadata import Condition, ObjectMeta

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
        """Return whether devices with `skipNodeOperations` may be used on the node."""
        return NODE_OPERATIONS_FEATURE in self.declared_features


class NodeInfo(Value, frozen=True):
    """`status.nodeInfo` of a node."""

    boot_id: Name = msgspec.field(name="bootID", default="")
    kubelet_version: Annotated[str, Format.VERSION] = ""


class NodeTaint(Value, frozen=True):
    """A taint of a node."""

    key: LabelKey = ""
    value: LabelValue = ""
    effect: Word = ""


class NodeSpec(Value, frozen=True):
    """`spec` of a node."""

    in_part: ClassVar[bool] = True
    unschedulable: bool = False
    taints: Annotated[tuple[DeviceTaint, ...], Described(tuple[NodeTaint, ...]), Mark.UNCHECKED] | None = None


class NodeStatus(Value, frozen=True):
    """`status` of a node."""

    in_part: ClassVar[bool] = True
    unread: ClassVar[Mapping[str, Any]] = {"capacity": Annotated[dict[Resource, Quantity], Mark.LEFT_OUT]}
    allocatable: dict[Resource, Quantity] | None = None
    declared_features: Annotated[tuple[Word, ...], Mark.UNCHECKED] | None = None
    node_info: Annotated[NodeInfo, Mark.UNCHECKED] = NodeInfo()


class WholeNodeStatus(NodeStatus, frozen=True):
    """`status` of a node, as far as kube-scheduler's own filters read it."""

    allocatable: dict[Resource, Amount] | None = None  # type: ignore[assignment]  # people write numbers, too
    conditions: Annotated[tuple[Condition, ...], Mark.UNCHECKED] | None = None


class WholeNode(Value, frozen=True):
    """A Node as the API server sends it, with what kube-scheduler's own filters read."""

    metadata: Annotated[ObjectMeta, Mark.REQUIRED] = ObjectMeta()
    spec: NodeSpec = NodeSpec()
    status: WholeNodeStatus = WholeNodeStatus()


class NodeObject(Value, frozen=True):
    """A Node as the API server sends it; `WholeNode` describes it."""

    metadata: ObjectMeta = ObjectMeta()
    status: NodeStatus = NodeStatus()

    def compact(self) -> Node:
        """Return the node as far as decisions read it."""
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


_read_object = reader("Node", NodeObject)


def read_node(data: bytes) -> Node:
    """Return the node in `data` (API JSON)."""
    return _read_object(data).compact()


def node_from(raw: Any) -> Node:
    """Return a node from decoded JSON, as `read_node` does."""
    return from_json("Node", NodeObject, raw).compact()
