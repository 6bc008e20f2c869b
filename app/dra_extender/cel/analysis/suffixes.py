"""The suffix form of attributes in design documents, and its rewrite, which is off by default.

`device.attributes["type"].string` compiles, and fails on every device. Its author means the attribute `type` of the device's own
driver, which is a plain value.
"""

from typing import Final

import msgspec

from dra_extender.cel.analysis.attributes import (
    SUFFIXES,
    SelectionStep,
    device_map_of,
    is_device_field,
    is_domain_name,
    step_of,
)
from dra_extender.cel.analysis.walk import mapped
from dra_extender.cel.errors import CelCompileError
from dra_extender.cel.syntax.ast import CallExpression, Identifier, Literal, Select, SyntaxNode
from dra_extender.cel.syntax.parser import parse
from dra_extender.cel.syntax.printer import is_plain_name, print_expression

_PLAIN_INDEX: Final = "_[_]"


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


def without_suffix(node: Select) -> SyntaxNode | None:
    """Return the attribute that `....string` means; None if the node has no suffix to drop."""
    inner = step_of(node.operand)
    if node.field not in SUFFIXES or inner is None:
        return None
    if is_device_field(inner.operand, "attributes"):
        return None if is_domain_name(inner.key) else _qualified(node, inner)
    return node.operand if device_map_of(inner.operand) == "attributes" else None


def _qualified(node: Select, step: SelectionStep) -> SyntaxNode:
    """Return the attribute that a bare or qualified name means."""
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
    """Return the replacement of a node with a suffix; None for other nodes."""
    meant = without_suffix(node) if isinstance(node, Select) else None
    if not isinstance(node, Select) or not node.test:
        return meant
    return msgspec.structs.replace(meant, test=True, optional=False) if isinstance(meant, Select) else None
