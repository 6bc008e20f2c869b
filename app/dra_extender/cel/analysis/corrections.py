"""Expressions that read what devices have, in place of what no device has."""

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from typing import Final, NamedTuple

import msgspec

from dra_extender.cel.analysis.attributes import (
    ANY_DOMAIN,
    access_of,
    device_map_of,
    is_device_map,
    rewrite_suffixes,
    step_of,
)
from dra_extender.cel.analysis.walk import joined, mapped, nodes_of
from dra_extender.cel.errors import CelCompileError
from dra_extender.cel.syntax import ast
from dra_extender.cel.syntax.parser import parse
from dra_extender.cel.syntax.printer import member_text, print_expression, text_literal

DEVICE_MAPS: Final = ("attributes", "capacity")
Correction = tuple[str, tuple[str, ...]]
"""Another expression, and each thing that it asks for, or that it no longer asks for."""
_MOST_UNKNOWN: Final = 32
_LONGEST_NAME: Final = 128
"""A longer text is no name; domains and identifiers have at most 63 and 32 characters."""


class PublishedNames(NamedTuple):
    """Names that devices publish.

    Attributes:
        words: Drivers, domains, attributes and capacities.
        domains: The domains by map (`attributes` or `capacity`) and name.
        nearest: Returns the word that was probably meant by another word; None if there is none, or more than one.
        complete: Whether the names of all devices are among them.
    """

    words: Collection[str]
    domains: Mapping[tuple[str, str], Collection[str]]
    nearest: Callable[[str], str | None]
    complete: bool = True

    def has(self, read: "_Read") -> bool:
        domains = self.domains.get((read.device_map, read.name), ())
        return read.domain in domains or (read.domain == ANY_DOMAIN and bool(domains))

    def moved(self, read: "_Read") -> "_Read | None":
        """Return the one place where devices have what is not at the place where it is read, in that map if it is there."""
        is_known = read.domain == ANY_DOMAIN or any(read.domain in domains for domains in self.domains.values())
        for device_map in () if self.has(read) else sorted(DEVICE_MAPS, key=lambda other: other != read.device_map):
            domains = self.domains.get((device_map, read.name), ())
            places = {read.domain if read.domain == ANY_DOMAIN else domain for domain in domains}
            if is_known:
                places &= {read.domain}
            if places:
                return _Read(device_map, places.pop(), read.name) if len(places) == 1 else None
        return None


class _Read(NamedTuple):
    """An attribute or capacity that an expression reads, or tests the presence of; without a domain where it names none."""

    device_map: str
    domain: str
    name: str

    @property
    def holder(self) -> str:
        key = "device.driver" if self.domain == ANY_DOMAIN else text_literal(self.domain)
        return f"device.{self.device_map}[{key}]" if self.domain else f"device.{self.device_map}"

    @property
    def text(self) -> str:
        return f"{self.holder}.{member_text(self.name)}"


def meant_expression(expression: str, published: PublishedNames) -> Correction | None:
    """Return an expression with the known names that were meant, and which they are, as `model instead of modle`.

    Return None if every name is known, or it is not clear which was meant. The first 32 unknown names of at most 128 characters
    count.
    """
    plain = rewrite_suffixes(expression)
    root = _parsed(plain)
    if root is None:
        return None
    corrections = dict[str, None]() if plain == expression else {"attributes without their type as a suffix": None}
    unknown: dict[str, str | None] = {}

    def meant(name: str) -> str:
        is_new = name not in published.words and name not in unknown
        if is_new and len(name) <= _LONGEST_NAME and len(unknown) < _MOST_UNKNOWN:
            unknown[name] = published.nearest(name)
        near = unknown.get(name)
        if near is not None:
            corrections[f"{near} instead of {name}"] = None
        return near or name

    def with_meant(node: ast.SyntaxNode) -> ast.SyntaxNode | None:
        match node:
            case ast.Literal(value=str(text)):
                return msgspec.structs.replace(node, value=meant(text))
            case ast.Select():
                return msgspec.structs.replace(node, operand=mapped(node.operand, with_meant), field=meant(node.field))
        return None

    root = mapped(root, with_meant)
    moves = {read: place for read in _reads(root) if (place := published.moved(read)) is not None}
    corrections |= {f"{place.text} instead of {read.text}": None for read, place in moves.items()}
    domains = {read.domain: place.domain for read, place in moves.items() if read.domain}

    def moved(node: ast.SyntaxNode) -> ast.SyntaxNode | None:
        read = _read(node)
        if read in moves:
            return _with_holder(node, parse(moves[read].holder))
        if isinstance(node, ast.Literal) and isinstance(node.value, str):
            # A test of the domain alone.
            return msgspec.structs.replace(node, value=domains.get(node.value, node.value))
        return None

    return (print_expression(mapped(root, moved)), tuple(corrections)) if corrections else None


