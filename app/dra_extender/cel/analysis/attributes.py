"""The attributes and capacities that an expression reads, as far as its text shows them."""

from collections.abc import Iterable
from enum import Enum
from typing import Final

import msgspec

from dra_extender.cel.analysis.suffixes import DEVICE_MAPS, SUFFIXES, is_device_field, is_domain_name, step_of
from dra_extender.cel.analysis.walk import children_of
from dra_extender.cel.syntax import ast
from dra_extender.cel.values.integers import Uint

CAPACITY_SUFFIXES: Final = frozenset({"value", "quantity"})
"""Suffixes that users write behind a capacity; none exists."""
_SUFFIXES: Final = SUFFIXES | CAPACITY_SUFFIXES


class AccessKind(Enum):
    """What a node stands for; OTHER if its text does not show it."""

    OTHER = 0
    TEXT = 1
    NUMBER = 2
    ATTRIBUTE = 3
    CAPACITY = 4
    QUANTITY = 5
    SEMVER = 6


class AttributeAccess(msgspec.Struct, frozen=True):
    """`device.attributes[domain].name` or the same of capacity.

    `domain` is a constant, or None for an expression; `own_domain` says that this expression is `device.driver`. `optional` says
    that one of the steps is optional.
    """

    device_map: str
    domain: str | None
    own_domain: bool
    name: str
    optional: bool

    @property
    def key(self) -> tuple[str, str, str]:
        """Map, domain and name; the domain is empty if it is computed."""
        domain = "device.driver" if self.own_domain else self.domain or ""
        return self.device_map, domain, self.name


def kind_of(node: ast.SyntaxNode) -> AccessKind:
    """What a node is."""
    if isinstance(node, ast.Literal):
        if isinstance(node.value, str):
            return AccessKind.TEXT
        return AccessKind.NUMBER if type(node.value) in {int, float, Uint} else AccessKind.OTHER
    if isinstance(node, ast.CallExpression) and node.function in {"quantity", "semver"} and node.target is None:
        return AccessKind.QUANTITY if node.function == "quantity" else AccessKind.SEMVER
    access = access_of(node)
    if access is None or (access.domain is not None and not is_domain_name(access.domain) and access.name in _SUFFIXES):
        return AccessKind.OTHER
    return AccessKind.ATTRIBUTE if access.device_map == "attributes" else AccessKind.CAPACITY


def driver_of(node: ast.SyntaxNode) -> str | None:
    """The driver in `device.driver == "driver"`."""
    if isinstance(node, ast.CallExpression) and node.function == "_==_":
        for one, other in (node.arguments, node.arguments[::-1]):
            if is_device_field(one, "driver") and isinstance(other, ast.Literal) and isinstance(other.value, str):
                return other.value
    return None


def access_of(node: ast.SyntaxNode) -> AttributeAccess | None:
    """The attribute or capacity that a node reads, if its name is constant."""
    step = step_of(node)
    if step is None:
        return None
    owner = step.operand
    device_map = device_map_of(owner)
    if device_map is None:
        return None
    inner = step_of(owner)
    own_domain = (
        inner is None and isinstance(owner, ast.CallExpression) and is_device_field(owner.arguments[1], "driver")
    )
    optional = step.optional or (inner is not None and inner.optional) or _is_optional(owner)
    return AttributeAccess(device_map, None if inner is None else inner.key, own_domain, step.key, optional)


def device_map_of(node: ast.SyntaxNode) -> str | None:
    """Which map of the device a node is a domain of, as `device.attributes[domain]`: attributes, capacity or neither."""
    if isinstance(node, ast.CallExpression) and node.function in ast.INDEX_OPERATORS:
        holder = node.arguments[0]
    elif isinstance(node, ast.Select) and not node.test:
        holder = node.operand
    else:
        return None
    return next((device_map for device_map in DEVICE_MAPS if is_device_field(holder, device_map)), None)


def _is_optional(node: ast.SyntaxNode) -> bool:
    return (isinstance(node, ast.CallExpression) and node.function == "_[?_]") or (
        isinstance(node, ast.Select) and node.optional
    )


ANY_DOMAIN: Final = "*"
"""Stands for `device.driver` as a domain, which differs between devices."""


def qualified_name(domain: str, name: str) -> str:
    """The qualified name of an attribute, domain/name."""
    return f"{domain}/{name}"


def read_attributes(root: ast.SyntaxNode) -> frozenset[str] | None:
    """The attributes, as domain/name, whose values an expression can depend on; None if it may read any.

    The result may still depend on which attributes a device has. `root` is the tree of an expression that compiles.
    """
    names: set[str] = set()
    pending = [root]
    while pending:
        node = pending.pop()
        selects = type(node) is ast.Select or (
            isinstance(node, ast.CallExpression) and node.function in ast.INDEX_OPERATORS
        )
        name = _attribute(node) if selects else None
        if name is not None:
            names.add(name)
            continue
        parts = _parts_that_read(node)
        if parts is None:
            return None
        pending += parts
    return frozenset(names)


def _parts_that_read(node: ast.SyntaxNode) -> Iterable[ast.SyntaxNode] | None:
    """The nodes below that may read attributes; None for `device` and `device.attributes`, which may be used as a whole."""
    if isinstance(node, ast.Select):
        if isinstance(node.operand, ast.Identifier):
            return None if is_device_field(node, "attributes") else ()
        return (node.operand,)
    if isinstance(node, ast.Identifier) and node.name == "device":
        return None
    return [each for each in reversed(children_of(node)) if type(each) is not ast.Literal]


def _attribute(node: ast.SyntaxNode) -> str | None:
    """The attribute that a node selects or tests, if its name is constant."""
    owner, name = _selection(node)
    if owner is None or type(name) is not str:
        return None
    place, domain = _selection(owner)
    if not (isinstance(place, ast.Select) and place.field in DEVICE_MAPS and is_device_field(place, place.field)):
        return None
    if type(domain) is str:
        return qualified_name(domain, name)
    return (
        qualified_name(ANY_DOMAIN, name)
        if isinstance(domain, ast.Select) and is_device_field(domain, "driver")
        else None
    )


def _selection(node: ast.SyntaxNode) -> tuple[ast.SyntaxNode | None, str | ast.SyntaxNode]:
    """What a node selects from, and the key, a text if it is constant; None for nodes that select nothing."""
    if isinstance(node, ast.Select):
        return node.operand, node.field
    if isinstance(node, ast.CallExpression) and node.function in ast.INDEX_OPERATORS:
        operand, key = node.arguments
        return operand, key.value if isinstance(key, ast.Literal) and type(key.value) is str else key
    return None, ""
