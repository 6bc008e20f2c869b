"""Which attributes of a device an expression reads, so that the others need not be compared between devices."""

from typing import Final

import msgspec

from dra_extender.cel.analysis.rewrite import is_device_field
from dra_extender.cel.analysis.visitor import children_of
from dra_extender.cel.syntax import ast

ANY_DOMAIN: Final = "*"
"""Stands for a domain that is only known once the device is."""
_DEVICE_MAPS: Final = frozenset({"attributes", "capacity"})
_INDEXES: Final = frozenset({"_[_]", "_[?_]"})


def qualified_name(domain: str, name: str) -> str:
    """The qualified name of an attribute, domain/name."""
    return f"{domain}/{name}"


def read_attributes(root: ast.SyntaxNode) -> frozenset[str] | None:
    """The attributes, as domain/name, whose values an expression can depend on; None if its text does not tell.

    Which attributes a device has at all may still matter.  `root` is the tree of an expression that compiles.
    """
    names: set[str] = set()
    pending = [root]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.Select):
            if node.test:
                node = msgspec.structs.replace(node, test=False)
            operand = node.operand
            if isinstance(operand, ast.Identifier):
                if operand.name == "device" and node.field == "attributes":
                    return None
                continue
            name = _attribute(node)
            if name is not None:
                names.add(name)
            else:
                pending.append(operand)
            continue
        name = _attribute(node) if isinstance(node, ast.CallExpression) and node.function in _INDEXES else None
        if name is not None:
            names.add(name)
        elif isinstance(node, ast.Identifier) and node.name == "device":
            return None
        else:
            pending += [each for each in reversed(children_of(node)) if type(each) is not ast.Literal]
    return frozenset(names)


def _attribute(node: ast.SyntaxNode) -> str | None:
    """The attribute that a node stands for, if its text tells which."""
    owner, name = _selection(node)
    if owner is None or type(name) is not str:
        return None
    place, domain = _selection(owner)
    if not (isinstance(place, ast.Select) and place.field in _DEVICE_MAPS and is_device_field(place, place.field)):
        return None
    if type(domain) is str:
        return qualified_name(domain, name)
    return (
        qualified_name(ANY_DOMAIN, name)
        if isinstance(domain, ast.Select) and is_device_field(domain, "driver")
        else None
    )


def _selection(node: ast.SyntaxNode) -> tuple[ast.SyntaxNode | None, str | ast.SyntaxNode]:
    """What a node selects from and the key, a text if that is constant; nothing for other nodes."""
    if isinstance(node, ast.Select):
        return (None, "") if node.test else (node.operand, node.field)
    if isinstance(node, ast.CallExpression) and node.function in _INDEXES:
        operand, key = node.arguments
        return operand, key.value if isinstance(key, ast.Literal) and type(key.value) is str else key
    return None, ""
