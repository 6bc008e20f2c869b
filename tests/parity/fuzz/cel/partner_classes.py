"""The ways in which cel-cpp is known to differ from Kubernetes; each is known by a sign."""

import re
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple


class Disagreement(NamedTuple):
    """An expression, and what both say of it; words are empty where there is no error."""

    expression: str
    ours: str
    our_words: str
    theirs: str
    their_words: str


class Way(NamedTuple):
    """One way of differing: what it is, and whether a disagreement may be of it."""

    what: str
    sign: Callable[[Disagreement], bool]


def _we_say(pattern: str) -> Callable[[Disagreement], bool]:
    found = re.compile(pattern)
    return lambda case: bool(found.search(case.our_words))


def _they_say(pattern: str) -> Callable[[Disagreement], bool]:
    found = re.compile(pattern)
    return lambda case: bool(found.search(case.their_words))


def _written(pattern: str) -> Callable[[Disagreement], bool]:
    found = re.compile(pattern)
    return lambda case: not case.our_words and bool(found.search(case.expression))


WAYS: Final[Mapping[str, Way]] = {
    "domains": Way(
        "an unknown domain of device.attributes, or a field of device, is absent there",
        lambda case: (
            _they_say(r"Key not found in map|the result is no bool")(case)
            or _written(r"has\(device\.\w+|device\.attributes(\.\?|\[\?|\.nothing)")(case)
            or _we_say("map could not be converted")(case)
        ),
    ),
    "literals": Way(
        "literals of mixed types are accepted there",
        _we_say("expected type '.*' but found"),
    ),
    "numbers": Way(
        "numbers of different types are not compared by <, <=, > and >= there",
        _they_say(r"found no matching overload for '_[<>]=?_'"),
    ),
    "nan": Way("comparing NaN by order is false there", _we_say("NaN values cannot be ordered")),
    "constants": Way(
        "conversions, templates and patterns that are constant are looked at when they are evaluated there",
        _we_say(r"type conversion error|the format string|invalid|[Oo]verflow|cannot parse|not a valid|formatting"),
    ),
    "keys": Way(
        "map keys of double, null, list or other types, keys that are there twice, and what is looked up by them, are errors there",
        _they_say(r"Invalid map key type|duplicate key|No matching overloads found : @in"),
    ),
    "paths": Way(
        "what has no elements, and what optional values inside of a path have, is decided otherwise there",
        lambda case: (
            _they_say(
                r"No matching overloads found : _(\[|\?|\[\?)|optional\.none\(\) dereference|index out of bounds"
            )(case)
            or _we_say(
                r"no such overload for \(optional_type|no such key|index out of bounds|optional.none|invalid qualifier type"
            )(case)
            or _written(r"optional|\.\?|\[\?|\.(first|last)\(|has\(")(case)
        ),
    ),
    "types": Way(
        "names of types are values there, as are those of protocol buffers",
        _we_say(r"undeclared reference to '(google|net|dyn)'|reference to undefined type"),
    ),
    "texts": Way(
        "splitting an empty text, searching behind the end, and %e and %s of some values give something else there",
        lambda case: (
            _written(r"split\(|format\(|lastIndexOf\([^()]*,")(case)
            or _they_say(r"index out of range|formatting")(case)
        ),
    ),
    "conversions": Way(
        "int() takes no duration, getMilliseconds() gives the rest of a second, spellings that Go reads are refused there",
        lambda case: (
            _they_say(r"overloads found : int\(duration\)|conversion failed|cannot convert string")(case)
            or _written(r"getMilliseconds\(\)")(case)
        ),
    ),
    "overloads": Way(
        "a call that cannot be resolved by its types is an error elsewhere, or not at all, there",
        lambda case: bool(re.search("no such overload|found no matching overload", case.our_words)),
    ),
    "limits": Way(
        "cost and nesting have other limits there",
        lambda case: (
            _we_say("limit exceeded|was stopped|visits more|nested too")(case)
            or _they_say("[Bb]udget|depth|bad_alloc")(case)
        ),
    ),
    "dotted": Way(
        "a variable of a macro that is declared with a dot before its name is refused there",
        _they_say("variable name must be a simple identifier"),
    ),
    "ranges": Way(
        "what has no type yet cannot be looped over there",
        _they_say("expression of type 'dyn' cannot be the range of a comprehension"),
    ),
    "order": Way("entries of a map that become a list have another order there", _written(r"transformList\(")),
    "empty": Way("what is looked for in an empty list is evaluated there", _written(r"in \(*\[\]")),
}


def ways_of(case: Disagreement) -> list[str]:
    """The listed ways that may be behind a disagreement."""
    return [name for name, way in WAYS.items() if way.sign(case)]
