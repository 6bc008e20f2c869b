"""Random expressions: made from the grammar, mostly well typed, or from existing ones by exchanging parts."""

import re
from collections.abc import Mapping, Sequence
from random import Random
from typing import Final

from dra_extender.cel.budget import CompileMeter
from dra_extender.cel.errors import CelCompileError
from dra_extender.cel.syntax.lexer import Token, tokenize

from tests.parity.fuzz.cel.grammar import rules

_HOLE: Final = re.compile(r"\$([a-z0-9]+)((?:@[a-z]+:[a-z0-9]+)*)")
_OPENING: Final = {"(": ")", "[": "]", "{": "}"}
_WORDS: Final = (
    *("true", "false", "null", "0", "1", "2u", "1.5", "'a'", "''", "b'a'", "[]", "{}", "[1]"),
    *("'gpu.example.com'", "device.driver", "+", "-", "*", "/", "%", "==", "!=", "<", ">=", "&&", "||", "!"),
    *("in", "?", ":", ".", ",", ".?", "[?0]", "x", "dyn(1)"),
)

Scope = Mapping[str, str]


class Grammar:
    """Makes expressions; one that is made of more than some 20 templates is rare."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._left = 0
        self._templates, self._leaves = rules()
        self._types = tuple(self._templates)

    def expression(self, kind: str, size: int) -> str:
        """An expression of a type of the grammar, of about so many templates."""
        self._left = size
        return self._part(kind, {}, top=True)

    def _part(self, kind: str, scope: Scope, *, top: bool = False) -> str:
        if not top and self._random.random() < 0.01:
            kind = self._random.choice(self._types)
        names = [name for name, found in scope.items() if found == kind]
        if names and self._random.random() < 0.5:
            return self._random.choice(names)
        if self._left <= 0 or kind not in self._templates or (not top and self._random.random() < 0.25):
            return self._random.choice(self._leaves[kind])
        self._left -= 1
        template = self._random.choice(self._templates[kind])
        text = _HOLE.sub(lambda hole: self._filled(hole, scope), template)
        return text if top or " " not in text else f"({text})"

    def _filled(self, hole: re.Match[str], scope: Scope) -> str:
        added = (tuple(item.split(":")) for item in hole[2].split("@") if item)
        return self._part(hole[1], {**scope, **dict(added)})


def mutated(random: Random, corpus: Sequence[str]) -> str:
    """An expression of the corpus with parts of it replaced, doubled or taken away, or with parts of another one."""
    text = random.choice(corpus)
    for _ in range(random.choice((1, 1, 1, 2, 3))):
        text = _changed(random, text, random.choice(corpus))
    return text


def _changed(random: Random, text: str, other: str) -> str:
    spans, words = parts(text), parts(other)
    if not spans:
        return text
    start, end = random.choice(spans)
    choice = random.randrange(4)
    if choice == 0 and words:
        first, last = random.choice(words)
        return text[:start] + other[first:last] + text[end:]
    if choice == 1:
        return text[:start] + text[end:]
    if choice == 2:
        return text[:end] + " " + text[start:end] + text[end:]
    return text[:start] + random.choice(_WORDS) + text[end:]


def parts(text: str) -> list[tuple[int, int]]:
    """Where the words and the balanced brackets of an expression are, with what stands before a bracket's dot."""
    try:
        tokens = tokenize(text, CompileMeter(text))[:-1]
    except CelCompileError:
        return []
    spans = [(token.offset, token.offset + len(token.text)) for token in tokens]
    pairs = _brackets(tokens)
    spans.extend((tokens[opening].offset, tokens[closing].offset + 1) for opening, closing in pairs)
    spans.extend(
        (tokens[opening].offset + 1, tokens[closing].offset) for opening, closing in pairs if closing > opening + 1
    )
    spans.extend((tokens[opening - 1].offset, tokens[closing].offset + 1) for opening, closing in pairs if opening)
    return spans


def _brackets(tokens: Sequence[Token]) -> list[tuple[int, int]]:
    pairs = []
    opened: list[int] = []
    for place, token in enumerate(tokens):
        if token.kind != "symbol":
            continue
        if token.text in _OPENING:
            opened.append(place)
        elif opened and token.text == _OPENING[tokens[opened[-1]].text]:
            pairs.append((opened.pop(), place))
    return pairs
