"""A second, smaller back end without cost accounting, for the expressions that most selectors consist of.

These are comparisons of attributes, joined by `&&` and `||`. Their greatest cost is known and far below every limit. If a value is
missing or has an unexpected type, the compiled function raises one of FALLBACK_ERRORS; the closures with cost accounting evaluate
the expression then.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from typing import Any, Final

import msgspec

from dra_extender.cel.compiler.calls import fold_call
from dra_extender.cel.compiler.code import CompiledPart, constant
from dra_extender.cel.compiler.selections import device_path, is_presence_test
from dra_extender.cel.cost import COST_LIMIT, tenth
from dra_extender.cel.device import DeviceActivation
from dra_extender.cel.errors import CelRuntimeError
from dra_extender.cel.native.patterns import cached_pattern, compile_pattern
from dra_extender.cel.syntax.ast import EQUALITY, MIRRORED, ORDERING_METHODS, ORDERINGS
from dra_extender.cel.types import typed_ast
from dra_extender.cel.types.declarations import Implementation
from dra_extender.cel.values.quantity import Quantity

Evaluate = Callable[[DeviceActivation], Any]
Check = tuple[str, type, Any, bool]
"""An attribute's name, the type its value must have, a constant, and whether the value should equal the constant."""

MAX_TEXT_LENGTH: Final = 256
"""The most characters of a text that the fast path searches."""
MAX_MATCHED_LENGTH: Final = 64
"""The most characters of a text that the fast path matches with a regular expression of MAX_PATTERN_SIZE instructions."""
MAX_PATTERN_SIZE: Final = 120

_AT_ONCE: Final = 3


class NotOnFastPathError(Exception):
    """A value is not of the type that the fast path expects."""


def _of_ascii(change: Callable[[str], str]) -> Callable[[str], str]:
    def change_ascii(text: str) -> str:
        if text.isascii():
            return change(text)
        raise NotOnFastPathError

    return change_ascii


CASES: Final[Mapping[str, Callable[[str], str]]] = {
    "lowerAscii": _of_ascii(str.lower),
    "upperAscii": _of_ascii(str.upper),
}


def require_type(operand: Evaluate, kind: type) -> Evaluate:
    def evaluate(device: DeviceActivation) -> Any:
        value = operand(device)
        if type(value) is kind:
            return value
        raise NotOnFastPathError

    return evaluate


def attribute_equals(domain: str, name: str, kind: type, expected: Any, same: bool) -> Evaluate:
    def evaluate(device: DeviceActivation) -> bool:
        value = device.attributes[domain][name]
        if type(value) is kind:
            return (value == expected) is same
        raise NotOnFastPathError

    return evaluate


def attributes_equal(domain: str, checks: tuple[Check, ...]) -> Evaluate:
    """Return whether all of several attributes of a domain equal their constants, or do not."""

    def evaluate(device: DeviceActivation) -> bool:
        values = device.attributes[domain]
        for name, kind, expected, same in checks:
            value = values[name]
            if type(value) is not kind:
                raise NotOnFastPathError
            if (value == expected) is not same:
                return False
        return True

    return evaluate


def comparison(operand: Evaluate, operand_type: type | None, bound: Any, symbol: str) -> Evaluate:
    """Evaluate `operand symbol bound`; `operand_type` is the type of every value of the operand, if all have one type."""
    kind = type(bound)
    sure = operand if operand_type is kind else require_type(operand, kind)
    if symbol == "_==_":
        return lambda device: sure(device) == bound
    if symbol == "_!=_":
        return lambda device: sure(device) != bound
    ordered = ORDERINGS[symbol]
    return lambda device: ordered(sure(device), bound)


def apply_to_text(operand: Evaluate, function: Callable[..., Any], argument: str | None = None) -> Evaluate:
    """Return a function applied to a short text and, if there is one, a constant."""

    def evaluate(device: DeviceActivation) -> Any:
        value = operand(device)
        if type(value) is not str or len(value) > MAX_TEXT_LENGTH:
            raise NotOnFastPathError
        return function(value) if argument is None else function(value, argument)

    return evaluate


def logical(terms: Sequence[Evaluate], *, absorbing: bool) -> Evaluate:
    """Evaluate `&&` or, if true absorbs, `||` of all terms; nested by twos and threes, which is faster than a loop."""
    while len(terms) > _AT_ONCE:
        terms = [
            logical(terms[place : place + _AT_ONCE], absorbing=absorbing) for place in range(0, len(terms), _AT_ONCE)
        ]
    first, *following = terms
    if not following:
        return first
    if len(following) == 1:
        second = following[0]
        if absorbing:
            return lambda device: first(device) or second(device)
        return lambda device: first(device) and second(device)
    second, third = following
    if absorbing:
        return lambda device: first(device) or second(device) or third(device)
    return lambda device: first(device) and second(device) and third(device)