def guarded_expression(expression: str, published: PublishedNames) -> Correction | None:
    """Return an expression that is false where a device lacks an attribute or capacity that it reads, and the added condition.

    Return None if it reads none that any device has.
    """
    root = _parsed(expression)
    reads = () if root is None else dict.fromkeys(read for read in _reads(root) if published.has(read))
    guard = " && ".join(f"{text_literal(read.name)} in {read.holder}" for read in reads)
    return (f"{guard} && ({expression})", (f"{guard} first",)) if guard else None


def without_unpublished(expression: str, published: PublishedNames) -> Correction | None:
    """Return an expression without the conditions on nothing but what no device has, and what that is; None if it has none.

    Return None also where not all names are known.  The caller asks first whether another name was meant (`meant_expression`).
    """
    root = _parsed(expression) if published.complete else None
    if root is None:
        return None
    kept, unpublished = list[str](), dict[str, None]()
    for condition in joined(root, frozenset({"_&&_"})):
        reads = [read for read in _reads(condition) if read.domain]
        if reads and not any(map(published.has, reads)):
            unpublished |= dict.fromkeys(read.text for read in reads)
        else:
            kept.append(f"({print_expression(condition)})")
    return (" && ".join(kept) or "true", tuple(unpublished)) if unpublished else None


def _parsed(expression: str) -> ast.SyntaxNode | None:
    with suppress(CelCompileError, RecursionError):
        return parse(expression)
    return None


def _reads(root: ast.SyntaxNode) -> Iterator[_Read]:
    """Yield what an expression reads of a device, or tests the presence of."""
    return (read for read in map(_read, nodes_of(root)) if read is not None)


def _read(node: ast.SyntaxNode) -> _Read | None:
    access = access_of(node, tested=True)
    if access is not None:
        domain = ANY_DOMAIN if access.own_domain else access.domain
        return None if domain is None else _Read(access.device_map, domain, access.name)
    match node:
        case (
            ast.Select(operand=holder, field=name)
            | ast.CallExpression(function="_[_]", arguments=(holder, ast.Literal(value=str(name))))
            | ast.CallExpression(function="@in", arguments=(ast.Literal(value=str(name)), holder))
        ):
            step, device_map = step_of(holder), device_map_of(holder)
            if step is not None and device_map is not None:
                return _Read(device_map, step.key, name)
            return _Read(holder.field, "", name) if isinstance(holder, ast.Select) and is_device_map(holder) else None
    return None


def _with_holder(node: ast.SyntaxNode, holder: ast.SyntaxNode) -> ast.SyntaxNode:
    """Return the node with another map of names in the place of the map that it reads."""
    access = access_of(node)
    match node:
        case ast.Select():
            return msgspec.structs.replace(node, operand=holder, optional=access is not None and access.optional)
        case ast.CallExpression(function="@in", arguments=(name, _)):
            return msgspec.structs.replace(node, arguments=(name, holder))
        case ast.CallExpression(arguments=(_, name)):
            return msgspec.structs.replace(node, arguments=(holder, name))
    return node
