"""What pods and selectors name and does not exist, and which names were probably meant."""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from typing import Final, NamedTuple

import msgspec

from dra_extender.allocator.demand.demand import SearchableRequest
from dra_extender.allocator.state.reasons import Code, Rejection
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
from dra_extender.cel.explain.nearness import may_hold
from dra_extender.cel.program import Program
from dra_extender.cel.syntax import ast
from dra_extender.cel.syntax.parser import parse
from dra_extender.cel.syntax.printer import member_text, print_expression, text_literal
from dra_extender.inspection.audit.requests import requests_by_name
from dra_extender.inspection.cluster_view import ClusterView
from dra_extender.inspection.near_names import instead, meant_name, names_there
from dra_extender.inspection.objects import unread
from dra_extender.inspection.why.report import EXAMPLES
from dra_extender.model.api_json import ModelError, decode, listed
from dra_extender.model.pod import Pod, PodResourceClaim
from dra_extender.model.resource_claim import ClaimSpec
from dra_extender.model.templated_claim import read_template
from dra_extender.scheduling.claims.lookup import find_claims
from dra_extender.simulator.apiserver.objects import StoredKind

_MOST_DEVICES: Final = 20_000
_MOST_NAMES: Final = 1_000
_MOST_UNKNOWN: Final = 32
_MAPS: Final = ("attributes", "capacity")


def existing_names(view: ClusterView, pod: Pod, rejection: Rejection) -> str:
    """Return what exists in the place of the class, claim, template or PodGroup that a rejection says does not; else empty.

    That is where else an object of the name is, otherwise what exists in its namespace.
    """
    if rejection.code is Code.CLASS_MISSING:
        return names_there(re.split("[ /]", rejection.detail)[-1], view.ledger.classes)
    missing = missing_object(view, pod, rejection)
    if missing is None:
        return ""
    kind, name = missing
    elsewhere = [f"{namespace}/{name}" for namespace in sorted(view.namespaces_of(kind, name))]
    return f"; there is {listed(elsewhere)}" if elsewhere else names_there(name, view.names(kind, pod.namespace))


def missing_object(view: ClusterView, pod: Pod, rejection: Rejection) -> tuple[StoredKind, str] | None:
    """Return kind and name of the claim, template or PodGroup that a rejection says does not exist; None if it says none."""
    in_namespace = rejection.detail.startswith(f"{pod.namespace}/")
    missing = rejection.detail.rpartition("/")[2]
    match rejection.code:
        case Code.CLAIM_MISSING if in_namespace:
            return StoredKind.CLAIM, missing
        case Code.CLAIM_NOT_CREATED if rejection.detail.startswith("from template "):
            template = rejection.detail.split()[2]
            exists = template in view.names(StoredKind.TEMPLATE, pod.namespace)
            return None if exists else (StoredKind.TEMPLATE, template)
        case Code.POD_GROUP_MISSING if in_namespace:
            return StoredKind.POD_GROUP, missing
    return None


class PublishedNames(NamedTuple):
    """Drivers, domains, attributes and capacities of devices, and the domains of each (`attributes` or `capacity`, name).

    `complete`: those of all devices.
    """

    words: Collection[str]
    domains: Mapping[tuple[str, str], Collection[str]]
    complete: bool = True

    def has(self, read: "_Read") -> bool:
        domains = self.domains.get((read.device_map, read.name), ())
        return read.domain in domains or (read.domain == ANY_DOMAIN and bool(domains))

    def moved(self, read: "_Read") -> "_Read | None":
        """Return the one place where devices have what is not at the place where it is read, in that map if it is there."""
        is_known = read.domain == ANY_DOMAIN or any(read.domain in domains for domains in self.domains.values())
        for device_map in () if self.has(read) else sorted(_MAPS, key=lambda other: other != read.device_map):
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


def published_names(view: ClusterView) -> PublishedNames:
    """Return the names of devices, as far as the first ones show them."""
    words: dict[str, None] = {}
    domains: dict[tuple[str, str], set[str]] = {}
    devices = ((part.driver, device) for part in view.ledger.slices.by_name.values() for device in part.devices)
    complete = not unread(view.origin, {StoredKind.SLICE})
    for number, (driver, device) in enumerate(devices):
        if number == _MOST_DEVICES or len(words) > _MOST_NAMES:
            complete = False
            break
        words[driver] = None
        for kind, published in zip(_MAPS, (device.attributes, device.capacity), strict=True):
            for full_name, _ in published:
                domain, _, name = full_name.rpartition("/")
                words.update(dict.fromkeys((domain or driver, name)))
                domains.setdefault((kind, name), set()).add(domain or driver)
    return PublishedNames(words, domains, complete)


def meant_expression(expression: str, published: PublishedNames) -> tuple[str, str] | None:
    """Return an expression with the known names that were meant, and which they are, as `model instead of modle`.

    Return None if every name is known, or it is not clear which was meant.  The first 32 unknown names count.
    """
    plain = rewrite_suffixes(expression)
    root = _parsed(plain)
    if root is None:
        return None
    corrections = dict[str, None]() if plain == expression else {"attributes without their type as a suffix": None}
    unknown: dict[str, str | None] = {}

    def meant(name: str) -> str:
        if name not in published.words and name not in unknown and len(unknown) < _MOST_UNKNOWN:
            unknown[name] = meant_name(name, published.words)
        near = unknown.get(name)
        if near is not None:
            corrections[instead(near, name)] = None
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
    corrections |= {instead(place.text, read.text): None for read, place in moves.items()}
    domains = {read.domain: place.domain for read, place in moves.items() if read.domain}

    def moved(node: ast.SyntaxNode) -> ast.SyntaxNode | None:
        read = _read(node)
        if read in moves:
            return _with_holder(node, parse(moves[read].holder))
        if isinstance(node, ast.Literal) and isinstance(node.value, str):
            # A test of the domain alone.
            return msgspec.structs.replace(node, value=domains.get(node.value, node.value))
        return None

    return (print_expression(mapped(root, moved)), ", ".join(corrections)) if corrections else None