_KINDS: Final = frozenset({str, int, bool})
_ORDERED_KINDS: Final = frozenset({int})
_LEAST_JOINED: Final = 3
_PAIR: Final = 2
_SELECTION_COST: Final = 5
_TEXT_METHODS: Final = frozenset({"startsWith", "endsWith", "contains", "matches"})

FALLBACK_ERRORS: Final = (NotOnFastPathError, KeyError, CelRuntimeError)
"""Errors by which the fast path leaves the evaluation to the other back end."""


class FastPath(msgspec.Struct, frozen=True):
    """A compiled part of an expression with its greatest cost in units of CEL, and `kind`, if its values have one type.

    A part that is an attribute has its domain and name; one that compares an attribute with a constant the domain and the check.
    """

    evaluate: Evaluate
    cost: int
    kind: type | None = None
    attribute: tuple[str, str] | None = None
    check: tuple[str, Check] | None = None


def compile_fast_path(node: typed_ast.TypedNode, owner: str = "") -> FastPath | None:
    """Return the compiled expression; None if there is no fast path. The cache charges `owner` for regular expressions."""
    compiled = _compile(node, owner)
    return None if compiled is None or compiled.cost > COST_LIMIT // 2 else compiled


def _compile(node: typed_ast.TypedNode, owner: str) -> FastPath | None:
    rule = _RULES.get(type(node))
    return None if rule is None else rule(node, owner)


def _field(node: typed_ast.FieldSelection | typed_ast.Index, _: str) -> FastPath | None:
    tests = is_presence_test(node)
    match device_path(node):
        case (field,) if not tests:
            return _OF_DEVICE.get(field)
        case (device_map, domain, name):
            pass
        case _:
            return None
    if device_map == "attributes":
        if tests:
            return FastPath(lambda device: name in device.attributes[domain], _SELECTION_COST, bool)
        return FastPath(lambda device: device.attributes[domain][name], _SELECTION_COST, None, (domain, name))
    if tests:
        return FastPath(lambda device: name in device.capacity[domain], _SELECTION_COST, bool)
    return FastPath(lambda device: device.capacity[domain][name], _SELECTION_COST, Quantity)


def _logical(node: typed_ast.Logical, owner: str) -> FastPath | None:
    terms = [_compile(term, owner) for term in node.terms]
    compiled = [term for term in terms if term is not None]
    if len(compiled) < len(terms):
        return None
    operands = _join_terms(compiled) if node.absorbing is False else [_as_bool(term) for term in compiled]
    return FastPath(logical(operands, absorbing=node.absorbing), sum(term.cost for term in compiled), bool)


def _join_terms(terms: Sequence[FastPath]) -> list[Evaluate]:
    """Return a function for each term, or one for several terms in a row that compare attributes of one domain with constants."""
    joined: list[Evaluate] = []
    for domain, group in groupby(terms, lambda term: term.check and term.check[0]):
        row = list(group)
        checks = tuple(term.check[1] for term in row if term.check is not None)
        if domain is None or len(row) < _LEAST_JOINED:
            joined.extend(map(_as_bool, row))
        else:
            joined.append(attributes_equal(domain, checks))
    return joined


def _as_bool(term: FastPath) -> Evaluate:
    return term.evaluate if term.kind is bool else require_type(term.evaluate, bool)


def _conditional(node: typed_ast.Conditional, owner: str) -> FastPath | None:
    condition, then_part, else_part = (
        _compile(part, owner) for part in (node.condition, node.then_branch, node.else_branch)
    )
    if condition is None or then_part is None or else_part is None:
        return None
    test, if_true, if_false = _as_bool(condition), then_part.evaluate, else_part.evaluate
    kind = then_part.kind if then_part.kind is else_part.kind else None
    cost = condition.cost + max(then_part.cost, else_part.cost)
    return FastPath(lambda device: if_true(device) if test(device) else if_false(device), cost, kind)


def _invoke(node: typed_ast.Invoke, owner: str) -> FastPath | None:
    name, arguments = node.function.name, node.arguments
    if name == "!_":
        term = _compile(arguments[0], owner)
        if term is None:
            return None
        negated = _as_bool(term)
        return FastPath(lambda device: not negated(device), term.cost + 1, bool)
    if name in MIRRORED:
        left, right = arguments
        if isinstance(right, typed_ast.Constant):
            return _comparison(left, right, name, owner)
        return _comparison(right, left, MIRRORED[name], owner) if isinstance(left, typed_ast.Constant) else None
    if name == "@in":
        return _membership(arguments[0], arguments[1], owner)
    return _method(node, owner) if node.member else None


