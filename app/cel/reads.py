"""Which attributes of a device an expression reads, so that the others need not be compared between devices."""

from typing import Final

import msgspec

from app.cel import syntax as s
from app.cel.lint_kinds import access_of
from app.cel.rewrite import is_device_field
from app.cel.walk import children_of

ANY_DOMAIN: Final = "*"
"""Stands for a domain that is only known once the device is."""
_INDEXES: Final = frozenset({"_[_]", "_[?_]"})


def attributes_read(root: s.Node) -> frozenset[str] | None:
    """The attributes, as domain/name, whose values an expression can depend on; None if its text does not tell.

    Which attributes a device has at all may still matter.  `root` is the tree of an expression that compiles.
    """
    names: set[str] = set()
    pending = [root]
    while pending:
        node = pending.pop()
        if isinstance(node, s.Select):
            if node.test:
                node = msgspec.structs.replace(node, test=False)
            name = _attribute(node)
            if name is not None:
                names.add(name)
            elif node.field == "attributes" or not is_device_field(node, node.field):
                pending.append(node.operand)
            continue
        name = _attribute(node) if isinstance(node, s.Call) and node.function in _INDEXES else None
        if name is not None:
            names.add(name)
        elif isinstance(node, s.Identifier) and node.name == "device":
            return None
        else:
            pending.extend([each for each in children_of(node) if not isinstance(each, s.Literal)])
    return frozenset(names)


def _attribute(node: s.Node) -> str | None:
    """The attribute that a node stands for, if its text tells which."""
    access = access_of(node)
    if access is None or not (access.own or access.domain is not None):
        return None
    return f"{ANY_DOMAIN if access.own else access.domain}/{access.name}"
