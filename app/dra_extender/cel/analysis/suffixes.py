"""The suffix form of attributes in design documents, and its rewrite, which is off by default.

`device.attributes["type"].string` compiles, and fails on every device. Its author means the attribute `type` of the device's own
driver, which is a plain value.
"""

from typing import Final

import msgspec

from dra_extender.cel.analysis.walk import mapped
from dra_extender.cel.errors import CelCompileError
from dra_extender.cel.syntax.ast import INDEX_OPERATORS, CallExpression, Identifier, Literal, Select, SyntaxNode
from dra_extender.cel.syntax.parser import parse
from dra_extender.cel.syntax.printer import is_plain_name, print_expression

SUFFIXES: Final = frozenset({"string", "int", "bool", "version", "strings", "ints", "bools", "versions"})
"""Fields of an attribute in the API; in an expression, an attribute is its value."""
DEVICE_MAPS: Final = ("attributes", "capacity")
"""The fields of a device that are maps of domains."""
_PLAIN_INDEX: Final = "_[_]"


class SelectionStep(msgspec.Struct, frozen=True):
    """One selection, by name or by a constant key, as in `operand.key` and `operand["key"]`."""

    operand: SyntaxNode
    key: str
    optional: bool


def rewrite_suffixes(expression: str) -> str:
    """The expression with each attribute in suffix form replaced by the form that works.

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


def step_of(node: SyntaxNode | None) -> SelectionStep | None:
    """The selection of a node; None if the node is none, tests presence, or has a computed key."""
    if isinstance(node, Select):
        return None if node.test else SelectionStep(node.operand, node.field, node.optional)
    if isinstance(node, CallExpression) and node.function in INDEX_OPERATORS:
        operand, key = node.arguments
        if isinstance(key, Literal) and isinstance(key.value, str):
            return SelectionStep(operand, key.value, INDEX_OPERATORS[node.function])
    return None


def is_domain_name(key: str) -> bool:
    """Whether a key of device.attributes looks like a domain rather than like a bare or qualified name."""
    return "." in key and "/" not in key


def is_device_field(node: SyntaxNode, name: str) -> bool:
    """Whether a node is `device.name`."""
    if not isinstance(node, Select) or node.field != name:
        return False
    return isinstance(node.operand, Identifier) and node.operand.name == "device"


def without_suffix(node: Select) -> SyntaxNode | None:
    """The attribute that `....string` means; None if the node has no suffix to drop."""
    inner = step_of(node.operand)
    if node.field not in SUFFIXES or inner is None:
        return None
    if is_device_field(inner.operand, "attributes"):
        return None if is_domain_name(inner.key) else _qualified(node, inner)
    return node.operand if _is_domain(inner.operand) else None


def _is_domain(node: SyntaxNode) -> bool:
    """Whether a node is `device.attributes[domain]`, whatever the domain."""
    if isinstance(node, CallExpression) and node.function in INDEX_OPERATORS:
        return is_device_field(node.arguments[0], "attributes")
    step = step_of(node)
    return step is not None and is_device_field(step.operand, "attributes")


def _qualified(node: Select, step: SelectionStep) -> SyntaxNode:
    """The attribute that a bare or qualified name means."""
    domain, slash, name = step.key.partition("/")
    place = node.offset
    key: SyntaxNode = Literal(place, 1, domain)
    if not slash:
        name = domain
        key = Select(place, 2, Identifier(place, 1, "device"), "driver")
    owner = CallExpression(place, step.operand.depth + 1, _PLAIN_INDEX, None, (step.operand, key))
    optional = node.optional or step.optional
    if is_plain_name(name):
        return Select(place, owner.depth + 1, owner, name, optional)
    function = "_[?_]" if optional else _PLAIN_INDEX
    return CallExpression(place, owner.depth + 1, function, None, (owner, Literal(place, 1, name)))


def _meant(node: SyntaxNode) -> SyntaxNode | None:
    """The replacement of a node with a suffix; None for other nodes."""
    if not isinstance(node, Select):
        return None
    if not node.test:
        return without_suffix(node)
    meant = without_suffix(msgspec.structs.replace(node, test=False))
    return msgspec.structs.replace(meant, test=True, optional=False) if isinstance(meant, Select) else None
