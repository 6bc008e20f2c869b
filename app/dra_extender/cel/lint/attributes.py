"""Reads of attributes that mean something else than they say, and those of attributes that a device may lack.

Paths are wrong with a suffix, a name without a domain, or a key such as "domain/name".  Reading a missing attribute is a failure,
not "no match".
"""

from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from typing import Final

from dra_extender.cel.analysis.attributes import (
    CAPACITY_SUFFIXES,
    SUFFIXES,
    AttributeAccess,
    access_of,
    device_map_of,
    driver_of,
    is_device_field,
    is_device_map,
    is_domain_name,
    is_shared_domain,
    step_of,
    without_suffix,
)
from dra_extender.cel.analysis.walk import children_of
from dra_extender.cel.environment import DEVICE_FIELDS
from dra_extender.cel.lint.findings import LintCode, LintFinding, error, warning
from dra_extender.cel.syntax import ast
from dra_extender.cel.syntax.printer import access_expression, print_expression

_OF_VALUES: Final = frozenset({*ast.MIRRORED, *ast.LOGICAL, "!_"})
_ABOUT_MAPS: Final = frozenset({"size", "includes"})


def path_findings(
    node: ast.SyntaxNode,
    drivers: frozenset[str],
    parent: ast.SyntaxNode | None = None,
    variables: frozenset[str] = frozenset(),
) -> Iterator[LintFinding]:
    """Yield the findings of a tree; names of `drivers` are domains even without a dot."""
    match node:
        case ast.Identifier(name=name) if name in DEVICE_FIELDS and name not in variables:
            message = f"there is no variable {name}; it is a field of device"
            yield error(LintCode.UNKNOWN_FIELD, node.offset, message, f"device.{name}")
        case ast.Select(operand=ast.Identifier(name="device"), field=name) if name not in DEVICE_FIELDS:
            close = get_close_matches(name, sorted(DEVICE_FIELDS), n=1)
            message = f"device has no field {name}; it has {', '.join(DEVICE_FIELDS)}"
            yield error(LintCode.UNKNOWN_FIELD, node.offset, message, f"device.{close[0]}" if close else "")
        case ast.CallExpression(function="_[_]" | "_[?_]", arguments=(ast.Identifier(name="device"), key)):
            suggestion = f"device.{key.value}" if isinstance(key, ast.Literal) and key.value in DEVICE_FIELDS else ""
            message = "fields of device are read with a dot, not by index"
            yield error(LintCode.UNKNOWN_FIELD, node.offset, message, suggestion)
    if isinstance(node, ast.Select):
        yield from _suffix(node)
    if device_map_of(node) is not None:
        yield from _domain(node, parent, drivers)
    for child in children_of(node):
        scope = variables
        if isinstance(node, ast.Comprehension) and child is not node.source:
            scope = variables.union(node.names)
        yield from path_findings(child, drivers, node, scope)


def _suffix(node: ast.Select) -> Iterator[LintFinding]:
    """Yield the finding about `....string` behind an attribute, or in place of its name."""
    meant = without_suffix(node)
    if meant is not None:
        effect = "has(...) is always false" if node.test else "it fails on every device"
        message = f"attributes hold plain values without .{node.field}: {effect}"
        yield error(LintCode.VALUE_SUFFIX, node.offset, message, print_expression(meant))
        return
    access = access_of(node.operand)
    if access is not None and access.device_map == "capacity" and node.field in CAPACITY_SUFFIXES:
        message = f"a capacity is a quantity itself, without .{node.field}"
        yield error(LintCode.VALUE_SUFFIX, node.offset, message, print_expression(node.operand))


def _domain(node: ast.SyntaxNode, parent: ast.SyntaxNode | None, drivers: frozenset[str]) -> Iterator[LintFinding]:
    """Yield the findings about keys of device.attributes and device.capacity that are not domains."""
    step = step_of(node)
    device_map = device_map_of(node)
    if step is None or device_map is None or is_domain_name(step.key) or step.key in drivers:
        return
    if isinstance(parent, ast.Select) and parent.field in SUFFIXES | CAPACITY_SUFFIXES and "/" not in step.key:
        if device_map == "capacity":
            meant = access_expression(device_map, None, step.key)
            message = f"a capacity is a quantity itself, without .{parent.field}, and is found under its domain"
            yield error(LintCode.VALUE_SUFFIX, parent.offset, message, meant)
        return
    rule = f"device.{device_map} is indexed by domain, then by name"
    if "/" not in step.key:
        finding = error if not step.optional and _is_value(node, parent) else warning
        message = f"{step.key!r} has no dot, so it is hardly a domain; {rule}"
        yield finding(LintCode.UNQUALIFIED_NAME, node.offset, message, access_expression(device_map, None, step.key))
    elif not (isinstance(parent, ast.Select) and parent.field in SUFFIXES and device_map == "attributes"):
        domain, _, name = step.key.partition("/")
        finding = warning if isinstance(parent, ast.Select) and parent.test else error
        message = f"{rule}; no domain is called {step.key!r}"
        yield finding(LintCode.QUALIFIED_KEY, node.offset, message, access_expression(device_map, domain, name))


