"""The closures that the fast path is made of: functions of a device, without cost accounting."""

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from dra_extender.cel.native.patterns import cached_pattern
from dra_extender.cel.runtime.device import DeviceActivation

Evaluate = Callable[[DeviceActivation], Any]
Check = tuple[str, type, Any, bool]
"""An attribute's name, the type its value must have, a constant, and whether the value should equal the constant."""

MAX_TEXT_LENGTH: Final = 256
"""The most characters of a text that the fast path searches."""
MAX_MATCHED_LENGTH: Final = 64
"""The most characters of a text that the fast path matches with a regular expression of MAX_PATTERN_SIZE instructions."""
MAX_PATTERN_SIZE: Final = 120

_AT_ONCE: Final = 3

ORDERINGS: Final[Mapping[str, Callable[[Any, Any], bool]]] = {
    "_<_": operator.lt,
    "_<=_": operator.le,
    "_>_": operator.gt,
    "_>=_": operator.ge,
}


class NotOnFastPathError(Exception):
    """A value is not of the type that the fast path expects."""


def _lower(text: str) -> str:
    if text.isascii():
        return text.lower()
    raise NotOnFastPathError


def _upper(text: str) -> str:
    if text.isascii():
        return text.upper()
    raise NotOnFastPathError


CASES: Final[Mapping[str, Callable[[str], str]]] = {"lowerAscii": _lower, "upperAscii": _upper}


def require_type(operand: Evaluate, kind: type) -> Evaluate:
    """The value of the operand, which must be of this type."""

    def evaluate(device: DeviceActivation) -> Any:
        value = operand(device)
        if type(value) is kind:
            return value
        raise NotOnFastPathError

    return evaluate


def attribute_equals(domain: str, name: str, kind: type, wanted: Any, *, same: bool) -> Evaluate:
    """Whether an attribute equals a constant, or does not."""

    def evaluate(device: DeviceActivation) -> bool:
        value = device.attributes[domain][name]
        if type(value) is kind:
            return (value == wanted) is same
        raise NotOnFastPathError

    return evaluate


def attributes_equal(domain: str, checks: tuple[Check, ...]) -> Evaluate:
    """Whether all of several attributes of a domain equal their constants, or do not."""

    def evaluate(device: DeviceActivation) -> bool:
        values = device.attributes[domain]
        for name, kind, wanted, same in checks:
            value = values[name]
            if type(value) is not kind:
                raise NotOnFastPathError
            if (value == wanted) is not same:
                return False
        return True

    return evaluate


def comparison(operand: Evaluate, known: type | None, wanted: Any, symbol: str) -> Evaluate:
    """`operand symbol wanted`; `known` is the type of every value of the operand, if all have one type."""
    kind = type(wanted)
    sure = operand if known is kind else require_type(operand, kind)
    if symbol == "_==_":
        return lambda device: sure(device) == wanted
    if symbol == "_!=_":
        return lambda device: sure(device) != wanted
    ordered = ORDERINGS[symbol]
    return lambda device: ordered(sure(device), wanted)


def is_member(operand: Evaluate, kind: type, among: frozenset[Any]) -> Evaluate:
    """Whether the value of the operand, which must be of this type, is one of these constants."""

    def evaluate(device: DeviceActivation) -> bool:
        value = operand(device)
        if type(value) is kind:
            return value in among
        raise NotOnFastPathError

    return evaluate


def apply_to_text(operand: Evaluate, run: Callable[..., Any], wanted: str | None = None) -> Evaluate:
    """A function applied to a short text and, if there is one, a constant."""

    def evaluate(device: DeviceActivation) -> Any:
        value = operand(device)
        if type(value) is not str or len(value) > MAX_TEXT_LENGTH:
            raise NotOnFastPathError
        return run(value) if wanted is None else run(value, wanted)

    return evaluate


def text_matches(operand: Evaluate, pattern: str) -> Evaluate:
    """Whether a short ASCII text matches a pattern; not on the fast path if the cache has evicted it: compiling it is charged."""

    def evaluate(device: DeviceActivation) -> bool:
        value = operand(device)
        if type(value) is str and len(value) <= MAX_MATCHED_LENGTH and value.isascii():
            compiled = cached_pattern(pattern)
            if compiled is not None:
                return compiled.regexp.search(value.encode()) is not None
        raise NotOnFastPathError

    return evaluate


def negation(operand: Evaluate) -> Evaluate:
    """`!operand`."""
    return lambda device: not operand(device)


def conditional(condition: Evaluate, chosen: Evaluate, other: Evaluate) -> Evaluate:
    """`condition ? chosen : other`."""
    return lambda device: chosen(device) if condition(device) else other(device)


def logical(terms: Sequence[Evaluate], *, absorbing: bool) -> Evaluate:
    """`&&` or, if true absorbs, `||` of all terms; nested by twos and threes, which is faster than a loop."""
    while len(terms) > _AT_ONCE:
        terms = [
            logical(terms[place : place + _AT_ONCE], absorbing=absorbing) for place in range(0, len(terms), _AT_ONCE)
        ]
    first, *others = terms
    if not others:
        return first
    if len(others) == 1:
        second = others[0]
        if absorbing:
            return lambda device: first(device) or second(device)
        return lambda device: first(device) and second(device)
    second, third = others
    if absorbing:
        return lambda device: first(device) or second(device) or third(device)
    return lambda device: first(device) and second(device) and third(device)
