"""An expression with other names for drivers, attributes and values: it means the same of devices with these names.

Texts that are only compared for equality can be renamed.  What a function looks into (`startsWith`, `matches`, ...) has to stay,
and with it the values of the attributes that the function is applied to.
"""

from typing import Final, NamedTuple, Protocol

import msgspec

from dra_extender.cel.analysis.attributes import (
    AccessKind,
    access_of,
    device_map_of,
    is_device_field,
    is_device_map,
    kind_of,
    read_attributes,
    step_of,
)
from dra_extender.cel.analysis.walk import joined, mapped, nodes_of
from dra_extender.cel.errors import CelCompileError
from dra_extender.cel.syntax import ast
from dra_extender.cel.syntax.parser import parse
from dra_extender.cel.syntax.printer import print_expression

_LOGIC: Final = frozenset({"_&&_", "_||_", "!_", "_?_:_"})
_AMOUNTS: Final = (AccessKind.NUMBER, AccessKind.QUANTITY, AccessKind.SEMVER, AccessKind.CAPACITY)


class NamesOfExpressions(Protocol):
    """The other names."""

    def text(self, text: str) -> str:
        """Return the other name of a driver, a domain, or a text value."""
        ...

    def member(self, name: str) -> str:
        """Return the other name of an attribute or a capacity, without its domain."""
        ...

    def amount(self, text: str) -> str:
        """Return the other text in `quantity(text)`."""
        ...

    def version(self, text: str) -> str:
        """Return the other text in `semver(text)`."""
        ...


class UnrenamableParts(NamedTuple):
    """What has to keep its name so that an expression keeps its meaning.

    `attributes`: domain/name of those whose values have to stay (the domain is `*` for that of the driver); None means those of all
    attributes, and all names.  `drivers`: whether the names of all drivers have to stay.
    """

    texts: frozenset[str]
    attributes: frozenset[str] | None
    drivers: bool


NOTHING: Final = UnrenamableParts(frozenset(), frozenset(), drivers=False)


def unrenamable_parts(expression: str) -> UnrenamableParts:
    """Return what has to stay; nothing if the expression does not parse."""
    try:
        tree = parse(expression)
    except (CelCompileError, RecursionError):
        return NOTHING
    texts: set[str] = set()
    attributes: set[str] | None = set()
    drivers = False
    for leaf in joined(tree, _LOGIC):
        if _is_plain(leaf):
            continue
        keys = {
            id(part.arguments[1])
            for part in nodes_of(leaf)
            if isinstance(part, ast.CallExpression)
            and part.function in ast.INDEX_OPERATORS
            and (device_map_of(part) is not None or device_map_of(part.arguments[0]) is not None)
        }
        remaining = [part for part in nodes_of(leaf) if id(part) not in keys]
        texts.update(part.value for part in remaining if isinstance(part, ast.Literal) and isinstance(part.value, str))
        read = read_attributes(leaf)
        attributes = None if read is None or attributes is None else attributes | read
        drivers = drivers or read is None or any(is_device_field(part, "driver") for part in remaining)
    return UnrenamableParts(frozenset(texts), None if attributes is None else frozenset(attributes), drivers)


def renamed(expression: str, names: NamesOfExpressions) -> str | None:
    """Return the expression in canonical form with other names; None if it does not parse."""
    try:
        return print_expression(_renamed(parse(expression), names))
    except (CelCompileError, RecursionError):
        return None


def _is_plain(node: ast.SyntaxNode) -> bool:
    """Return whether a condition compares texts only for equality, and nothing else but numbers, amounts and versions."""
    if isinstance(node, ast.Select) and node.test:
        return device_map_of(node.operand) is not None
    if _is_value(node):
        return True
    if not isinstance(node, ast.CallExpression):
        return False
    if node.function == "@in":
        element, container = node.arguments
        if device_map_of(container) is not None or is_device_map(container):
            return isinstance(element, ast.Literal)
        listed = isinstance(container, ast.ListLiteral) and all(
            _is_value(element.value) for element in container.elements
        )
        return _is_value(element) and (listed or _is_value(container))
    if node.function in ast.EQUALITY:
        return all(_is_value(argument) or _is_comparison(argument) for argument in node.arguments)
    if node.function in ast.ORDERINGS:
        # An attribute may be a text, and the order of texts is not kept among values.
        return all(_is_amount(argument) or _is_comparison(argument) for argument in node.arguments) and any(
            kind_of(argument) in _AMOUNTS or _is_comparison(argument) for argument in node.arguments
        )
    return _is_comparison(node)


def _is_comparison(node: ast.SyntaxNode) -> bool:
    """Return whether this is `a.compareTo(b)`, or one of its kind."""
    if not isinstance(node, ast.CallExpression) or node.function not in ast.ORDERING_METHODS or node.target is None:
        return False
    return _is_amount(node.target) and all(map(_is_amount, node.arguments))


def _is_value(node: ast.SyntaxNode) -> bool:
    if is_device_field(node, "driver") or is_device_field(node, "allowMultipleAllocations"):
        return True
    return isinstance(node, ast.Literal) or _is_amount(node)


def _is_amount(node: ast.SyntaxNode) -> bool:
    kind = kind_of(node)
    if kind in (AccessKind.QUANTITY, AccessKind.SEMVER):
        return isinstance(node, ast.CallExpression) and all(
            isinstance(argument, ast.Literal) for argument in node.arguments
        )
    return kind in (AccessKind.NUMBER, AccessKind.ATTRIBUTE, AccessKind.CAPACITY)


def _renamed(root: ast.SyntaxNode, names: NamesOfExpressions) -> ast.SyntaxNode:
    def change(node: ast.SyntaxNode) -> ast.SyntaxNode | None:
        match node:
            case ast.Literal(value=str(text)):
                return msgspec.structs.replace(node, value=names.text(text))
            case ast.Select() if access_of(node, tested=True) is not None:
                operand = _renamed(node.operand, names)
                return msgspec.structs.replace(node, operand=operand, field=names.member(node.field))
            case ast.CallExpression():
                return _renamed_call(node, names)
        return None

    return mapped(root, change)


def _renamed_call(node: ast.CallExpression, names: NamesOfExpressions) -> ast.SyntaxNode | None:
    """Return a call with a constant that is no text but the name of an attribute, an amount or a version."""
    step = step_of(node)
    if step is not None:
        return _with_text(node, 1, names.member(step.key), names) if device_map_of(step.operand) is not None else None
    first = node.arguments[0] if node.arguments else None
    if not isinstance(first, ast.Literal) or not isinstance(first.value, str):
        return None
    if node.target is None and node.function in ("quantity", "isQuantity"):
        return _with_text(node, 0, names.amount(first.value), names)
    if node.target is None and node.function in ("semver", "isSemver"):
        return _with_text(node, 0, names.version(first.value), names)
    if node.function == "@in" and device_map_of(node.arguments[1]) is not None:
        return _with_text(node, 0, names.member(first.value), names)
    return None


def _with_text(node: ast.CallExpression, place: int, text: str, names: NamesOfExpressions) -> ast.SyntaxNode:
    """Return the call with this text as the argument at the place, and the other arguments renamed."""
    arguments = tuple(
        msgspec.structs.replace(argument, value=text)
        if index == place and isinstance(argument, ast.Literal)
        else _renamed(argument, names)
        for index, argument in enumerate(node.arguments)
    )
    return msgspec.structs.replace(node, arguments=arguments)
