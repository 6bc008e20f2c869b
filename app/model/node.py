from typing import Any

import msgspec

from app.model.base import ModelError, Value, decode
from app.model.metadata import ObjectMeta
from app.model.quantity import QuantityError, parse_quantity


class Node(Value, frozen=True, rename=None):
    """A node as far as decisions read it; `extended_resources` are names with a positive allocatable amount."""

    name: str
    uid: str = ""
    resource_version: str = ""
    labels: dict[str, str] = {}
    declared_features: tuple[str, ...] = ()
    extended_resources: frozenset[str] = frozenset()


class _Status(Value, frozen=True):
    allocatable: dict[str, str] | None = None
    declared_features: tuple[str, ...] | None = None


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
    try:
        return msgspec.convert(raw, _Node).compact()
    except msgspec.ValidationError as problem:
        raise ModelError(f"Node: {problem}") from problem
