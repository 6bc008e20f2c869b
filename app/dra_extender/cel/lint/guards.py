"""Reads of attributes that a device may lack: reading a missing attribute is a failure, not "no match"."""

from collections.abc import Iterable, Iterator
from typing import Final

from dra_extender.cel.analysis.attributes import (
    AttributeAccess,
    access_of,
    device_map_of,
    driver_of,
    is_device_field,
    is_shared_domain,
)
from dra_extender.cel.analysis.walk import children_of
from dra_extender.cel.lint.findings import LintCode, LintFinding, warning
from dra_extender.cel.syntax import ast
from dra_extender.cel.syntax.printer import print_expression

Fact = tuple[str, ...]
"""Something known about a device: ("driver", name), ("domain", name), or the key of an `AttributeAccess` that exists."""

_NOTHING: Final[frozenset[Fact]] = frozenset()


def facts_of(expressions: Iterable[ast.SyntaxNode]) -> frozenset[Fact]:
    """Return the facts about a device for which all of these conditions are true."""
    return frozenset().union(*(_established(expression, truth=True) for expression in expressions))


def guard_findings(root: ast.SyntaxNode, known: frozenset[Fact]) -> Iterator[LintFinding]:
    """Yield one warning for each attribute or capacity that the device may lack.

    Guards are has(), `in`, optional selection, and the driver's name for its own domain. A guard may stand in any other operand of
    `&&` and `||`: these absorb a failure if another operand decides, whatever the order.
    """
    reported: set[tuple[str, str, str]] = set()
    for node, access in _unguarded(root, known):
        if access.key in reported:
            continue
        reported.add(access.key)
        noun = "attribute" if access.device_map == "attributes" else "capacity"
        message = f"nothing makes sure that the device has this {noun}; on one without it the selector fails"
        guard = f"has({print_expression(node)}) && ..." if isinstance(node, ast.Select) else ""
        if access.domain is not None and "." in access.domain and not is_shared_domain(access.domain):
            guard = f'device.driver == "{access.domain}" && ...'
        yield warning(LintCode.UNGUARDED, node.offset, message, guard)


def _unguarded(node: ast.SyntaxNode, known: frozenset[Fact]) -> Iterator[tuple[ast.SyntaxNode, AttributeAccess]]:
    access = access_of(node)
    if access is not None:
        if not _is_guarded(access, known):
            yield node, access
        return
    if isinstance(node, ast.Select) and node.test:
        if device_map_of(node.operand) is None:
            yield from _unguarded(node.operand, known)
        return
    below = children_of(node)
    function = node.function if isinstance(node, ast.CallExpression) else ""
    # The facts about each node below that hold whenever its failure matters.
    learned = [_NOTHING] * len(below)
    if function in {"_&&_", "_||_"}:
        facts = [_established(child, truth=function == "_&&_") for child in below]
        learned = [_NOTHING.union(*facts[:index], *facts[index + 1 :]) for index in range(len(below))]
    elif function == "_?_:_":
        learned[1:] = (_established(below[0], truth=truth) for truth in (True, False))
    for child, more in zip(below, learned, strict=True):
        yield from _unguarded(child, known | more)


def _is_guarded(access: AttributeAccess, known: frozenset[Fact]) -> bool:
    if access.optional or access.key in known or (access.domain is None and not access.own_domain):
        return True
    if access.own_domain:
        return any(fact[0] == "driver" for fact in known)
    return bool({("driver", access.domain or ""), ("domain", access.domain or "")} & known)


def _established(node: ast.SyntaxNode, *, truth: bool) -> frozenset[Fact]:
    """Return the facts that follow from a condition being `truth`."""
    if isinstance(node, ast.Select):
        tested = access_of(node, tested=True) if truth and node.test else None
        return _NOTHING if tested is None else frozenset({tested.key})
    if not isinstance(node, ast.CallExpression) or node.target is not None:
        return _NOTHING
    if node.function == "!_":
        return _established(node.arguments[0], truth=not truth)
    if node.function in {"_&&_", "_||_"}:
        learned = [_established(argument, truth=truth) for argument in node.arguments]
        every = (node.function == "_&&_") is truth
        return _NOTHING.union(*learned) if every else learned[0].intersection(*learned[1:])
    fact: Fact | None = None
    if truth and node.function == "@in":
        fact = _member(*node.arguments)
    elif truth:
        driver = driver_of(node)
        fact = None if driver is None else ("driver", driver)
    return _NOTHING if fact is None else frozenset({fact})


def _member(element: ast.SyntaxNode, values: ast.SyntaxNode) -> Fact | None:
    """Return the fact in `"name" in device.attributes["domain"]`, `"domain" in device.attributes`, `device.driver in ["name"]`."""
    if is_device_field(element, "driver") and isinstance(values, ast.ListLiteral) and len(values.elements) == 1:
        only = values.elements[0].value
        return ("driver", only.value) if isinstance(only, ast.Literal) and isinstance(only.value, str) else None
    if not isinstance(element, ast.Literal) or not isinstance(element.value, str):
        return None
    if is_device_field(values, "attributes") or is_device_field(values, "capacity"):
        return ("domain", element.value)
    if device_map_of(values) is None:
        return None
    access = access_of(ast.Select(values.offset, values.depth + 1, values, element.value))
    return None if access is None else access.key
