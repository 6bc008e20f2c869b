"""Which attributes of a device an expression reads, so that the others need not be compared between devices."""

from typing import Final

import msgspec

from app.cel import syntax as s
from app.cel.lint_kinds import access_of
from app.cel.parser import parse
from app.cel.rewrite import is_device_field
from app.cel.walk import children_of

ANY_DOMAIN: Final = "*"
"""Stands for a domain that is only known once the device is."""


def attributes_read(expression: str) -> frozenset[str] | None:
    """The attributes, as domain/name, whose values an expression can depend on; None if its text does not tell.

    Which attributes a device has at all may still matter.  The expression must compile.
    """
    names: set[str] = set()
    pending: list[s.Node] = [parse(expression)]
    while pending:
        node = pending.pop()
        if isinstance(node, s.Select) and node.test:
            node = msgspec.structs.replace(node, test=False)
        access = access_of(node)
        if access is not None and (access.own or access.domain is not None):
            names.add(f"{ANY_DOMAIN if access.own else access.domain}/{access.name}")
        elif isinstance(node, s.Select) and is_device_field(node, node.field) and node.field != "attributes":
            continue
        elif isinstance(node, s.Identifier) and node.name == "device":
            return None
        else:
            pending.extend(children_of(node))
    return frozenset(names)
