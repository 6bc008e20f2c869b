"""A second, smaller back end for what most selectors consist of, which asks a device directly and counts nothing.

It answers where the answer is plain and its cost, known before, far from any limit. Where something is missing or of an
unexpected type it says so, and the expression is evaluated as a whole by the other back end, which knows all the rules.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from typing import Any, Final

import msgspec

from dra_extender.cel.analysis.attribute_reads import named
from dra_extender.cel.fastpath.predicates import (
    CASES,
    LARGEST_PATTERN,
    LONGEST,
    ORDERINGS,
    Ask,
    Check,
    NotOnFastPathError,
    certain,
    chain,
    comparison,
    either,
    member,
    negation,
    of_attribute,
    of_match,
    of_text,
    same_domain,
)
from dra_extender.cel.native.patterns import compile_pattern
from dra_extender.cel.runtime.cost import COST_LIMIT, EvaluationFrame, tenth
from dra_extender.cel.runtime.device import DeviceActivation
from dra_extender.cel.runtime.quantity import Quantity
from dra_extender.cel.runtime.semver import Semver
from dra_extender.cel.support.errors import CelRuntimeError
from dra_extender.cel.types import typed_ast

_KINDS: Final = frozenset({str, int, bool})
_FEW: Final = 3
_SELECTION_COST: Final = 5
_MIRRORED: Final = {"_<_": "_>_", "_>_": "_<_", "_<=_": "_>=_", "_>=_": "_<=_"}
_TEXT_METHODS: Final = frozenset({"startsWith", "endsWith", "contains", "matches"})
_ORDERED_METHODS: Final = frozenset({"compareTo", "isGreaterThan", "isLessThan"})

GIVES_UP: Final = (NotOnFastPathError, KeyError, CelRuntimeError)
"""What a quick answer raises instead of being wrong."""


class FastPath(msgspec.Struct, frozen=True):
    """A compiled part: how to ask, the most that it costs, and the type of every answer if that is certain.

    `attribute` is the domain and name of an attribute that is read, `check` says what one is compared with, after its domain.
    """

    ask: Ask
    cost: int
    kind: type | None = None
    attribute: tuple[str, str] | None = None
    check: tuple[str, Check] | None = None


class _Making(msgspec.Struct, frozen=True):
    """What all parts of an answer share: regular expressions are kept for `owner`, attributes that are read go to `reads`."""

    owner: str
    reads: set[str]


def quick_answer(node: typed_ast.TypedNode, owner: str = "") -> tuple[Ask, int, frozenset[str]] | None:
    """How to ask a device, the most it costs, and the attributes it reads; None for what only the other back end can do.

    Regular expressions are kept for `owner`. The attributes are those that `attributes_read` finds in the expression.
    """
    making = _Making(owner, set())
    found = _quick(node, making)
    if found is None or found.cost > COST_LIMIT // 2:
        return None
    return found.ask, found.cost, frozenset(making.reads)


def _quick(node: typed_ast.TypedNode, making: _Making) -> FastPath | None:
    rule = _RULES.get(type(node))
    return None if rule is None else rule(node, making)


def _field(node: typed_ast.FieldSelection | typed_ast.Index, making: _Making) -> FastPath | None:
    name = _name(node)
    operand = node.operand
    if name is None or node.optional:
        return None
    tests = type(node) is typed_ast.FieldSelection and node.test
    if type(operand) is typed_ast.DeviceVariable:
        return None if tests or type(node) is typed_ast.Index else _OF_DEVICE.get(name)
    if not isinstance(operand, (typed_ast.FieldSelection, typed_ast.Index)):
        return None
    place = operand.operand
    domain = (
        None if operand.optional or (isinstance(operand, typed_ast.FieldSelection) and operand.test) else _name(operand)
    )
    if domain is None or not isinstance(place, typed_ast.FieldSelection) or place.optional or place.test:
        return None
    if not isinstance(place.operand, typed_ast.DeviceVariable) or place.name not in {"attributes", "capacity"}:
        return None
    making.reads.add(named(domain, name))
    return _entry(place.name, domain, name, tests=tests)


def _entry(place: str, domain: str, name: str, *, tests: bool) -> FastPath:
    if place == "attributes":
        if tests:
            return FastPath(lambda device: name in device.attributes[domain], _SELECTION_COST, bool)
        return FastPath(lambda device: device.attributes[domain][name], _SELECTION_COST, None, (domain, name))
    if tests:
        return FastPath(lambda device: name in device.capacity[domain], _SELECTION_COST, bool)
    return FastPath(lambda device: device.capacity[domain][name], _SELECTION_COST, Quantity)


def _name(node: typed_ast.FieldSelection | typed_ast.Index) -> str | None:
    if isinstance(node, typed_ast.FieldSelection):
        return node.name
    key = node.key
    return key.value if type(key) is typed_ast.Constant and type(key.value) is str else None


def _logical(node: typed_ast.Logical, making: _Making) -> FastPath | None:
    terms = [_quick(term, making) for term in node.terms]
    known = [term for term in terms if term is not None]
    if len(known) < len(terms):
        return None
    asks = _fused(known) if node.absorbing is False else [_truth(term) for term in known]
    return FastPath(chain(asks, absorbing=node.absorbing), sum(term.cost for term in known), bool)


def _fused(terms: Sequence[FastPath]) -> list[Ask]:
    """One question each, or one for a row of attributes of one domain that are compared with constants."""
    asks: list[Ask] = []
    for domain, group in groupby(terms, lambda term: term.check and term.check[0]):
        row = list(group)
        checks = tuple(term.check[1] for term in row if term.check is not None)
        if domain is None or len(row) < _FEW:
            asks.extend(map(_truth, row))
        else:
            asks.append(same_domain(domain, checks))
    return asks


def _truth(term: FastPath) -> Ask:
    return term.ask if term.kind is bool else certain(term.ask, bool)


def _conditional(node: typed_ast.Conditional, making: _Making) -> FastPath | None:
    condition, chosen, other = (_quick(each, making) for each in (node.condition, node.chosen, node.other))
    if condition is None or chosen is None or other is None:
        return None
    kind = chosen.kind if chosen.kind is other.kind else None
    cost = condition.cost + max(chosen.cost, other.cost)
    return FastPath(either(_truth(condition), chosen.ask, other.ask), cost, kind)


def _invoke(node: typed_ast.Invoke, making: _Making) -> FastPath | None:
    name, arguments = node.function.name, node.arguments
    if name == "!_":
        term = _quick(arguments[0], making)
        return None if term is None else FastPath(negation(_truth(term)), term.cost + 1, bool)
    if name in {"_==_", "_!=_"}:
        one, other = arguments if isinstance(arguments[1], typed_ast.Constant) else arguments[::-1]
        return _equality(one, other, making, same=name == "_==_")
    if name in ORDERINGS:
        if isinstance(arguments[1], typed_ast.Constant):
            return _ordering(arguments[0], arguments[1], name, making)
        return _ordering(arguments[1], arguments[0], _MIRRORED[name], making)
    if name == "@in":
        return _membership(arguments[0], arguments[1], making)
    return _method(node, making) if node.member else None


def _equality(
    part: typed_ast.TypedNode, constant: typed_ast.TypedNode, making: _Making, *, same: bool
) -> FastPath | None:
    operand = _quick(part, making)
    if operand is None or not isinstance(constant, typed_ast.Constant) or type(constant.value) not in _KINDS:
        return None
    value, kind = constant.value, type(constant.value)
    cost = operand.cost + 1 + (tenth(len(value)) if kind is str else 1)
    if operand.attribute is not None:
        ask = of_attribute(*operand.attribute, kind, value, same=same)
        domain, attribute = operand.attribute
        return FastPath(ask, cost, bool, None, (domain, (attribute, kind, value, same)))
    return FastPath(comparison(operand.ask, operand.kind, value, "_==_" if same else "_!=_"), cost, bool)


def _ordering(part: typed_ast.TypedNode, constant: typed_ast.TypedNode, name: str, making: _Making) -> FastPath | None:
    operand = _quick(part, making)
    if operand is None or not isinstance(constant, typed_ast.Constant) or type(constant.value) is not int:
        return None
    return FastPath(comparison(operand.ask, operand.kind, constant.value, name), operand.cost + 2, bool)


def _membership(part: typed_ast.TypedNode, among: typed_ast.TypedNode, making: _Making) -> FastPath | None:
    operand = _quick(part, making)
    if operand is None or not isinstance(among, typed_ast.MakeList) or any(among.optional):
        return None
    values = [each.value for each in among.elements if isinstance(each, typed_ast.Constant)]
    kinds = set(map(type, values))
    if len(values) < len(among.elements) or kinds not in ({str}, {int}):
        return None
    return FastPath(member(operand.ask, kinds.pop(), frozenset(values)), operand.cost + 1, bool)


def _method(node: typed_ast.Invoke, making: _Making) -> FastPath | None:
    name = node.function.name
    operand = _quick(node.arguments[0], making)
    if operand is None or len(node.candidates) != 1:
        return None
    single = node.candidates[0]
    if name in CASES:
        ask = of_text(operand.ask, CASES[name])
        return FastPath(ask, operand.cost + 2 * tenth(LONGEST), str)
    if len(node.arguments) != len(single.parameters) or len(node.arguments) != _FEW - 1:
        return None
    argument = node.arguments[1]
    if name in _TEXT_METHODS and isinstance(argument, typed_ast.Constant) and type(argument.value) is str:
        if name == "matches":
            return _match(operand, argument.value, making)
        return FastPath(of_text(operand.ask, single.run, argument.value), _searched(operand, argument.value), bool)
    if name in _ORDERED_METHODS:
        known = _known(argument)
        if known is not None:
            value, cost = known
            kind = int if name == "compareTo" else bool
            ask = certain(operand.ask, type(value)) if operand.kind is not type(value) else operand.ask
            run = single.run
            return FastPath(lambda device: run(ask(device), value), operand.cost + 1 + cost, kind)
    return None


def _searched(operand: FastPath, wanted: str) -> int:
    return operand.cost + tenth(LONGEST) * len(wanted) + tenth(LONGEST)


def _match(operand: FastPath, wanted: str, making: _Making) -> FastPath | None:
    try:
        compiled = compile_pattern(wanted, making.owner)
    except CelRuntimeError:
        return None
    if compiled.size > LARGEST_PATTERN:
        return None
    return FastPath(of_match(operand.ask, wanted), _searched(operand, wanted), bool)


def _known(node: typed_ast.TypedNode) -> tuple[Any, int] | None:
    """The quantity or version of a constant text, and the cost of making it."""
    if (
        not isinstance(node, typed_ast.Invoke)
        or node.function.name not in {"quantity", "semver"}
        or len(node.candidates) != 1
    ):
        return None
    if not all(isinstance(each, typed_ast.Constant) for each in node.arguments):
        return None
    values = tuple(each.value for each in node.arguments if isinstance(each, typed_ast.Constant))
    single = node.candidates[0]
    try:
        value = single.run(*values)
    except CelRuntimeError:
        return None
    extra = node.function.extra or single.extra
    cost = 1 if extra is None else 1 + extra(EvaluationFrame(None, 0, ()), values, value)
    return (value, cost) if type(value) in {Quantity, Semver} else None


def _driver(device: DeviceActivation) -> str:
    return device.driver


def _shared(device: DeviceActivation) -> bool:
    return bool(device.fields["allowMultipleAllocations"])


_DRIVER: Final = FastPath(_driver, 2, str)
_SHARED: Final = FastPath(_shared, 2, bool)
_OF_DEVICE: Final = {"driver": _DRIVER, "allowMultipleAllocations": _SHARED}
_RULES: Final[Mapping[type[typed_ast.TypedNode], Callable[[Any, _Making], FastPath | None]]] = {
    typed_ast.FieldSelection: _field,
    typed_ast.Index: _field,
    typed_ast.Logical: _logical,
    typed_ast.Conditional: _conditional,
    typed_ast.Invoke: _invoke,
}