def guarded_expression(expression: str, published: PublishedNames) -> tuple[str, str] | None:
    """Return an expression that is false where a device lacks an attribute or capacity that it reads, and the added condition.

    Return None if it reads none that any device has.
    """
    root = _parsed(expression)
    reads = () if root is None else dict.fromkeys(read for read in _reads(root) if published.has(read))
    guard = " && ".join(f"{text_literal(read.name)} in {read.holder}" for read in reads)
    return (f"{guard} && ({expression})", f"{guard} first") if guard else None


def without_unpublished(expression: str, published: PublishedNames) -> tuple[str, str] | None:
    """Return an expression without the conditions on nothing but what no device has, and what that is; None if it has none.

    Return None also where another name was probably meant, or where not all names are known.
    """
    root = _parsed(expression) if published.complete and meant_expression(expression, published) is None else None
    if root is None:
        return None
    kept, unpublished = list[str](), dict[str, None]()
    for condition in joined(root, frozenset({"_&&_"})):
        reads = [read for read in _reads(condition) if read.domain]
        if reads and not any(map(published.has, reads)):
            unpublished |= dict.fromkeys(read.text for read in reads)
        else:
            kept.append(f"({print_expression(condition)})")
    return (" && ".join(kept) or "true", ", ".join(unpublished)) if unpublished else None


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
    """Return what reads of another map of names the same as a node."""
    access = access_of(node)
    match node:
        case ast.Select():
            return msgspec.structs.replace(node, operand=holder, optional=access is not None and access.optional)
        case ast.CallExpression(function="@in", arguments=(name, _)):
            return msgspec.structs.replace(node, arguments=(name, holder))
        case ast.CallExpression(arguments=(_, name)):
            return msgspec.structs.replace(node, arguments=(holder, name))
    return node


def contradicted_class(view: ClusterView, option: SearchableRequest) -> str | None:
    """Return the one class whose devices the request's own selectors mean, where those of its class cannot be; else None.

    A request without selectors of its own says nothing of what it means.
    """
    own = len(option.device_class.spec.selectors)
    selectors = option.selectors.programs
    drivers = {published.driver for published in view.ledger.slices.by_name.values()}
    meant = {driver for driver in drivers if may_all_hold(selectors[own:], driver)}
    if not meant or meant == drivers or any(may_all_hold(selectors[:own], account) for account in meant):
        return None
    names = [
        name
        for name, device_class in view.ledger.classes.items()
        if any(
            all(may_hold(selector.cel.expression, driver) for selector in device_class.spec.selectors if selector.cel)
            for driver in meant
        )
    ]
    return names[0] if len(names) == 1 else None


def may_all_hold(programs: Iterable[Program | CelCompileError], driver: str) -> bool:
    """Return whether all these selectors can be true for a device of the driver; those that do not compile do not count."""
    return all(
        may_hold(program.expression, driver, program.emulate) for program in programs if isinstance(program, Program)
    )


_MISSING: Final = frozenset({Code.CLAIM_MISSING, Code.POD_GROUP_MISSING})
_SPEC: Final = msgspec.json.Decoder(ClaimSpec)
_MOST_ENTRIES: Final = 32
"""Entries of `spec.resourceClaims` that are looked at."""


def missing_names(view: ClusterView, pod: Pod) -> Sequence[str]:
    """Return a sentence about each object that the claims of a pod name and that does not exist, the first few."""
    sentences = (text for entry in islice(pod.claims, _MOST_ENTRIES) for text in _missing(view, pod, entry))
    return list(islice(dict.fromkeys(sentences), EXAMPLES))


def _missing(view: ClusterView, pod: Pod, entry: PodResourceClaim) -> Iterator[str]:
    if unread(view.origin, {"resourceclaims", "podgroups"}, pod.namespace):
        return
    found_claims = find_claims(msgspec.structs.replace(pod, claims=(entry,)), view.ledger)
    template = entry.resource_claim_template_name
    if not isinstance(found_claims, Rejection):
        for claim in found_claims:
            if claim.record.has_spec and not claim.record.unreadable and claim.record.claim.status.allocation is None:
                yield from _missing_classes(view, entry, claim.record.spec)
    elif found_claims.code in _MISSING:
        yield found_claims.text + existing_names(view, pod, found_claims)
    elif (
        found_claims.code is Code.CLAIM_NOT_CREATED
        and template
        and not unread(view.origin, {StoredKind.TEMPLATE}, pod.namespace)
    ):
        data = view.encoded(StoredKind.TEMPLATE, template, pod.namespace)
        if data is None:
            near = names_there(template, view.names(StoredKind.TEMPLATE, pod.namespace))
            yield f'claim "{entry.name}": ResourceClaimTemplate {template} does not exist{near}'
            return
        with suppress(ModelError):
            spec = decode("ResourceClaimTemplate", _SPEC, bytes(read_template(data).spec.spec))
            yield from _missing_classes(view, entry, spec)


def _missing_classes(view: ClusterView, entry: PodResourceClaim, spec: ClaimSpec) -> Iterator[str]:
    if unread(view.origin, {"deviceclasses"}):
        return
    for name, request in requests_by_name(spec):
        device_class = request.device_class_name
        if device_class and device_class not in view.ledger.classes:
            near = names_there(device_class, view.ledger.classes)
            yield f'claim "{entry.name}", request "{name}": device class {device_class} does not exist{near}'
