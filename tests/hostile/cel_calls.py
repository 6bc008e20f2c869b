"""Selectors that make one call of a declared function, once or in a loop, with values as hostile as the genes have them."""

from collections.abc import Mapping, Sequence
from random import Random
from typing import Any, Final

from tests.hostile.cel_values import Written, alike_members, alike_texts, new_pattern_value, new_value, write
from tests.hostile.genes import Gene

MOST_BYTES: Final = 10 * 1024
_PATTERNS: Final = frozenset({"matches", "find", "findAll"})
_MOST_ROUNDS: Final = 16
_ALIKE: Final = 0.4
"""How often the texts of a call are periodic and nearly parts of each other."""
_TEMPLATES: Final = ("%s", "%s%s", "%.1000f", "%e", "%x", "%d", "%b", "%s, %s", "%.400f%.400f")

Overload = Mapping[str, Any]


def new_call(random: Random, overload: Overload) -> Gene:
    """A call with random arguments; the first number is how often (as a power of two), 0 for once."""
    declared: Sequence[Mapping[str, Any]] = overload["parameters"]
    arguments = [new_value(random, each) for each in declared]
    if overload["name"] in _PATTERNS:
        arguments[1] = new_pattern_value(random)
    elif overload["name"] == "format":
        arguments[0] = Gene("pattern", (), (random.choice(_TEMPLATES),))
    elif overload["name"].startswith("_[") and declared[0]["name"] == "list":
        arguments[1] = Gene("int", (0, 0))
    texts = [place for place, each in enumerate(declared) if each["name"] == "string"]
    if len(texts) > 1 and random.random() < _ALIKE:
        for place, value in zip(texts, alike_texts(random, len(texts)), strict=True):
            arguments[place] = value
    if random.random() < _ALIKE:
        arguments = alike_members(random, declared) or arguments
    rounds = random.choice((0, 0, 0, 4, 8, 12, 16))
    return Gene("call", (rounds,), (), tuple(arguments))


def renewed(random: Random, overload: Overload, kind: str) -> Gene | None:
    """Another argument of the same kind, where one can be had by itself."""
    for each in overload["parameters"]:
        made = new_value(random, each)
        if made.kind == kind:
            return made
    return new_pattern_value(random) if kind == "pattern" else None


def expression(overload: Overload, gene: Gene) -> str:
    """The selector; longer ones than the API takes can come out."""
    written = Written()
    arguments = [write(each, written) for each in gene.parts]
    called = call(overload["name"], arguments, member=overload["member"])
    rounds = min(gene.numbers[0], _MOST_ROUNDS)
    if rounds:
        body = written.around(f"lists.range({2**rounds}).all(r, [dyn({called})].size() == 1)")
    else:
        body = written.around(f"[dyn({called})].size() == 1")
    return body


def call(name: str, arguments: list[str], *, member: bool) -> str:
    """A call as it is written, of an operator or of a function."""
    if name == "_[_]":
        return f"{arguments[0]}[{arguments[1]}]"
    if name == "_[?_]":
        return f"{arguments[0]}[?{arguments[1]}]"
    if name == "_?_:_":
        return f"({arguments[0]} ? {arguments[1]} : {arguments[2]})"
    if name == "@in":
        return f"({arguments[0]} in {arguments[1]})"
    if name in {"-_", "!_"}:
        return f"({name[0]}{arguments[0]})"
    if name.startswith("_") and name.endswith("_"):
        return f"({arguments[0]} {name.strip('_')} {arguments[1]})"
    if member:
        return f"{arguments[0]}.{name}({', '.join(arguments[1:])})"
    return f"{name}({', '.join(arguments)})"


def subject(overload: Overload) -> str:
    """How an overload is called in the table."""
    shown = ", ".join(each["name"] for each in overload["parameters"])
    return f"{overload['name']}({shown})"
