"""Attributes that a device need not have: reading one that is missing fails, it does not just not match."""

from collections.abc import Iterable, Iterator
from typing import Final

from app.cel import syntax as s
from app.cel.lint_findings import Finding, LintCode, warning
from app.cel.lint_kinds import Access, access_of, driver_of, map_of_domain, node_text
from app.cel.rewrite import is_device_field, step_of
from app.cel.walk import children_of

Fact = tuple[str, ...]
"""What is known to hold: ("driver", name), ("domain", name), or the key of an `Access` that is known to be there."""

_NOTHING: Final[frozenset[Fact]] = frozenset()


def facts_of(expressions: Iterable[s.Node]) -> frozenset[Fact]:
    """What holds for a device for which all of these conditions are true."""
    return frozenset().union(*(_established(each, truth=True) for each in expressions))


def guard_findings(root: s.Node, known: frozenset[Fact]) -> Iterator[Finding]:
    """One warning for each attribute or capacity of which nothing says that the device has it.

    What counts: has(), `in`, optional selection, the driver's name for its own domain, and a comparison of the same attribute in
    another operand, for `&&` and `||` forgive a failure that another operand outweighs.
    """
    reported: set[tuple[str, str, str]] = set()
    for node, access in _unguarded(root, known):
        if access.key in reported:
            continue
        reported.add(access.key)
        place = "attribute" if access.place == "attributes" else "capacity"
        message = f"nothing makes sure that the device has this {place}; on one without it the selector fails"
        yield warning(LintCode.UNGUARDED, node.offset, message, _suggestion(node, access))


def _suggestion(node: s.Node, access: Access) -> str:
    if access.domain is not None and "." in access.domain and not _is_shared(access.domain):
        return f'device.driver == "{access.domain}" && ...'
    return f"has({node_text(node)}) && ..." if isinstance(node, s.Select) else ""


def _is_shared(domain: str) -> bool:
    """Domains of Kubernetes itself are used by many drivers and are no driver's name."""
    return domain.endswith(("kubernetes.io", "k8s.io"))


def _unguarded(node: s.Node, known: frozenset[Fact]) -> Iterator[tuple[s.Node, Access]]:
    access = access_of(node)
    if access is not None:
        if not _is_guarded(access, known):
            yield node, access
        return
    if isinstance(node, s.Select) and node.test:
        if map_of_domain(node.operand) is None:
            yield from _unguarded(node.operand, known)
        return
    for child, facts in _children(node, known):
        yield from _unguarded(child, facts)


def _children(node: s.Node, known: frozenset[Fact]) -> Iterator[tuple[s.Node, frozenset[Fact]]]:
    """The nodes below with what holds when their failure matters."""
    below = children_of(node)
    if isinstance(node, s.Call) and node.function in {"_&&_", "_||_"} and node.target is None:
        truth = node.function == "_&&_"
        learned = [_established(each, truth=truth) for each in below]
        for index, each in enumerate(below):
            yield each, known.union(*learned[:index], *learned[index + 1 :])
    elif isinstance(node, s.Call) and node.function == "_?_:_":
        condition, chosen, other = below
        yield condition, known
        yield chosen, known | _established(condition, truth=True)
        yield other, known | _established(condition, truth=False)
    else:
        for each in below:
            yield each, known


def _is_guarded(access: Access, known: frozenset[Fact]) -> bool:
    if access.guarded or access.key in known or (access.domain is None and not access.own):
        return True
    if access.own:
        return any(fact[0] == "driver" for fact in known)
    return bool({("driver", access.domain or ""), ("domain", access.domain or "")} & known)


def _established(node: s.Node, *, truth: bool) -> frozenset[Fact]:
    """What holds when a condition is true (or false)."""
    if isinstance(node, s.Select):
        tested = _tested(node) if node.test else access_of(node)
        return frozenset({tested.key}) if truth and tested is not None else _NOTHING
    if not isinstance(node, s.Call) or node.target is not None:
        return _read(node)
    if node.function == "!_":
        return _established(node.arguments[0], truth=not truth)
    if node.function in {"_&&_", "_||_"}:
        learned = [_established(each, truth=truth) for each in node.arguments]
        return (
            frozenset().union(*learned) if (node.function == "_&&_") is truth else learned[0].intersection(*learned[1:])
        )
    return _compared(node, truth=truth)


def _compared(node: s.Call, *, truth: bool) -> frozenset[Fact]:
    if node.function in {"_==_", "@in"} and truth:
        driver = driver_of(node)
        fact = _member(*node.arguments) if driver is None and node.function == "@in" else driver and ("driver", driver)
        if fact:
            return frozenset({fact})
    return _read(node)


def _member(element: s.Node, values: s.Node) -> Fact | None:
    """`"name" in device.attributes["domain"]`, `"domain" in device.attributes`, `device.driver in ["name"]`."""
    if is_device_field(element, "driver") and isinstance(values, s.ListLiteral) and len(values.elements) == 1:
        only = values.elements[0].value
        return ("driver", only.value) if isinstance(only, s.Literal) and isinstance(only.value, str) else None
    if not isinstance(element, s.Literal) or not isinstance(element.value, str):
        return None
    if is_device_field(values, "attributes") or is_device_field(values, "capacity"):
        return ("domain", element.value)
    if map_of_domain(values) is None:
        return None
    access = access_of(s.Select(values.offset, values.depth + 1, values, element.value))
    return None if access is None else access.key


def _tested(node: s.Select) -> Access | None:
    return access_of(s.Select(node.offset, node.depth, node.operand, node.field))


def _read(node: s.Node) -> frozenset[Fact]:
    """A condition that was decided at all has read what it reads unconditionally."""
    found: set[Fact] = set()
    pending = [node]
    while pending:
        each = pending.pop()
        access = access_of(each)
        if access is not None and not access.guarded:
            found.add(access.key)
        elif isinstance(each, s.Comprehension):
            pending.append(each.source)
        elif not (isinstance(each, s.Call) and each.function in {"_&&_", "_||_", "_?_:_"}) and step_of(each) is None:
            pending.extend(children_of(each))
    return frozenset(found)
