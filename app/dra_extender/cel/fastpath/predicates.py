"""The questions that quick answers are made of: closures over a device, without counting."""

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from dra_extender.cel.native.patterns import kept_pattern
from dra_extender.cel.runtime.device import DeviceActivation

Ask = Callable[[DeviceActivation], Any]
Check = tuple[str, type, Any, bool]
"""An attribute's name, the type it must have for a plain answer, a constant, and whether it should equal it."""

LONGEST: Final = 256
"""Characters of a text up to which looking through it is cheap whatever is looked for."""
LONGEST_MATCHED: Final = 64
"""Characters of a text up to which a regular expression of `LARGEST_PATTERN` instructions is cheap."""
LARGEST_PATTERN: Final = 120

_AT_ONCE: Final = 3

ORDERINGS: Final[Mapping[str, Callable[[Any, Any], bool]]] = {
    "_<_": operator.lt,
    "_<=_": operator.le,
    "_>_": operator.gt,
    "_>=_": operator.ge,
}


class NotOnFastPathError(Exception):
    """A value is not of the type for which the answer is plain."""


def _lower(text: str) -> str:
    if text.isascii():
        return text.lower()
    raise NotOnFastPathError


def _upper(text: str) -> str:
    if text.isascii():
        return text.upper()
    raise NotOnFastPathError


CASES: Final[Mapping[str, Callable[[str], str]]] = {"lowerAscii": _lower, "upperAscii": _upper}


def certain(ask: Ask, kind: type) -> Ask:
    """The answer if it is of this type."""

    def asked(device: DeviceActivation) -> Any:
        value = ask(device)
        if type(value) is kind:
            return value
        raise NotOnFastPathError

    return asked


def of_attribute(domain: str, name: str, kind: type, wanted: Any, *, same: bool) -> Ask:
    """Whether an attribute equals a constant, or does not."""

    def asked(device: DeviceActivation) -> bool:
        value = device.attributes[domain][name]
        if type(value) is kind:
            return (value == wanted) is same
        raise NotOnFastPathError

    return asked


def same_domain(domain: str, checks: tuple[Check, ...]) -> Ask:
    """Whether all of several attributes of a domain equal their constants, or do not."""

    def asked(device: DeviceActivation) -> bool:
        values = device.attributes[domain]
        for name, kind, wanted, same in checks:
            value = values[name]
            if type(value) is not kind:
                raise NotOnFastPathError
            if (value == wanted) is not same:
                return False
        return True

    return asked


def comparison(ask: Ask, known: type | None, wanted: Any, symbol: str) -> Ask:
    """`ask symbol wanted`; `known` is the type of every answer, if that is certain."""
    kind = type(wanted)
    sure = ask if known is kind else certain(ask, kind)
    if symbol == "_==_":
        return lambda device: sure(device) == wanted
    if symbol == "_!=_":
        return lambda device: sure(device) != wanted
    ordered = ORDERINGS[symbol]
    return lambda device: ordered(sure(device), wanted)


def member(ask: Ask, kind: type, among: frozenset[Any]) -> Ask:
    """Whether an answer of this type is among constants of it."""

    def asked(device: DeviceActivation) -> bool:
        value = ask(device)
        if type(value) is kind:
            return value in among
        raise NotOnFastPathError

    return asked


def of_text(ask: Ask, run: Callable[..., Any], wanted: str | None = None) -> Ask:
    """A function of a short text and of a constant, if there is one."""

    def asked(device: DeviceActivation) -> Any:
        value = ask(device)
        if type(value) is not str or len(value) > LONGEST:
            raise NotOnFastPathError
        return run(value) if wanted is None else run(value, wanted)

    return asked


def of_match(ask: Ask, pattern: str) -> Ask:
    """Whether a short text of ASCII matches a pattern, undecided if that is not kept any more: compiling it is charged."""

    def asked(device: DeviceActivation) -> bool:
        value = ask(device)
        if type(value) is str and len(value) <= LONGEST_MATCHED and value.isascii():
            compiled = kept_pattern(pattern)
            if compiled is not None:
                return compiled.regexp.search(value.encode()) is not None
        raise NotOnFastPathError

    return asked


def negation(ask: Ask) -> Ask:
    """Not."""
    return lambda device: not ask(device)


def either(condition: Ask, chosen: Ask, other: Ask) -> Ask:
    """The one or the other."""
    return lambda device: chosen(device) if condition(device) else other(device)


def chain(asks: Sequence[Ask], *, absorbing: bool) -> Ask:
    """All or, if true absorbs, any of several; by twos and threes, which is faster than a loop."""
    while len(asks) > _AT_ONCE:
        asks = [chain(asks[place : place + _AT_ONCE], absorbing=absorbing) for place in range(0, len(asks), _AT_ONCE)]
    first, *others = asks
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
