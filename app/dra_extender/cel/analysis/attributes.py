"""The attributes and capacities that an expression reads, as far as its text shows them.

Design documents write attributes in suffix form: `device.attributes["type"].string` compiles, and fails on every device. Its author
means the attribute `type` of the device's own driver, which is a plain value.
"""

from collections.abc import Mapping
from enum import Enum
from typing import Final

import msgspec

from dra_extender.cel.analysis.walk import children_of, joined, mapped, nodes_of
from dra_extender.cel.errors import CelCompileError
from dra_extender.cel.syntax import ast
from dra_extender.cel.syntax.parser import parse
from dra_extender.cel.syntax.printer import is_plain_name, print_expression
from dra_extender.cel.values.integers import Uint

SUFFIXES: Final = frozenset({"string", "int", "bool", "version", "strings", "ints", "bools", "versions"})
"""Fields of an attribute in the API; in an expression, an attribute is its value."""
CAPACITY_SUFFIXES: Final = frozenset({"value", "quantity"})
"""Suffixes that users write behind a capacity; none exists."""
_SHARED: Final = "allowMultipleAllocations"
ANY_DOMAIN: Final = "*"
"""Stands for `device.driver` as a domain, which differs between devices."""


def is_shared_domain(domain: str) -> bool:
    """Return whether a domain is Kubernetes' own: devices of any driver may have its attributes, and no driver is named so."""
    return f".{domain}".endswith((".kubernetes.io", ".k8s.io"))


class SelectionStep(msgspec.Struct, frozen=True):
    """One selection, by name or by a constant key, as in `operand.key` and `operand["key"]`."""

    operand: ast.SyntaxNode
    key: str
    optional: bool


class AccessKind(Enum):
    """The kind of value that a node stands for; OTHER if its text does not show it."""

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


def step_of(node: ast.SyntaxNode) -> SelectionStep | None:
    """Return the selection of a node; None if the node is none, tests presence, or has a computed key."""
    if isinstance(node, ast.Select):
        return None if node.test else SelectionStep(node.operand, node.field, node.optional)
    if isinstance(node, ast.CallExpression) and node.function in ast.INDEX_OPERATORS:
        operand, key = node.arguments
        if isinstance(key, ast.Literal) and isinstance(key.value, str):
            return SelectionStep(operand, key.value, ast.INDEX_OPERATORS[node.function])
    return None


def is_domain_name(key: str) -> bool:
    """Return whether a key of device.attributes looks like a domain rather than like a bare or qualified name."""
    return "." in key and "/" not in key


def is_device_field(node: ast.SyntaxNode, name: str) -> bool:
    if not isinstance(node, ast.Select) or node.field != name:
        return False
    return isinstance(node.operand, ast.Identifier) and node.operand.name == "device"


def is_device_map(node: ast.SyntaxNode) -> bool:
    """Return whether a node is one of the maps of domains, `device.attributes` and `device.capacity`."""
    return is_device_field(node, "attributes") or is_device_field(node, "capacity")


def device_map_of(node: ast.SyntaxNode) -> str | None:
    """Return the map of the device of which a node is a domain, as `device.attributes[domain]`: attributes, capacity or None."""
    if isinstance(node, ast.CallExpression) and node.function in ast.INDEX_OPERATORS:
        holder = node.arguments[0]
    elif isinstance(node, ast.Select) and not node.test:
        holder = node.operand
    else:
        return None
    return holder.field if isinstance(holder, ast.Select) and is_device_map(holder) else None


def access_of(node: ast.SyntaxNode, *, tested: bool = False) -> AttributeAccess | None:
    """Return the attribute or capacity that a node reads, if its name is constant; with `tested`, also one that has() tests."""
    if tested and isinstance(node, ast.Select) and node.test:
        node = ast.Select(node.offset, node.depth, node.operand, node.field)
    step = step_of(node)
    device_map = None if step is None else device_map_of(step.operand)
    if step is None or device_map is None:
        return None
    owner = step.operand
    inner = step_of(owner)
    if inner is not None:
        return AttributeAccess(device_map, inner.key, False, step.key, step.optional or inner.optional)
    assert isinstance(owner, ast.CallExpression)  # noqa: S101 - for the type checker: a key that is not constant is an index
    optional = step.optional or ast.INDEX_OPERATORS[owner.function]
    return AttributeAccess(device_map, None, is_device_field(owner.arguments[1], "driver"), step.key, optional)


def kind_of(node: ast.SyntaxNode) -> AccessKind:
    if isinstance(node, ast.Literal):
        if isinstance(node.value, str):
            return AccessKind.TEXT
        return AccessKind.NUMBER if type(node.value) in {int, float, Uint} else AccessKind.OTHER
    if isinstance(node, ast.CallExpression) and node.function in {"quantity", "semver"} and node.target is None:
        return AccessKind.QUANTITY if node.function == "quantity" else AccessKind.SEMVER
    access = access_of(node)
    if access is None:
        return AccessKind.OTHER
    if access.domain is not None and not is_domain_name(access.domain) and access.name in SUFFIXES | CAPACITY_SUFFIXES:
        return AccessKind.OTHER
    return AccessKind.ATTRIBUTE if access.device_map == "attributes" else AccessKind.CAPACITY