def _comparison(part: typed_ast.TypedNode, constant: typed_ast.Constant, symbol: str, owner: str) -> FastPath | None:
    operand = _compile(part, owner)
    value, kind = constant.value, type(constant.value)
    if operand is None or kind not in (_ORDERED_KINDS if symbol in ORDERINGS else _KINDS):
        return None
    cost = operand.cost + 1 + (tenth(len(value)) if kind is str else 1)
    if operand.attribute is not None and symbol in EQUALITY:
        domain, name = operand.attribute
        check = name, kind, value, symbol == "_==_"
        return FastPath(attribute_equals(domain, *check), cost, bool, None, (domain, check))
    return FastPath(comparison(operand.evaluate, operand.kind, value, symbol), cost, bool)


def _membership(part: typed_ast.TypedNode, among: typed_ast.TypedNode, owner: str) -> FastPath | None:
    operand = _compile(part, owner)
    if operand is None or not isinstance(among, typed_ast.MakeList) or any(among.optional):
        return None
    values = [element.value for element in among.elements if isinstance(element, typed_ast.Constant)]
    kinds = set(map(type, values))
    if len(values) < len(among.elements) or kinds not in ({str}, {int}):
        return None
    value_of, kind, members = operand.evaluate, kinds.pop(), frozenset(values)

    def evaluate(device: DeviceActivation) -> bool:
        value = value_of(device)
        if type(value) is kind:
            return value in members
        raise NotOnFastPathError

    return FastPath(evaluate, operand.cost + 1, bool)


def _method(node: typed_ast.Invoke, owner: str) -> FastPath | None:
    name = node.function.name
    operand = _compile(node.arguments[0], owner)
    if operand is None or len(node.candidates) != 1:
        return None
    if name in CASES:
        evaluate = apply_to_text(operand.evaluate, CASES[name])
        return FastPath(evaluate, operand.cost + 2 * tenth(MAX_TEXT_LENGTH), str)
    single = node.candidates[0]
    if len(node.arguments) != _PAIR or len(single.parameters) != _PAIR:
        return None
    if name in _TEXT_METHODS:
        return _text_method(name, single.implementation, operand, node.arguments[1], owner)
    constant_call = _constant_call(node.arguments[1]) if name in ORDERING_METHODS else None
    if constant_call is None:
        return None
    implementation, value, kind = single.implementation, constant_call.value, type(constant_call.value)
    evaluate = operand.evaluate if operand.kind is kind else require_type(operand.evaluate, kind)
    result = int if name == "compareTo" else bool
    return FastPath(
        lambda device: implementation(evaluate(device), value), operand.cost + 1 + constant_call.cost, result
    )


def _text_method(
    name: str,
    implementation: Implementation,
    operand: FastPath,
    argument: typed_ast.TypedNode,
    owner: str,
) -> FastPath | None:
    if not isinstance(argument, typed_ast.Constant) or type(argument.value) is not str:
        return None
    cost = operand.cost + tenth(MAX_TEXT_LENGTH) * len(argument.value) + tenth(MAX_TEXT_LENGTH)
    if name != "matches":
        return FastPath(apply_to_text(operand.evaluate, implementation, argument.value), cost, bool)
    value_of, pattern = operand.evaluate, argument.value
    try:
        if compile_pattern(pattern, owner).size > MAX_PATTERN_SIZE:
            return None
    except CelRuntimeError:
        return None

    def evaluate(device: DeviceActivation) -> bool:
        value = value_of(device)
        if type(value) is str and len(value) <= MAX_MATCHED_LENGTH and value.isascii():
            compiled = cached_pattern(pattern)
            # A pattern that the cache has evicted is left to the other back end.
            if compiled is not None:
                return compiled.regexp.search(value.encode()) is not None
        raise NotOnFastPathError

    return FastPath(evaluate, cost, bool)


def _constant_call(node: typed_ast.TypedNode) -> CompiledPart | None:
    """Return the quantity or version of a constant text."""
    if not isinstance(node, typed_ast.Invoke) or node.function.name not in {"quantity", "semver"}:
        return None
    constants = [constant(item.value) for item in node.arguments if isinstance(item, typed_ast.Constant)]
    if len(constants) < len(node.arguments) or len(node.candidates) != 1:
        return None
    return fold_call(node, tuple(constants), node.candidates[0])


_OF_DEVICE: Final = {
    "driver": FastPath(lambda device: device.driver, 2, str),
    "allowMultipleAllocations": FastPath(lambda device: bool(device.fields["allowMultipleAllocations"]), 2, bool),
}
_RULES: Final[Mapping[type[typed_ast.TypedNode], Callable[[Any, str], FastPath | None]]] = {
    typed_ast.FieldSelection: _field,
    typed_ast.Index: _field,
    typed_ast.Logical: _logical,
    typed_ast.Conditional: _conditional,
    typed_ast.Invoke: _invoke,
}
