"""Random inputs that can be changed a little: a tree of numbers and texts, and what a search does with one."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from random import Random
from typing import Final

ATOMS: Final = (
    *("a", "ab", "ba", "b", "0", "9", "1.", "1", "e", "-", "+", " ", "/", ":", "%", "%41", "a=b&", "1ns", "x."),
    *(".", "?", "\u00e9", "\u00df", "\U0001f600", "\u0130", "e\u0301", "\u4e2d", "A", "_", ",", "\\\\", "{", "["),
    *("@", "#", "\\n"),
)
PERIODS: Final = ("a", "a", "ab", "aab", "b")
"""Texts of a small alphabet, whose parts look like each other."""
EDGES: Final = ("", "", "", "a", "b", "ab", "ba", "aab", "1", "-", "0.", "1e", "\u00e9", "\U0001f600", "http://a/", "c")
_MOST_PATTERN: Final = 400


@dataclass(frozen=True)
class Gene:
    """A node: what it is, its numbers (sizes as powers of two, choices), its texts, and what it is made of."""

    kind: str
    numbers: tuple[int, ...] = ()
    texts: tuple[str, ...] = ()
    parts: tuple["Gene", ...] = ()


def changed(random: Random, gene: Gene, renew: Callable[[str], Gene | None]) -> Gene:
    """A gene that differs in one place; `renew` makes a new one of a kind, where it can."""
    places = len(gene.numbers) + len(gene.texts) + len(gene.parts)
    if not places:
        return renew(gene.kind) or gene
    place = random.randrange(places)
    if place < len(gene.numbers):
        number = _number(random, gene.numbers[place])
        return replace(gene, numbers=(*gene.numbers[:place], number, *gene.numbers[place + 1 :]))
    place -= len(gene.numbers)
    if place < len(gene.texts):
        text = _text(random, gene, place)
        return replace(gene, texts=(*gene.texts[:place], text, *gene.texts[place + 1 :]))
    place -= len(gene.texts)
    part = gene.parts[place]
    new = (renew(part.kind) if random.random() < 0.2 else None) or changed(random, part, renew)
    return replace(gene, parts=(*gene.parts[:place], new, *gene.parts[place + 1 :]))


def _number(random: Random, number: int) -> int:
    return max(0, number + random.choice((-4, -2, -1, -1, 1, 1, 2, 4)))


def _text(random: Random, gene: Gene, place: int) -> str:
    if gene.kind == "pattern":
        return changed_pattern(random, gene.texts[place])
    return random_text(random, ATOMS if place == 0 else EDGES)


def random_text(random: Random, choices: tuple[str, ...]) -> str:
    """One of these, as often one of few letters."""
    return random.choice(PERIODS if random.random() < 0.5 else choices)


CLASSES: Final = (
    *("a", "b", ".", "\\\\w", "\\\\d", "\\\\s", "[^a]", "[a-z]", "\\\\pL", "\\\\pN", "[\\\\pL\\\\pN\\\\pS]"),
    *("[\\\\pL\\\\pN\\\\pS]", "[^\\\\pL]"),
    *("(?i)k", "[\\\\x{1F600}-\\\\x{1FFFF}]", "(?s).", "\\\\b", "$", "^", "\\\\PL", "[[:alpha:]]"),
)


def new_pattern(random: Random, depth: int = 3) -> str:
    """A regular expression in the spelling of a CEL text, biased to what costs: repeats of classes and of repeats."""
    shape = random.randrange(7 if depth else 2)
    inner = "" if shape < 2 else new_pattern(random, depth - 1)
    if shape == 0:
        return random.choice(CLASSES)
    if shape == 1:
        return f"{random.choice(CLASSES)}{_repeat(random)}"
    if shape == 2:
        return f"({inner}){_repeat(random)}"
    if shape == 3:
        return f"({inner}|{new_pattern(random, depth - 1)})"
    if shape == 4:
        return f".*{inner}{_repeat(random)}{random.choice(CLASSES)}"
    return inner + new_pattern(random, depth - 1)


def _repeat(random: Random) -> str:
    most = random.choice((1, 3, 9, 30, 90, 300, 500, 900, 1000))
    return random.choice(("*", "+", "?", "*?", f"{{{most}}}", f"{{1,{most}}}", f"{{0,{most}}}"))


def changed_pattern(random: Random, pattern: str) -> str:
    """A pattern that is longer, repeated, or new."""
    way = random.randrange(5)
    if way == 0 or len(pattern) > _MOST_PATTERN:
        return new_pattern(random)
    if way == 1:
        return pattern + new_pattern(random, 1)
    if way == 2:
        return f"({pattern}){_repeat(random)}"
    if way == 3:
        return new_pattern(random, 1) + pattern
    return f"{pattern}|{new_pattern(random, 2)}"


def smaller(gene: Gene) -> Iterator[Gene]:
    """Genes that are simpler in one place, the simplest first."""
    for place, number in enumerate(gene.numbers):
        for less in dict.fromkeys((0, number // 2, number - 1)):
            if 0 <= less < number:
                yield replace(gene, numbers=(*gene.numbers[:place], less, *gene.numbers[place + 1 :]))
    for place, text in enumerate(gene.texts):
        shorter = _shorter_pattern(text) if gene.kind == "pattern" else ("",) if place and text else ()
        for less_text in shorter:
            yield replace(gene, texts=(*gene.texts[:place], less_text, *gene.texts[place + 1 :]))
    for place, part in enumerate(gene.parts):
        for less_part in smaller(part):
            yield replace(gene, parts=(*gene.parts[:place], less_part, *gene.parts[place + 1 :]))


def fewer(gene: Gene) -> Iterator[Gene]:
    """The gene with one less of its first number, if one is left."""
    count, *rest = gene.numbers
    if count > 1:
        yield replace(gene, numbers=(count - 1, *rest))


def _shorter_pattern(pattern: str) -> Iterator[str]:
    """Halves and all but an end; what is no pattern is not accepted by anyone and ends there."""
    half = len(pattern) // 2
    for part in (pattern[:half], pattern[half:], pattern[1:-1], pattern[:-1], pattern[1:]):
        if part:
            yield part