def driver_of(node: ast.SyntaxNode) -> str | None:
    """Return the driver in `device.driver == "driver"`."""
    if isinstance(node, ast.CallExpression) and node.function == "_==_":
        for field, literal in (node.arguments, node.arguments[::-1]):
            if is_device_field(field, "driver") and isinstance(literal, ast.Literal) and isinstance(literal.value, str):
                return literal.value
    return None


def read_attributes(root: ast.SyntaxNode) -> frozenset[str] | None:
    """Return the attributes, as domain/name, whose values an expression can depend on; None if it may read any.

    Devices that agree on these get the same result, which may still depend on which attributes a device has. `root` is the tree of
    an expression that compiles.
    """
    names: set[str] = set()
    pending = [root]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.Identifier):
            if node.name == "device":
                return None
            continue
        if isinstance(node, ast.Select) or (
            isinstance(node, ast.CallExpression) and node.function in ast.INDEX_OPERATORS
        ):
            access = access_of(node, tested=True)
            if access is not None and (access.domain is not None or access.own_domain):
                names.add(f"{access.domain or ANY_DOMAIN}/{access.name}")
                continue
            # `device` and `device.attributes` may be used as a whole.
            if is_device_field(node, "attributes"):
                return None
            if isinstance(node, ast.Select) and isinstance(node.operand, ast.Identifier):
                continue
        pending += [part for part in reversed(children_of(node)) if type(part) is not ast.Literal]
    return frozenset(names)


def reads_by_condition(expression: str) -> Mapping[str, frozenset[str] | None]:
    """Return what each condition that `&&` joins reads, by the condition's text: attributes, capacities, `_SHARED`.

    As for `read_attributes`, None stands for any. An expression that does not parse has no condition.
    """
    try:
        conditions = list(joined(parse(expression), frozenset({"_&&_"})))
        return {print_expression(condition): _reads_of(condition) for condition in conditions}
    except (CelCompileError, RecursionError):
        return {}


def _reads_of(condition: ast.SyntaxNode) -> frozenset[str] | None:
    reads, is_shared = read_attributes(condition), any(is_device_field(node, _SHARED) for node in nodes_of(condition))
    return reads | {_SHARED} if is_shared and reads is not None else reads


def rewrite_suffixes(expression: str) -> str:
    """Return the expression with each attribute in suffix form replaced by the form that works.

    `device.attributes["type"].string` becomes `device.attributes[device.driver].type`, and
    `device.attributes["gpu.example.com"].type.string` loses its suffix. A key with a dot is a domain, so
    `device.attributes["gpu.example.com"].string` remains: it is an attribute called "string". An expression without suffix forms
    and a text that does not parse are returned unchanged.
    """
    try:
        tree = parse(expression)
        rewritten = mapped(tree, _meant)
        return expression if rewritten is tree else print_expression(rewritten)
    except (CelCompileError, RecursionError):
        return expression


def without_suffix(node: ast.Select) -> ast.SyntaxNode | None:
    """Return the attribute that `....string` means; None if the node has no suffix to drop."""
    inner = step_of(node.operand)
    if node.field not in SUFFIXES or inner is None:
        return None
    if is_device_field(inner.operand, "attributes"):
        return None if is_domain_name(inner.key) else _qualified(node, inner)
    return node.operand if device_map_of(inner.operand) == "attributes" else None


def _qualified(node: ast.Select, step: SelectionStep) -> ast.SyntaxNode:
    """Return the attribute that a bare or qualified name means."""
    domain, slash, name = step.key.partition("/")
    place = node.offset
    key: ast.SyntaxNode = ast.Literal(place, 1, domain)
    if not slash:
        name = domain
        key = ast.Select(place, 2, ast.Identifier(place, 1, "device"), "driver")
    owner = ast.CallExpression(place, step.operand.depth + 1, "_[_]", None, (step.operand, key))
    optional = node.optional or step.optional
    if is_plain_name(name):
        return ast.Select(place, owner.depth + 1, owner, name, optional)
    function = "_[?_]" if optional else "_[_]"
    return ast.CallExpression(place, owner.depth + 1, function, None, (owner, ast.Literal(place, 1, name)))


def _meant(node: ast.SyntaxNode) -> ast.SyntaxNode | None:
    """Return the replacement of a node with a suffix; None for other nodes."""
    if not isinstance(node, ast.Select):
        return None
    meant = without_suffix(node)
    if not node.test:
        return meant
    return msgspec.structs.replace(meant, test=True, optional=False) if isinstance(meant, ast.Select) else None
