"""The kind of value that a node of a syntax tree stands for, as far as its text shows it."""

from enum import Enum
from typing import Final

import msgspec

from dra_extender.cel.analysis.rewrite import DEVICE_MAPS, SUFFIXES, is_device_field, is_domain_name, step_of
from dra_extender.cel.runtime.integers import Uint
from dra_extender.cel.syntax import ast

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