def _is_value(node: ast.SyntaxNode, parent: ast.SyntaxNode | None) -> bool:
    """Return whether an expression uses a domain's map where only the value of an attribute makes sense."""
    if parent is None:
        return True
    if not isinstance(parent, ast.CallExpression):
        return False
    if parent.target is node:
        return parent.function not in _ABOUT_MAPS
    other_arguments = [argument for argument in parent.arguments if argument is not node]
    if any(isinstance(argument, ast.MapLiteral) or device_map_of(argument) is not None for argument in other_arguments):
        return False
    return parent.function in _OF_VALUES or (parent.function == "@in" and parent.arguments[0] is node)


Fact = tuple[str, ...]
"""Something known about a device: ("driver", name), ("domain", name), or the key of an `AttributeAccess` that exists."""

_NOTHING: Final[frozenset[Fact]] = frozenset()


def facts_of(expressions: Iterable[ast.SyntaxNode]) -> frozenset[Fact]:
    """Return the facts about a device for which all of these conditions are true."""
    return frozenset().union(*(_established(expression, truth=True) for expression in expressions))


def guard_findings(root: ast.SyntaxNode, facts: frozenset[Fact]) -> Iterator[LintFinding]:
    """Yield one warning for each attribute or capacity that the device may lack.

    Guards are has(), `in`, optional selection, and the driver's name for its own domain. A guard may stand in any other operand of
    `&&` and `||`: these absorb a failure if another operand decides, whatever the order.
    """
    reported: set[tuple[str, str, str]] = set()
    for node, access in _unguarded(root, facts):
        if access.key in reported:
            continue
        reported.add(access.key)
        noun = "attribute" if access.device_map == "attributes" else "capacity"
        message = f"nothing makes sure that the device has this {noun}; on one without it the selector fails"
        guard = f"has({print_expression(node)}) && ..." if isinstance(node, ast.Select) else ""
        if access.domain is not None and "." in access.domain and not is_shared_domain(access.domain):
            guard = f'device.driver == "{access.domain}" && ...'
        yield warning(LintCode.UNGUARDED, node.offset, message, guard)


def _unguarded(node: ast.SyntaxNode, facts: frozenset[Fact]) -> Iterator[tuple[ast.SyntaxNode, AttributeAccess]]:
    access = access_of(node)
    if access is not None:
        if not _is_guarded(access, facts):
            yield node, access
        return
    if isinstance(node, ast.Select) and node.test:
        if device_map_of(node.operand) is None:
            yield from _unguarded(node.operand, facts)
        return
    below = children_of(node)
    function = node.function if isinstance(node, ast.CallExpression) else ""
    # The facts about each node below that hold whenever its failure matters.
    learned = [_NOTHING] * len(below)
    if function in ast.LOGICAL:
        child_facts = [_established(child, truth=function == "_&&_") for child in below]
        learned = [_NOTHING.union(*child_facts[:index], *child_facts[index + 1 :]) for index in range(len(below))]
    elif function == "_?_:_":
        learned[1:] = (_established(below[0], truth=truth) for truth in (True, False))
    for child, more in zip(below, learned, strict=True):
        yield from _unguarded(child, facts | more)


def _is_guarded(access: AttributeAccess, facts: frozenset[Fact]) -> bool:
    if access.optional or access.key in facts or (access.domain is None and not access.own_domain):
        return True
    if access.own_domain:
        return any(fact[0] == "driver" for fact in facts)
    return bool({("driver", access.domain or ""), ("domain", access.domain or "")} & facts)


def _established(node: ast.SyntaxNode, *, truth: bool) -> frozenset[Fact]:
    """Return the facts that follow from a condition being `truth`."""
    if isinstance(node, ast.Select):
        tested = access_of(node, tested=True) if truth and node.test else None
        return _NOTHING if tested is None else frozenset({tested.key})
    if not isinstance(node, ast.CallExpression) or node.target is not None:
        return _NOTHING
    if node.function == "!_":
        return _established(node.arguments[0], truth=not truth)
    if node.function in ast.LOGICAL:
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
    if is_device_map(values):
        return ("domain", element.value)
    if device_map_of(values) is None:
        return None
    access = access_of(ast.Select(values.offset, values.depth + 1, values, element.value))
    return None if access is None else access.key
